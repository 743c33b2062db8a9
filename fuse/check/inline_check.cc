// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Content that lives in the tree: small files, and the targets of symbolic links.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "fuse/check/object_parts.h"

namespace tiffin::check {

using tiffinfs::InodeValue;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

void InlineCheck::begin() {
    has_inline_ = false;
    inline_bytes_ = 0;
    has_chunks_ = false;
    symlink_chunks_ = 0;
    symlink_bytes_ = 0;
    symlink_whole_ = true;
    symlink_short_ = false;
    symlink_has_nul_ = false;
}

void InlineCheck::visit_inline(Key key, ByteSpan value) {
    (void)key;
    has_inline_ = true;
    inline_bytes_ = value.size();
}

void InlineCheck::visit_symlink(Key key, ByteSpan value) {
    has_chunks_ = true;
    // Chunks are numbered without gaps, and only the last one may be short.
    if (key.offset() != symlink_chunks_ || symlink_short_ || value.empty() ||
        value.size() > tiffinfs::kSymlinkChunkBytes) {
        symlink_whole_ = false;
        return;
    }
    ++symlink_chunks_;
    symlink_bytes_ += value.size();
    symlink_short_ = value.size() < tiffinfs::kSymlinkChunkBytes;
    symlink_has_nul_ = symlink_has_nul_ || std::memchr(value.data(), 0, value.size()) != nullptr;
}

void InlineCheck::end(bool has_extents) {
    if (state_.is_symlink()) {
        if (!state_.is_being_deleted()) {
            end_symlink();
        }
    } else if (state_.is_regular()) {
        end_regular(has_extents);
    }
}

void InlineCheck::end_regular(bool has_extents) {
    const InodeValue& inode = state_.inode;
    const bool flagged = (inode.inode_flags & tiffinfs::inode_flag::inline_data) != 0;
    const Key key = make_key(state_.node, Kind::inline_data, 0);
    if (!flagged) {
        // It is never looked at; so it is older than what the extents hold, or it was never valid.
        if (has_inline_ && state_.context.found(Code::inline_invalid, state_.where,
                                                "it has inline content that its inode denies")) {
            if (has_extents || inode.size_bytes > tiffinfs::kInlineDataMaximumBytes) {
                state_.repairs.erase(key);
            } else {
                state_.corrected_inode().inode_flags |= tiffinfs::inode_flag::inline_data;
            }
        }
        return;
    }
    if (has_extents || inode.size_bytes > tiffinfs::kInlineDataMaximumBytes) {
        if (state_.context.found(
                Code::inline_invalid, state_.where,
                has_extents ? "it has inline content and blocks"
                            : fmt::format("{} bytes cannot be inline", inode.size_bytes))) {
            tiffinfs::InodeValue& corrected = state_.corrected_inode();
            if (has_inline_ && !has_extents && inline_bytes_ <= tiffinfs::kInlineDataMaximumBytes) {
                corrected.size_bytes = inline_bytes_;
                return;
            }
            corrected.inode_flags &= ~tiffinfs::inode_flag::inline_data;
            if (has_inline_) {
                state_.repairs.erase(key);
            }
            if (!has_extents) {
                // Whatever it says, there was no more.
                corrected.size_bytes = tiffinfs::kInlineDataMaximumBytes;
                state_.missing.add_content_of(state_.node);
            }
        }
        return;
    }
    if (!has_inline_ && inode.size_bytes != 0 && inode.allocated_blocks == 0 &&
        !state_.is_being_deleted() && state_.missing.contains(key)) {
        state_.objects.lost_content.push_back({state_.node, inode, 0, {{0, 1}}});
        return;
    }
    if (inline_bytes_ > inode.size_bytes &&
        state_.context.found(Code::inline_invalid, state_.where,
                             fmt::format("{} bytes are stored, but its size is {}", inline_bytes_,
                                         inode.size_bytes))) {
        if (inline_bytes_ > tiffinfs::kInlineDataMaximumBytes) {
            state_.repairs.erase(key);
            state_.missing.add(key, tiffinfs::next_key(key));
        } else {
            state_.corrected_inode().size_bytes = inline_bytes_;
        }
    }
}

void InlineCheck::end_symlink() {
    const uint64_t size = state_.inode.size_bytes;
    if (symlink_whole_ && symlink_bytes_ == size && size != 0 && size <= vfs::kSymlinkMaxBytes &&
        !symlink_has_nul_) {
        return;
    }
    if (!has_chunks_ && size != 0 && size <= vfs::kSymlinkMaxBytes) {
        state_.objects.marked_content.push_back({state_.node, 0});
        return;
    }
    if (state_.context.found(
            Code::symlink_invalid, state_.where,
            fmt::format("its target of {} bytes is not stored as it should be", size))) {
        const bool is_whole = symlink_is_whole() && symlink_bytes_ <= vfs::kSymlinkMaxBytes;
        if (!is_whole) {
            lose_symlink();
        }
        state_.corrected_inode().size_bytes =
            is_whole ? symlink_bytes_ : std::clamp<uint64_t>(size, 1, vfs::kSymlinkMaxBytes);
    }
}

// A target without chunks is one that is lost: reading it fails.
void InlineCheck::lose_symlink() {
    state_.repairs.erase_range(make_key(state_.node, Kind::symlink, 0),
                               make_key(state_.node, Kind::orphan, 0));
}

}  // namespace tiffin::check
