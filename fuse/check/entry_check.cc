// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The entries of a directory: each one sound, where a search looks for it, and no name twice.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fuse/check/names.h"
#include "fuse/check/object_parts.h"
#include "fuse/check/text.h"

namespace tiffin::check {

using tiffinfs::EntryValue;
using tiffinfs::Key;

namespace {

std::string entry_where(const ScanState& state, std::string_view name) {
    return fmt::format("{}, entry {}", state.where, name_text(name));
}

}  // namespace

void EntryCheck::begin() {
    count_ = 0;
    hash_ = 0;
    names_.clear();
}

bool EntryCheck::is_valid(Key key, ByteSpan value, std::string& problem) const {
    EntryValue entry;
    if (value.size() <= sizeof entry) {
        problem = "it is too short";
        return false;
    }
    std::memcpy(&entry, value.data(), sizeof entry);
    const std::string_view name = as_text(value.subspan(sizeof entry));
    if (entry.name_bytes != name.size()) {
        problem = fmt::format("its name has {} bytes instead of {}", name.size(), entry.name_bytes);
    } else if (!is_legal_name(name)) {
        problem = fmt::format("{} is not a name", name_text(name));
    } else if (entry.node == tiffinfs::kVolumeNode || entry.node > tiffinfs::kMaximumNode) {
        problem = fmt::format("{} leads to node {}, which cannot be", name_text(name),
                              uint64_t{entry.node});
    } else if (!is_type_mode(uint32_t{entry.type} << 12)) {
        problem = fmt::format("{} has an unknown type", name_text(name));
    } else if (key.offset() < tiffinfs::kEntrySlots) {
        problem = fmt::format("{} is at an impossible place", name_text(name));
    }
    return problem.empty();
}

// An entry whose place proves its name, and of which only what other keys tell, too, is wrong: as it should be. Empty: it
// is none.
std::vector<unsigned char> EntryCheck::mended(Key key, ByteSpan value) const {
    EntryValue entry;
    if (value.size() <= sizeof entry) {
        return {};
    }
    std::memcpy(&entry, value.data(), sizeof entry);
    const std::string_view name = as_text(value.subspan(sizeof entry));
    if (!is_legal_name(name) || entry.node == tiffinfs::kVolumeNode ||
        entry.node > tiffinfs::kMaximumNode ||
        key.offset() >> tiffinfs::kEntrySlotBits != name_hash(state_.context.superblock, name)) {
        return {};
    }
    entry.name_bytes = static_cast<uint8_t>(name.size());
    if (!is_type_mode(uint32_t{entry.type} << 12)) {
        entry.type = vfs::mode::regular >> 12;  // or what its inode says: see links.cc
    }
    std::vector<unsigned char> bytes(value.begin(), value.end());
    std::memcpy(bytes.data(), &entry, sizeof entry);
    return bytes;
}

void EntryCheck::visit(Key key, ByteSpan value) {
    std::string problem;
    std::vector<unsigned char> kept;
    if (!is_valid(key, value, problem)) {
        if (!state_.context.found(Code::entry_invalid,
                                  fmt::format("{}, entry at {:#x}", state_.where, key.offset()),
                                  problem)) {
            return;
        }
        kept = mended(key, value);
        if (kept.empty()) {
            state_.repairs.erase(key);
            return;
        }
        state_.repairs.put(key, kept);
        value = ByteSpan(kept.data(), kept.size());
    }
    EntryValue entry;
    std::memcpy(&entry, value.data(), sizeof entry);
    const std::string_view name = as_text(value.subspan(sizeof entry));
    if (is_duplicate(key, name)) {
        if (state_.context.found(Code::entry_duplicate, entry_where(state_, name),
                                 "the name occurs twice")) {
            state_.repairs.erase(key);
        }
        return;
    }
    check_hash(key, value, name);
    ++count_;
    ++state_.objects.statistics.entries;
    state_.objects.links.push_back(
        {entry.node, state_.node, key.offset() | uint64_t{entry.type} << tiffinfs::kKeyOffsetBits});
}

// Equal names have equal hashes, so only neighbours need to be compared.
bool EntryCheck::is_duplicate(Key key, std::string_view name) {
    const uint64_t hash = key.offset() >> tiffinfs::kEntrySlotBits;
    if (hash != hash_) {
        hash_ = hash;
        names_.clear();
    }
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) {
        return true;
    }
    names_.emplace_back(name);
    return false;
}

void EntryCheck::check_hash(Key key, ByteSpan value, std::string_view name) {
    const uint64_t expected = name_hash(state_.context.superblock, name);
    if (key.offset() >> tiffinfs::kEntrySlotBits == expected) {
        return;
    }
    if (!state_.context.found(Code::entry_hash, entry_where(state_, name),
                              fmt::format("it is at {:#x}, but a search looks at {:#x}",
                                          key.offset() >> tiffinfs::kEntrySlotBits, expected))) {
        return;
    }
    EntryValue entry;
    std::memcpy(&entry, value.data(), sizeof entry);
    // Under its name, or, if there is one by now that searches find, a similar one: nothing is lost.
    state_.repairs.later([key, entry, name = std::string(name),
                          &superblock = state_.context.superblock](KeySpace& keys) -> Result<void> {
        constexpr uint32_t kMostNames = 1000;
        for (uint32_t number = 0; number < kMostNames; ++number) {
            const std::string suffix = number == 0 ? "" : fmt::format("~{}", number);
            const std::string free_name =
                name.substr(0, std::min(name.size(), vfs::kNameMaxBytes - suffix.size())) + suffix;
            if (TRY(add_entry(keys, superblock, key.node, free_name, entry.node,
                              uint32_t{entry.type} << 12))) {
                keys.erase(key);
                break;
            }
        }
        return {};
    });
}

void EntryCheck::end() {
    const uint64_t counted = state_.inode.size_bytes;
    if (!state_.is_directory() || counted == count_) {
        return;
    }
    if (counted > count_ && !state_.is_being_deleted()) {
        state_.objects.lost_names.push_back({state_.node, state_.inode, count_});
    } else if (state_.context.found(
                   Code::directory_entries, state_.where,
                   fmt::format("it counts {} entries and has {}", counted, count_))) {
        state_.corrected_inode().size_bytes = count_;
    }
}

}  // namespace tiffin::check
