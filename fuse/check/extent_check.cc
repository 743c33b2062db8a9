// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The map of a file: extents that can be, do not overlap, and belong to a part of the file.
#include <fmt/format.h>

#include <algorithm>

#include "fs/tiffinfs/volume/extents.h"
#include "fuse/check/extent_edit.h"
#include "fuse/check/lost_content.h"
#include "fuse/check/object_parts.h"
#include "fuse/check/shared_blocks.h"
#include "fuse/check/text.h"

namespace tiffin::check {

using tiffinfs::InodeValue;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;
using tiffinfs::MappedExtent;

void ExtentCheck::begin() {
    end_block_ = 0;
    allocated_blocks_ = 0;
    marked_blocks_ = 0;
    lost_.clear();
    is_changed_ = false;
    any_ = false;
}

void ExtentCheck::visit(Key key, ByteSpan value) {
    MappedExtent extent;
    const tiffinfs::Layout& layout = state_.context.layout;
    if (!tiffinfs::parse_extent(key, value, layout.total_blocks, extent) ||
        (!extent.lost() &&
         layout.touches_fixed_blocks(extent.physical_block, extent.block_count))) {
        if (state_.context.found(Code::extent_invalid,
                                 fmt::format("{}, extent at block {}", state_.where, key.offset()),
                                 "its size or place on the device is impossible")) {
            state_.repairs.erase(key);
            state_.missing.add(key, tiffinfs::next_key(key));
            is_changed_ = true;
        }
        return;
    }
    any_ = true;
    ++state_.objects.statistics.extents;
    if (!check_overlap(extent)) {
        return;
    }
    look_at_gap(end_block_, extent.file_block);
    (extent.lost() ? marked_blocks_ : allocated_blocks_) += extent.block_count;
    end_block_ = extent.end_block();
    check_end(extent);
    mark_blocks(extent);
}

void ExtentCheck::mark_blocks(const MappedExtent& extent) {
    if (extent.lost()) {
        state_.objects.has_lost_extents = true;
        return;
    }
    const tiffinfs::BlockRange range{extent.physical_block, extent.block_count};
    Objects& objects = state_.objects;
    objects.data_blocks.mark(range, &objects.conflicts);
    state_.nodes.find_marked(range, objects.conflicts);
    // Any number of extents may add the same ranges.
    constexpr size_t kUnjoinedRanges = 1U << 16;
    if (objects.conflicts.size() > objects.conflicts_limit + kUnjoinedRanges) {
        sort_and_join(objects.conflicts);
        objects.conflicts_limit = 2 * objects.conflicts.size();
    }
}

// False when there is nothing left of the extent to look at.
bool ExtentCheck::check_overlap(const MappedExtent& extent) {
    if (extent.file_block >= end_block_) {
        return true;
    }
    if (state_.context.found(Code::extent_overlap,
                             fmt::format("{}, extent at block {}", state_.where, extent.file_block),
                             fmt::format("the extent before it reaches to block {}", end_block_))) {
        is_changed_ = true;
        state_.repairs.erase(make_key(state_.node, Kind::extent, extent.file_block));
        if (end_block_ < extent.end_block()) {
            // Unless another begins right there, or before it ends, which the next pass looks at.
            state_.repairs.later([rest = make_key(state_.node, Kind::extent, end_block_),
                                  value = slice_extent(extent, end_block_, extent.end_block())](
                                     KeySpace& keys) -> Result<void> {
                KeyValue found;
                if (!TRY(keys.get(rest, found))) {
                    keys.put(rest, ByteSpan(value.data(), value.size()));
                }
                return {};
            });
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
        const uint64_t cut_blocks =
            extent.lost() ? 0 : extent.end_block() - std::max(extent.file_block, blocks);
        uint64_t& count = state_.corrected_inode().allocated_blocks;
        count -= std::min(count, cut_blocks);
        is_changed_ = true;
        if (extent.file_block < blocks) {
            state_.repairs.put(key, slice_extent(extent, extent.file_block, blocks));
        } else {
            state_.repairs.erase(key);
        }
    }
}

// Blocks [first_block, end_block) have no extent. Where keys are missing, this may be no hole.
void ExtentCheck::look_at_gap(uint64_t first_block, uint64_t end_block) {
    if (first_block >= end_block) {
        return;
    }
    const Key gap_end = make_key(state_.node, Kind::extent, end_block);
    state_.missing.visit(
        make_key(state_.node, Kind::extent, first_block), gap_end, [&](Key first, Key end) {
            // An extent whose key is missing may reach beyond the range of keys.
            const uint64_t reach =
                end == gap_end
                    ? end_block
                    : std::min(end_block, end.offset() + tiffinfs::kUnwrittenExtentMaximumBlocks);
            if (!lost_.empty() && first.offset() <= lost_.back().end) {
                lost_.back().end = std::max(lost_.back().end, reach);
            } else {
                lost_.push_back({first.offset(), reach});
            }
        });
}

void ExtentCheck::end() {
    const uint64_t size = state_.inode.size_bytes;
    if (state_.is_regular() && size > tiffinfs::kMaximumFileBytes &&
        state_.context.found(Code::inode_invalid, fmt::format("{}, size", state_.where),
                             fmt::format("{} bytes are too many", size))) {
        state_.corrected_inode().size_bytes = end_block_ * tiffinfs::kBlockBytes;
        is_changed_ = true;
    }
    if (marked_blocks_ != 0) {
        state_.objects.marked_content.push_back({state_.node, marked_blocks_});
    }
    if (!is_changed_) {
        check_count();
    }
}

void ExtentCheck::check_count() {
    const uint64_t counted = state_.inode.allocated_blocks;
    if (state_.is_regular() && !state_.is_being_deleted() &&
        (counted > allocated_blocks_ || state_.missing.has_content_of(state_.node))) {
        const uint64_t size = std::min(state_.inode.size_bytes, tiffinfs::kMaximumFileBytes);
        look_at_gap(end_block_, (size + tiffinfs::kBlockBytes - 1) / tiffinfs::kBlockBytes);
        if (counted > allocated_blocks_ || !lost_.empty()) {
            state_.objects.lost_content.push_back(
                {state_.node, state_.inode, allocated_blocks_, lost_});
        }
        return;
    }
    if (counted != allocated_blocks_ &&
        state_.context.found(
            Code::allocated_blocks, state_.where,
            fmt::format("it counts {} blocks and has {}", counted, allocated_blocks_))) {
        state_.corrected_inode().allocated_blocks = allocated_blocks_;
    }
}

void ExtentCheck::end_without_inode(InodeValue& inode) {
    lost_.push_back({end_block_, end_block_ + 1});
    inode.size_bytes = (end_block_ + 1) * tiffinfs::kBlockBytes;
    inode.allocated_blocks = allocated_blocks_;
    mark_lost(state_.repairs, state_.node, lost_);
}

}  // namespace tiffin::check
