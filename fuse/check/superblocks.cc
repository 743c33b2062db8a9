// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/superblocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fs/tiffinfs/journal/journal.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fs/vfs/host.h"
#include "fuse/check/block_io.h"

namespace tiffin::check {
namespace {

using State = SuperblockCopy::State;
using tiffinfs::kBlockBytes;
using tiffinfs::Superblock;

bool all_zero(const unsigned char* bytes, size_t size) {
    return std::all_of(bytes, bytes + size, [](unsigned char byte) { return byte == 0; });
}

bool is_of_this_version(const Superblock& superblock) {
    return superblock.version == tiffinfs::kFormatVersion &&
           (superblock.incompat_features & ~tiffinfs::kKnownIncompatFeatures) == 0;
}

bool is_larger_than(const Superblock& superblock, uint64_t device_bytes) {
    return superblock.total_blocks > device_bytes / kBlockBytes &&
           superblock.total_blocks <= tiffinfs::kMaximumBlocks;
}

// Why a superblock cannot be used here that may be right; empty when it can.
std::string find_unusable_field(const Superblock& superblock, uint64_t device_bytes) {
    const Superblock& s = superblock;
    if (s.version != tiffinfs::kFormatVersion) {
        return fmt::format("format version {} is not known to this program", s.version);
    }
    if (!is_of_this_version(s)) {
        return fmt::format("features {:#x} are not known to this program",
                           s.incompat_features & ~tiffinfs::kKnownIncompatFeatures);
    }
    if (is_larger_than(s, device_bytes)) {
        return fmt::format(
            "the volume has {} bytes, the device only {}: its end has been cut off; make the "
            "device as long again, if what "
            "was there still is; 'fsck.tiffin -y' lengthens an image file with zeros, and finds "
            "out what is gone",
            s.total_blocks * kBlockBytes, device_bytes);
    }
    return {};
}

// What is wrong with one whose checksum is right; empty when nothing is.
std::string find_impossible_field(const Superblock& superblock) {
    const Superblock& s = superblock;
    Result<tiffinfs::Layout> layout = tiffinfs::Layout::from(s);
    if (!layout.ok() || s.journal_first_block != tiffinfs::kJournalFirstBlock ||
        s.journal_block_count < tiffinfs::kMinimumJournalBytes / kBlockBytes) {
        return "the journal or the size of the volume is impossible";
    }
    if (s.generation == 0 || s.root_generation > s.generation ||
        s.root_level > tiffinfs::kMaximumRootLevel ||
        layout->touches_fixed_blocks(std::min(s.root_block, s.total_blocks - 1), 1) ||
        s.root_block >= s.total_blocks) {
        return "the root of the tree is impossible";
    }
    if (s.journal_position >= s.journal_block_count * kBlockBytes) {
        return "the journal begins outside of its place";
    }
    if (s.used_blocks > s.total_blocks || s.initialized_groups > layout->groups() ||
        s.next_node <= vfs::kRootNode || s.next_node > tiffinfs::kKeyOffsetMask ||
        s.generation >= tiffinfs::kCounterLimit || s.incarnation >= tiffinfs::kCounterLimit ||
        s.journal_sequence >= tiffinfs::kCounterLimit) {
        return "impossible totals";
    }
    return {};
}

void read_copy(vfs::BlockDevice& device, SuperblockCopy& copy) {
    const uint64_t device_bytes = device.geometry().size_bytes;
    Block block;
    if ((copy.block + 1) * kBlockBytes > device_bytes || !read_block(device, copy.block, block)) {
        copy.state = State::unreadable;
        return;
    }
    std::memcpy(&copy.superblock, block.bytes, sizeof(Superblock));
    if (copy.superblock.magic != tiffinfs::kSuperblockMagic) {
        copy.state = all_zero(block.bytes, sizeof(Superblock)) ? State::empty : State::foreign;
    } else if (copy.superblock.checksum != superblock_checksum(copy.superblock)) {
        copy.state = State::damaged;
    } else {
        copy.reason = find_unusable_field(copy.superblock, device_bytes);
        if (!copy.reason.empty()) {
            copy.state = State::unusable;
            return;
        }
        copy.reason = find_impossible_field(copy.superblock);
        if (copy.reason.empty() && copy.superblock.generation % 2 != copy.slot) {
            copy.reason = "its generation belongs into the other slot";
        }
        copy.state = copy.reason.empty() ? State::valid : State::impossible;
    }
}

bool same_volume(const Superblock& a, const Superblock& b) {
    // Sizes may differ: while a volume grows, the generation before has the old one.
    return std::memcmp(a.uuid, b.uuid, sizeof a.uuid) == 0 && a.volume_nonce == b.volume_nonce;
}

// Whether it is unusable, at the front, and of the newest state that there is. What another version has written tells no
// generation.
bool is_newest(const SuperblockCopies& copies, const SuperblockCopy& unusable) {
    return unusable.state == State::unusable && unusable.copy == 0 &&
           std::none_of(std::begin(copies.copies), std::end(copies.copies),
                        [&](const SuperblockCopy& other) {
                            return other.state == State::valid &&
                                   same_volume(other.superblock, unusable.superblock) &&
                                   is_of_this_version(unusable.superblock) &&
                                   other.superblock.generation > unusable.superblock.generation;
                        });
}

// Which volume this is. What mkfs wrote last is at the front; copies at the end may be left over
// from an older and larger one.
const Superblock* choose_volume(const SuperblockCopies& copies) {
    const Superblock* chosen = nullptr;
    for (const SuperblockCopy& copy : copies.copies) {
        if (copy.state != State::valid || (chosen != nullptr && copy.copy == 1)) {
            continue;
        }
        if (chosen == nullptr || copy.superblock.generation > chosen->generation) {
            chosen = &copy.superblock;
        }
    }
    return chosen;
}

void sort_generations(SuperblockCopies& copies, const Superblock& volume) {
    for (SuperblockCopy& copy : copies.copies) {
        if (copy.state != State::valid) {
            continue;
        }
        if (!same_volume(copy.superblock, volume)) {
            copy.state = State::foreign;
            continue;
        }
        auto& list = copies.generations;
        const auto same = std::find_if(list.begin(), list.end(), [&](const Superblock& other) {
            return other.generation == copy.superblock.generation;
        });
        if (same == list.end()) {
            list.push_back(copy.superblock);
        } else if (copy.superblock.incarnation > same->incarnation) {
            // A mount that was interrupted while it wrote its incarnation into both copies.
            *same = copy.superblock;
        }
    }
    std::sort(copies.generations.begin(), copies.generations.end(),
              [](const Superblock& a, const Superblock& b) { return a.generation > b.generation; });
}

std::string_view state_text(const SuperblockCopy& copy) {
    switch (copy.state) {
        case State::unreadable:
            return "cannot be read";
        case State::empty:
            return "is empty";
        case State::foreign:
            return "is not there";
        case State::damaged:
            return "has a wrong checksum";
        case State::impossible:
        case State::unusable:
        case State::valid:
            break;
    }
    return copy.reason;
}

// Both copies of a slot are the same, unless the slot has never been used.
std::string find_copy_problem(const SuperblockCopies& copies, const SuperblockCopy& copy) {
    uint64_t slot_generation = 0;
    for (const SuperblockCopy& other : copies.copies) {
        if (other.state == State::valid && other.slot == copy.slot) {
            slot_generation = std::max(slot_generation, other.superblock.generation);
        }
    }
    if (copy.state == State::valid) {
        return copy.superblock.generation == slot_generation
                   ? std::string()
                   : fmt::format("is of generation {}, the other copy of {}",
                                 copy.superblock.generation, slot_generation);
    }
    const bool unused = copies.generations.front().generation == 1 && slot_generation == 0;
    return unused && copy.state == State::empty ? std::string() : std::string(state_text(copy));
}

}  // namespace

std::string SuperblockCopy::name() const {
    return fmt::format("superblock {}, {} copy (block {})", slot == 0 ? 'A' : 'B',
                       copy == 0 ? "first" : "second", block);
}

uint32_t superblock_checksum(const Superblock& superblock) {
    Superblock unsummed = superblock;
    unsummed.checksum = 0;
    return host::crc32c(0, &unsummed, sizeof unsummed);
}

uint64_t cut_off_volume_bytes(const SuperblockCopies& copies, uint64_t device_bytes) {
    uint64_t blocks = 0;
    for (const SuperblockCopy& copy : copies.copies) {
        if (is_newest(copies, copy) && is_of_this_version(copy.superblock) &&
            is_larger_than(copy.superblock, device_bytes)) {
            blocks = std::max<uint64_t>(blocks, copy.superblock.total_blocks);
        }
    }
    return blocks * kBlockBytes;
}

SuperblockCopies read_superblock_copies(vfs::BlockDevice& device) {
    SuperblockCopies copies;
    const uint64_t device_blocks = device.geometry().size_bytes / kBlockBytes;
    if (device_blocks < tiffinfs::kMinimumBlocks) {
        return copies;
    }
    tiffinfs::SecondCopies ends(tiffinfs::round_total_blocks(device_blocks));
    for (uint32_t i = 0; i < 4; ++i) {
        SuperblockCopy& copy = copies.copies[i];
        copy.slot = i % 2;
        copy.copy = i / 2;
        copy.block = tiffinfs::superblock_block(ends.total_blocks(copy.slot), copy.slot, copy.copy);
        read_copy(device, copy);
        if (copy.copy == 0 && copy.state == State::valid) {
            ends.note_first_copy(copy.slot, copy.superblock.total_blocks);
        }
    }
    if (const Superblock* volume = choose_volume(copies); volume != nullptr) {
        sort_generations(copies, *volume);
    }
    if (std::any_of(std::begin(copies.copies), std::end(copies.copies),
                    [&](const SuperblockCopy& copy) { return is_newest(copies, copy); })) {
        copies.generations.clear();
    }
    return copies;
}

bool check_superblocks(Context& context, const SuperblockCopies& copies) {
    if (copies.generations.empty()) {
        bool found = false;
        for (const SuperblockCopy& copy : copies.copies) {
            if (copy.state == State::damaged || copy.state == State::impossible ||
                copy.state == State::unusable) {
                context.found_for_good(Code::superblock_fields, copy.name(), state_text(copy));
                found = true;
            }
        }
        context.found_for_good(Code::superblock_missing, "volume",
                               found ? "no superblock can be used" : "no tiffinfs is here");
        return false;
    }
    for (const Superblock& superblock : copies.generations) {
        const uint64_t unknown =
            superblock.read_only_compat_features & ~tiffinfs::kKnownReadOnlyCompatFeatures;
        if (unknown != 0) {
            context.found_for_good(Code::superblock_fields,
                                   fmt::format("generation {}", superblock.generation),
                                   fmt::format("features {:#x} are not known to this program, "
                                               "which would take what belongs to them for "
                                               "damage: use a newer version",
                                               unknown));
            return false;
        }
    }
    const Superblock& newest = copies.generations.front();
    const bool clean = (newest.state & tiffinfs::superblock_state::clean) != 0;
    for (const SuperblockCopy& copy : copies.copies) {
        const std::string what = find_copy_problem(copies, copy);
        if (what.empty()) {
            continue;
        }
        // A mount may have ended while this copy was being written; the next one writes it again. Only
        // in a slot that was complete before does it mean damage, and only if it is not whole.
        if (clean && copy.state != State::valid) {
            (void)context.found(Code::superblock_copy, copy.name(), what);
        } else {
            context.note(Code::superblock_copy, copy.name(), what);
        }
    }
    if ((newest.state & tiffinfs::superblock_state::errors) != 0) {
        (void)context.found(Code::errors_flag, "superblock",
                            "the file system met errors when it was mounted");
    }
    return true;
}

}  // namespace tiffin::check
