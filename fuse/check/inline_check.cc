// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Content that lives in the tree: small files, and the targets of symbolic links.
#include <fmt/format.h>

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
        // Nobody looks at it; so it is older than what the extents hold, or it was never valid.
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
            state_.corrected_inode().inode_flags &= ~tiffinfs::inode_flag::inline_data;
            if (has_inline_) {
                state_.repairs.erase(key);
            }
        }
        return;
    }
    if (inline_bytes_ > inode.size_bytes &&
        state_.context.found(Code::inline_invalid, state_.where,
                             fmt::format("{} bytes are stored, but its size is {}", inline_bytes_,
                                         inode.size_bytes))) {
        if (inline_bytes_ > tiffinfs::kInlineDataMaximumBytes) {
            state_.repairs.erase(key);
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
    if (!state_.context.found(
            Code::symlink_invalid, state_.where,
            fmt::format("its target of {} bytes is not stored as it should be", size))) {
        return;
    }
    const Key first = make_key(state_.node, Kind::symlink, 0);
    const Key end = make_key(state_.node, Kind::orphan, 0);
    if (symlink_bytes_ != 0 && symlink_bytes_ <= vfs::kSymlinkMaxBytes && !symlink_has_nul_) {
        // What is left of it, up to the first gap.
        state_.repairs.erase_range(make_key(state_.node, Kind::symlink, symlink_chunks_), end);
        state_.corrected_inode().size_bytes = symlink_bytes_;
        return;
    }
    static constexpr std::string_view kLost = "(target lost)";
    state_.repairs.erase_range(first, end);
    state_.repairs.later([first](KeySpace& keys) -> Result<void> {
        keys.put(first,
                 ByteSpan(reinterpret_cast<const unsigned char*>(kLost.data()), kLost.size()));
        return {};
    });
    state_.corrected_inode().size_bytes = kLost.size();
}

}  // namespace tiffin::check
