// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Extended attributes: every chunk there, of the right size, where a search looks for it.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "fs/tiffinfs/attributes/acl.h"
#include "fs/tiffinfs/attributes/xattr.h"
#include "fuse/check/names.h"
#include "fuse/check/object_parts.h"
#include "fuse/check/text.h"

namespace tiffin::check {

using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::kXattrChunkBytes;
using tiffinfs::XattrValue;

namespace {

constexpr uint32_t kChunkBits = 8;
constexpr uint32_t kPlaceBits = 16;  // slot and chunk

std::string_view text_of(vfs::Name name) { return {name.data, name.size_bytes}; }

Key key_at(uint64_t node, uint64_t offset) { return tiffinfs::make_key(node, Kind::xattr, offset); }

// In the first free slot of its hash, unless there is one of this name.
Result<void> add_attribute(KeySpace& keys, uint64_t node, uint64_t hash, std::string_view name,
                           ByteSpan value) {
    XattrValue header{};
    header.value_bytes = static_cast<uint32_t>(value.size());
    header.name_bytes = static_cast<uint8_t>(name.size());
    std::vector<unsigned char> bytes(sizeof header);
    std::memcpy(bytes.data(), &header, sizeof header);
    bytes.insert(bytes.end(), name.begin(), name.end());
    const size_t head_bytes = bytes.size();
    bytes.insert(bytes.end(), value.begin(), value.end());
    constexpr uint64_t kSlots = 1U << (kPlaceBits - kChunkBits);
    uint64_t first = hash << kPlaceBits;
    KeyValue found;
    for (uint64_t slot = 0; TRY(keys.get(key_at(node, first), found)); first += 1U << kChunkBits) {
        const ByteSpan there = found.bytes();
        const bool has_name =
            there.size() >= head_bytes &&
            there.data()[offsetof(XattrValue, name_bytes)] == name.size() &&
            std::memcmp(there.data() + sizeof header, name.data(), name.size()) == 0;
        if (has_name || ++slot == kSlots) {
            return {};
        }
    }
    for (size_t begin = 0, chunk = 0; begin < bytes.size(); begin += kXattrChunkBytes, ++chunk) {
        const size_t size = std::min<size_t>(kXattrChunkBytes, bytes.size() - begin);
        keys.put(key_at(node, first + chunk), ByteSpan(bytes.data() + begin, size));
    }
    return {};
}

}  // namespace

void XattrCheck::begin() {
    any_ = false;
    open_ = false;
    hash_ = ~uint64_t{0};
    names_.clear();
    flags_ = 0;
}

void XattrCheck::visit(Key key, ByteSpan value) {
    const uint64_t place = key.offset() >> kChunkBits;
    const auto chunk = static_cast<uint32_t>(key.offset() & ((1U << kChunkBits) - 1));
    if (!open_ || place != place_) {
        finish_attribute();
        place_ = place;
        open_ = true;
        failed_ = false;
        misplaced_ = false;
        next_chunk_ = 1;
        name_.clear();
        value_.clear();
        if (chunk != 0) {
            fail("its first part is missing");
            return;
        }
        start_attribute(key, value);
        return;
    }
    if (failed_) {
        return;
    }
    const size_t left = value_bytes_ - value_.size();
    if (chunk != next_chunk_++) {
        fail("a part is missing");
    } else if (left == 0 || value.size() != std::min<size_t>(left, kXattrChunkBytes)) {
        fail("a part has the wrong size");
    } else {
        value_.insert(value_.end(), value.begin(), value.end());
    }
}

void XattrCheck::start_attribute(Key key, ByteSpan value) {
    XattrValue header;
    if (value.size() < sizeof header || value.size() > kXattrChunkBytes) {
        fail("its first part has an impossible size");
        return;
    }
    std::memcpy(&header, value.data(), sizeof header);
    const ByteSpan rest = value.subspan(sizeof header);
    if (header.name_bytes == 0 || header.name_bytes > rest.size() ||
        header.value_bytes > vfs::kXattrValueMaxBytes) {
        fail("its name or size is impossible");
        return;
    }
    name_ = as_text(rest.first(header.name_bytes));
    value_bytes_ = header.value_bytes;
    const size_t room = kXattrChunkBytes - sizeof header - header.name_bytes;
    const ByteSpan bytes = rest.subspan(header.name_bytes);
    if (bytes.size() != std::min<size_t>(header.value_bytes, room)) {
        fail("its first part has the wrong size");
        return;
    }
    value_.assign(bytes.begin(), bytes.end());
    const uint64_t hash = key.offset() >> kPlaceBits;
    if (name_.find('\0') != std::string::npos) {
        fail("its name is impossible");
        return;
    }
    if (hash != xattr_hash(state_.context.superblock, name_)) {
        misplaced_ = true;
        return;
    }
    if (hash != hash_) {
        hash_ = hash;
        names_.clear();
    }
    if (std::find(names_.begin(), names_.end(), name_) != names_.end()) {
        fail("the name occurs twice");
        return;
    }
    names_.push_back(name_);
}

// Called when the last chunk of an attribute has been seen.
void XattrCheck::finish_attribute() {
    if (!open_) {
        return;
    }
    if (!failed_ && value_.size() != value_bytes_) {
        fail("its last part is missing");
    }
    if (!failed_) {
        check_whole(name_);
    }
    if (!failed_ && misplaced_) {
        move();
    }
    any_ = any_ || !failed_;
    open_ = false;
}

void XattrCheck::check_whole(std::string_view name) {
    if (!tiffinfs::xattr_kind(vfs::Name(name.data(), name.size())).ok()) {
        fail("its name is none that a program can use");
        return;
    }
    flags_ |= tiffinfs::inode_flag::has_xattrs;
    const bool is_access = name == text_of(tiffinfs::kAccessAclName);
    const bool is_default = name == text_of(tiffinfs::kDefaultAclName);
    if (is_access || is_default) {
        const Result<uint32_t> entries =
            tiffinfs::check_acl(ByteSpan(value_.data(), value_.size()));
        if (!entries.ok() || entries.value() == 0) {
            fail("the access control list is malformed");
            return;
        }
        flags_ |= is_access ? tiffinfs::inode_flag::has_access_acl
                            : tiffinfs::inode_flag::has_default_acl;
    }
    if (name == text_of(tiffinfs::kCapabilityName)) {
        flags_ |= tiffinfs::inode_flag::has_capability;
    }
}

// Says what is wrong with the attribute, once, and has all of its keys removed.
void XattrCheck::fail(std::string_view problem) {
    if (failed_) {
        return;
    }
    failed_ = true;
    if (state_.is_being_deleted()) {
        return;
    }
    const uint64_t first = place_ << kChunkBits;
    const std::string where = name_.empty()
                                  ? fmt::format("{}, attribute at {:#x}", state_.where, first)
                                  : fmt::format("{}, attribute {}", state_.where, name_text(name_));
    if (state_.context.found(Code::xattr_invalid, where, problem)) {
        const Key last = tiffinfs::make_key(state_.node, Kind::xattr, first | 0xff);
        state_.repairs.erase_range(tiffinfs::make_key(state_.node, Kind::xattr, first),
                                   tiffinfs::next_key(last));
    }
}

// To where a search looks, unless it has been made again there.
void XattrCheck::move() {
    if (state_.is_being_deleted() ||
        !state_.context.found(Code::xattr_invalid,
                              fmt::format("{}, attribute {}", state_.where, name_text(name_)),
                              "it is stored where a search does not look")) {
        return;
    }
    state_.repairs.later(
        [node = state_.node, old = place_ << kChunkBits, name = name_, value = value_,
         hash = xattr_hash(state_.context.superblock, name_)](KeySpace& keys) -> Result<void> {
            TRY(add_attribute(keys, node, hash, name, ByteSpan(value.data(), value.size())));
            keys.erase_range(key_at(node, old), tiffinfs::next_key(key_at(node, old | 0xff)));
            return {};
        });
}

void XattrCheck::end() {
    finish_attribute();
    const uint32_t missing = flags_ & ~state_.inode.inode_flags;
    if (state_.has_inode && missing != 0 &&
        state_.context.found(Code::inode_invalid, fmt::format("{}, attribute flags", state_.where),
                             "the inode does not say that it has the extended attributes it has")) {
        state_.corrected_inode().inode_flags |= missing;
    }
    look_for_lost();
}

// That an object has an ACL is exact; that it has other attributes means only that it may.
void XattrCheck::look_for_lost() {
    constexpr uint32_t kAcls =
        tiffinfs::inode_flag::has_access_acl | tiffinfs::inode_flag::has_default_acl;
    if (!state_.has_inode || state_.is_being_deleted() ||
        (state_.inode.inode_flags & tiffinfs::inode_flag::has_xattrs) == 0) {
        return;
    }
    const uint32_t lost_flags = state_.inode.inode_flags & kAcls & ~flags_;
    bool are_missing = lost_flags != 0;
    state_.missing.visit(key_at(state_.node, 0),
                         tiffinfs::next_key(key_at(state_.node, tiffinfs::kKeyOffsetMask)),
                         [&](Key, Key) { are_missing = true; });
    if (are_missing) {
        state_.objects.lost_attributes.push_back({state_.node, state_.inode, lost_flags});
    }
}

}  // namespace tiffin::check
