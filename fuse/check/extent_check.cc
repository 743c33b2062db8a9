// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The map of a file: extents that can be, do not overlap, and belong to a part of the file.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

namespace {

// Content stays rather than the mark of a loss, and that rather than reserved space.
int weight_of(const MappedExtent& extent) {
    if (extent.has_checksums()) {
        return 2;
    }
    return extent.lost() ? 1 : 0;
}

}  // namespace

void ExtentCheck::begin() {
    end_block_ = 0;
    reach_ = 0;
    written_end_ = 0;
    last_ = {};
    last_gave_way_ = false;
    gave_way_.clear();
    marks_behind_end_.clear();
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
    const uint64_t seen_end = std::exchange(reach_, std::max(reach_, extent.end_block()));
    if (!check_overlap(extent, value)) {
        return;
    }
    look_at_gap(seen_end, extent.file_block);
    (extent.lost() ? marked_blocks_ : allocated_blocks_) += extent.block_count;
    end_block_ = extent.end_block();
    last_ = extent;
    last_.checksums = nullptr;  // they go with their leaf
    last_value_.assign(value.data(), value.data() + value.size());
    last_gave_way_ = false;
    note_end(extent);
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
bool ExtentCheck::check_overlap(const MappedExtent& extent, ByteSpan value) {
    if (extent.file_block >= end_block_) {
        return true;
    }
    if (!state_.context.found(
            Code::extent_overlap,
            fmt::format("{}, extent at block {}", state_.where, extent.file_block),
            fmt::format("the extent before it reaches to block {}", end_block_))) {
        mark_blocks(extent);  // it stays, so its blocks are not free
        return false;
    }
    is_changed_ = true;
    state_.objects.has_overlap_repairs = true;
    const auto last_gives_way = [&] {
        if (!std::exchange(last_gave_way_, true)) {
            give_way(last_, ByteSpan(last_value_.data(), last_value_.size()));
        }
    };
    if (weight_of(last_) < weight_of(extent)) {
        last_gives_way();
        return true;
    }
    give_way(extent, value);
    if (extent.has_checksums()) {  // of two with content, the newer one's stays
        last_gives_way();
        note_end(extent);
        if (extent.end_block() > end_block_) {
            end_block_ = extent.end_block();
            last_ = extent;
            last_.checksums = nullptr;
        }
    }
    return false;
}

void ExtentCheck::give_way(const MappedExtent& extent, ByteSpan value) {
    const Key key = make_key(state_.node, Kind::extent, extent.file_block);
    state_.repairs.erase(key);
    gave_way_.push_back({state_.objects.strays.count(key) != 0,
                         extent,
                         {value.data(), value.data() + value.size()}});
    gave_way_.back().extent.checksums = nullptr;  // they go with their leaf
}

// Content as it was written, the oldest first: what no search found, then by generation; of one generation, what begins first
// stays. Then the marks of losses, and then
// reserved space, where nothing else is. Of one of these kinds each begins where those before it end, so that no key is looked
// at twice.
void ExtentCheck::place_what_gave_way() {
    if (gave_way_.empty()) {
        return;
    }
    std::sort(gave_way_.begin(), gave_way_.end(), [](const GaveWay& a, const GaveWay& b) {
        return a.extent.file_block < b.extent.file_block;
    });
    std::vector<GaveWay> written;
    for (auto one = gave_way_.rbegin(); one != gave_way_.rend(); ++one) {
        if (one->extent.has_checksums()) {
            written.push_back(std::move(*one));
        }
    }
    std::stable_sort(written.begin(), written.end(), [](const GaveWay& a, const GaveWay& b) {
        return a.is_stray != b.is_stray ? a.is_stray
                                        : a.extent.birth_generation < b.extent.birth_generation;
    });
    state_.repairs.later([node = state_.node, total_blocks = state_.context.layout.total_blocks,
                          written = std::move(written),
                          others = std::exchange(gave_way_, {})](KeySpace& keys) -> Result<void> {
        for (const GaveWay& one : written) {
            TRY(map_extent(keys, total_blocks, make_key(node, Kind::extent, one.extent.file_block),
                           ByteSpan(one.value.data(), one.value.size())));
        }
        for (const bool is_lost : {true, false}) {
            uint64_t placed_end = 0;
            for (const auto& [is_stray, extent, value] : others) {
                if (!extent.has_checksums() && extent.lost() == is_lost &&
                    placed_end < extent.end_block()) {
                    TRY(fill_gaps(keys, total_blocks, node, extent,
                                  std::max(placed_end, extent.file_block)));
                    placed_end = extent.end_block();
                }
            }
        }
        return {};
    });
}

// Blocks behind the end are legal when they are reserved (fallocate), or wait to be freed or moved. Content there means
// that the size is wrong; so what else is there is judged when all of it has been seen.
void ExtentCheck::note_end(const MappedExtent& extent) {
    if (extent.has_checksums()) {
        written_end_ = std::max(written_end_, extent.end_block());
    } else if (extent.lost() && extent.end_block() > blocks_of_size()) {
        marks_behind_end_.push_back(extent);
    }
}

uint64_t ExtentCheck::blocks_of_size() const {
    const uint64_t size = state_.inode.size_bytes;
    return size / tiffinfs::kBlockBytes + (size % tiffinfs::kBlockBytes != 0 ? 1 : 0);
}

void ExtentCheck::check_behind_end() {
    if (!state_.is_regular() || state_.inode.size_bytes > tiffinfs::kMaximumFileBytes ||
        state_.objects.intents.count(state_.node) != 0) {
        return;
    }
    uint64_t end = blocks_of_size();
    if (written_end_ > end) {
        // A size and the map change in one transaction, but for large changes, whose intent says so. Where it is lost, nothing
        // tells whether the rest was to be cut off or to be moved.
        const bool intent_is_lost =
            (state_.inode.inode_flags & tiffinfs::inode_flag::has_intent) != 0;
        if (!state_.context.found(
                intent_is_lost ? Code::intent_invalid : Code::extent_beyond_end, state_.where,
                fmt::format("its content reaches to block {}, its size to block {}{}", written_end_,
                            end,
                            intent_is_lost ? "; what was to become of the rest is lost, so it stays"
                                           : ""))) {
            return;
        }
        end = written_end_;
        state_.corrected_inode().size_bytes = end * tiffinfs::kBlockBytes;
        is_changed_ = true;
    }
    for (const MappedExtent& mark : marks_behind_end_) {
        if (mark.end_block() > end) {
            cut_mark(mark, end);
        }
    }
}

void ExtentCheck::cut_mark(const MappedExtent& extent, uint64_t end_block) {
    if (!state_.context.found(
            Code::extent_beyond_end,
            fmt::format("{}, extent at block {}", state_.where, extent.file_block),
            fmt::format("it reaches to block {}, the file only to block {}", extent.end_block(),
                        end_block))) {
        return;
    }
    const Key key = make_key(state_.node, Kind::extent, extent.file_block);
    is_changed_ = true;
    if (extent.file_block < end_block) {
        state_.repairs.put(key, slice_extent(extent, extent.file_block, end_block));
    } else {
        state_.repairs.erase(key);
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
    check_behind_end();
    // With overlaps the next pass knows how many.
    if (marked_blocks_ != 0 && !is_changed_) {
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
    lost_.push_back({reach_, reach_ + 1});
    inode.size_bytes = (reach_ + 1) * tiffinfs::kBlockBytes;
    // What gives way is counted twice here: the next pass finds more than is counted, which is no loss.
    inode.allocated_blocks = is_changed_ ? 0 : allocated_blocks_;
    mark_lost(state_.repairs, state_.node, lost_);
}

}  // namespace tiffin::check
