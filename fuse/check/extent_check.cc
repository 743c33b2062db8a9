// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The map of a file: extents that can be, do not overlap, and belong to a part of the file.
#include <fmt/format.h>

#include "fs/tiffinfs/volume/extents.h"
#include "fuse/check/extent_edit.h"
#include "fuse/check/object_parts.h"
#include "fuse/check/text.h"

namespace tiffin::check {

using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;
using tiffinfs::MappedExtent;

void ExtentCheck::begin() {
    end_block_ = 0;
    allocated_blocks_ = 0;
    any_ = false;
}

void ExtentCheck::visit(Key key, ByteSpan value) {
    MappedExtent extent;
    const tiffinfs::Layout& layout = state_.context.layout;
    if (!tiffinfs::parse_extent(key, value, layout.total_blocks, extent) ||
        layout.touches_fixed_blocks(extent.physical_block, extent.block_count)) {
        if (state_.context.found(Code::extent_invalid,
                                 fmt::format("{}, extent at block {}", state_.where, key.offset()),
                                 "its size or place on the device is impossible")) {
            state_.repairs.erase(key);
        }
        return;
    }
    any_ = true;
    ++state_.objects.statistics.extents;
    if (!check_overlap(extent)) {
        return;
    }
    allocated_blocks_ += extent.block_count;
    end_block_ = extent.end_block();
    check_end(extent);
    mark_blocks(extent);
}

void ExtentCheck::mark_blocks(const MappedExtent& extent) {
    const tiffinfs::BlockRange range{extent.physical_block, extent.block_count};
    state_.objects.data_blocks.mark(range, &state_.objects.conflicts);
    state_.nodes.find_marked(range, state_.objects.conflicts);
}

// False when there is nothing left of the extent to look at.
bool ExtentCheck::check_overlap(const MappedExtent& extent) {
    if (extent.file_block >= end_block_) {
        return true;
    }
    if (state_.context.found(Code::extent_overlap,
                             fmt::format("{}, extent at block {}", state_.where, extent.file_block),
                             fmt::format("the extent before it reaches to block {}", end_block_))) {
        state_.repairs.erase(make_key(state_.node, Kind::extent, extent.file_block));
        if (end_block_ < extent.end_block()) {
            state_.repairs.put(make_key(state_.node, Kind::extent, end_block_),
                               slice_extent(extent, end_block_, extent.end_block()));
        }
    } else {
        mark_blocks(extent);  // it stays, so its blocks are not free
    }
    return false;
}

// Blocks behind the end are legal when they are reserved (fallocate), or wait to be freed or moved.
void ExtentCheck::check_end(const MappedExtent& extent) {
    const uint64_t blocks =
        (state_.inode.size_bytes + tiffinfs::kBlockBytes - 1) / tiffinfs::kBlockBytes;
    if (!state_.is_regular() || extent.unwritten() || extent.end_block() <= blocks ||
        state_.objects.intents.count(state_.node) != 0) {
        return;
    }
    if (state_.context.found(Code::extent_beyond_end,
                             fmt::format("{}, extent at block {}", state_.where, extent.file_block),
                             fmt::format("it reaches to block {}, the file only to block {}",
                                         extent.end_block(), blocks))) {
        const Key key = make_key(state_.node, Kind::extent, extent.file_block);
        if (extent.file_block < blocks) {
            state_.repairs.put(key, slice_extent(extent, extent.file_block, blocks));
        } else {
            state_.repairs.erase(key);
        }
    }
}

void ExtentCheck::end() {
    const uint64_t size = state_.inode.size_bytes;
    if (state_.is_regular() && size > tiffinfs::kMaximumFileBytes &&
        state_.context.found(Code::inode_invalid, fmt::format("{}, size", state_.where),
                             fmt::format("{} bytes are too many", size))) {
        state_.corrected_inode().size_bytes = end_block_ * tiffinfs::kBlockBytes;
    }
    if (state_.has_inode && state_.inode.allocated_blocks != allocated_blocks_ &&
        state_.context.found(Code::allocated_blocks, state_.where,
                             fmt::format("it counts {} blocks and has {}",
                                         state_.inode.allocated_blocks, allocated_blocks_))) {
        state_.corrected_inode().allocated_blocks = allocated_blocks_;
    }
}

}  // namespace tiffin::check
