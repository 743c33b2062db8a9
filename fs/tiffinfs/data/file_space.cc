// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/data/file_space.h"

#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"

namespace tiffin::tiffinfs {
namespace {

// A run of blocks that need new ones: a hole or, where written blocks are replaced, those too.
struct Gap {
    uint64_t first_block = 0;
    uint64_t block_count = 0;  // 0: there is none
};

class GapFinder final : public ExtentVisitor {
  public:
    GapFinder(uint64_t first_block, uint64_t end_block, bool replace_written)
        : next_(first_block), end_(end_block), replace_written_(replace_written) {}

    bool visit(const MappedExtent& extent) override {
        if (extent.file_block > next_) {
            extend(next_, extent.file_block);
        }
        uint64_t first = extent.file_block > next_ ? extent.file_block : next_;
        next_ = extent.end_block() < end_ ? extent.end_block() : end_;
        if (replace_written_ && !extent.unwritten() && extents_ < kStepExtents) {
            ++extents_;
            extend(first, next_);
        } else if (gap_.block_count > 0) {
            stopped_ = true;
        }
        return !stopped_;
    }

    Gap finish() {
        if (!stopped_ && next_ < end_) {
            extend(next_, end_);
        }
        return gap_;
    }

  private:
    void extend(uint64_t first, uint64_t end) {
        if (stopped_) {
            return;
        }
        if (gap_.block_count == 0) {
            gap_.first_block = first;
        }
        gap_.block_count = end - gap_.first_block;
        if (gap_.block_count >= kUnwrittenExtentMaximumBlocks) {
            gap_.block_count = kUnwrittenExtentMaximumBlocks;
            stopped_ = true;
        }
    }

    uint64_t next_;
    uint64_t end_;
    bool replace_written_;
    uint32_t extents_ = 0;
    bool stopped_ = false;
    Gap gap_;
};

enum class Fill : uint8_t { holes, holes_and_written };

// Gives the first run of blocks in [first_block, end_block) that needs it unwritten blocks. Returns
// where the next step starts.
Result<uint64_t> fill_step(const SpaceRequest& request, Object& object, uint64_t first_block,
                           uint64_t end_block, Fill fill) REQUIRES(object.claims) {
    Volume& volume = request.volume();
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    GapFinder finder(first_block, end_block, fill == Fill::holes_and_written);
    TRY(walk_extents(volume, object.node, first_block, end_block, finder));
    Gap gap = finder.finish();
    if (gap.block_count == 0) {
        return end_block;
    }
    CountedRange counted = TRY(count_extents(volume, object.node, gap.first_block,
                                             gap.first_block + gap.block_count, ~uint32_t{0}));
    SpacePriority priority = counted.usage.mapped_blocks == gap.block_count
                                 ? SpacePriority::overwriting
                                 : SpacePriority::normal;
    BlockRange range = TRY(allocate_blocks(
        volume, object.goal_block.load(std::memory_order_relaxed), gap.block_count, priority));
    AllocatedBlocks allocated(volume.allocator(), range);
    if (range.block_count < gap.block_count) {
        counted = TRY(count_extents(volume, object.node, gap.first_block,
                                    gap.first_block + range.block_count, ~uint32_t{0}));
    }
    InodeValue inode = object.inode;
    subtract_blocks(inode, counted.usage.mapped_blocks);
    inode.allocated_blocks += range.block_count;
    if (fill == Fill::holes_and_written) {
        touch_content(inode);
    }
    Transaction transaction(volume);
    TRY(transaction.begin(priority, extent_change_size(counted.usage, 1, 0, 1)));
    TRY(transaction.write_extent(object.node, gap.first_block, range.first_block,
                                 static_cast<uint32_t>(range.block_count), extent_flag::unwritten,
                                 {}));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    allocated.keep();
    object.inode = inode;
    object.goal_block.store(range.first_block + range.block_count, std::memory_order_relaxed);
    return gap.first_block + range.block_count;
}

Result<void> fill_range(const SpaceRequest& request, Object& object, uint64_t first_block,
                        uint64_t end_block, Fill fill) REQUIRES(object.claims) {
    while (first_block < end_block) {
        first_block = TRY(fill_step(request, object, first_block, end_block, fill));
    }
    return {};
}

// Fails early when the holes of the range cannot all be filled, so that a request that is far too large
// does not use up all space first.
Result<void> check_space(const SpaceRequest& request, Object& object, uint64_t first_block,
                         uint64_t end_block) REQUIRES(object.claims) {
    Volume& volume = request.volume();
    CountedRange counted;
    {
        BiasedSharedLock lock(object.state, object.node);
        counted = TRY(count_extents(volume, object.node, first_block, end_block, ~uint32_t{0}));
    }
    uint64_t needed = end_block - first_block - counted.usage.mapped_blocks;
    if (needed == 0) {
        return {};
    }
    for (uint32_t attempt = 0;; ++attempt) {
        Allocator& allocator = volume.allocator();
        uint64_t available = allocator.free_blocks() + allocator.deferred_blocks();
        const uint64_t kept = allocator.kept_blocks(SpacePriority::normal);
        if (available >= kept && needed <= available - kept) {
            return {};
        }
        if (!volume.make_room(attempt, SpacePriority::normal, RoomWait::others)) {
            return Error::enospc;
        }
    }
}

// After the map has changed: times, also where that left the content as it was, and the size unless it is
// to be kept.
Result<void> finish_request(const SpaceRequest& request, Object& object) REQUIRES(object.claims) {
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    InodeValue inode = object.inode;
    touch_content(inode);
    if (!request.keep_size && request.end_bytes() > inode.size_bytes) {
        inode.size_bytes = request.end_bytes();
    }
    return commit_inode(request.file_system, object, inode);
}

// Commits the first `stored_bytes` of the scratch as the content of a small file, with `inode`.
Result<void> commit_stored(const SpaceRequest& request, Object& object, SpacePriority priority,
                           uint64_t stored_bytes, const InodeValue& inode)
    REQUIRES(object.state, object.claims) {
    Transaction transaction(request.volume());
    TRY(transaction.begin(priority, {.scattered = 2}));
    TRY(transaction.put(make_key(object.node, Kind::inline_data, 0),
                        ByteSpan(request.scratch.inline_bytes, stored_bytes)));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    object.inode = inode;
    return {};
}

// A small file whose size stays small: [offset, end) of what is stored becomes zero. Returns false when
// the file is none, or no longer is one: it has left the inline form.
Result<bool> zero_inline(const SpaceRequest& request, Object& object, bool reserving)
    REQUIRES(object.claims) {
    Volume& volume = request.volume();
    DataScratch& scratch = request.scratch;
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    if (!is_inline(object.inode)) {
        return false;
    }
    if (reserving && request.end_bytes() > kInlineDataMaximumBytes) {
        TRY(leave_inline(request.file_system, object, scratch));
        return false;
    }
    uint32_t stored_bytes = TRY(load_inline(volume, object, scratch.inline_bytes));
    if (request.offset_bytes >= stored_bytes) {
        return true;
    }
    uint64_t end = request.end_bytes() < stored_bytes ? request.end_bytes() : stored_bytes;
    __builtin_memset(scratch.inline_bytes + request.offset_bytes, 0, end - request.offset_bytes);
    InodeValue inode = object.inode;
    touch_content(inode);
    TRY(commit_stored(request, object, SpacePriority::overwriting, stored_bytes, inode));
    return true;
}

// A small file that stays one: the range is stored, so that writing it later takes no more room, and with it size and times. `no`:
// the file is none, or the range ends behind its end, where nothing can be stored.
enum class Stored : uint8_t { no, before, now };
Result<Stored> store_inline(const SpaceRequest& request, Object& object) REQUIRES(object.claims) {
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    const uint64_t end = request.end_bytes();
    if (!is_inline(object.inode) || end > kInlineDataMaximumBytes ||
        (request.keep_size && end > object.inode.size_bytes)) {
        return Stored::no;
    }
    if (TRY(load_inline(request.volume(), object, request.scratch.inline_bytes)) >= end) {
        return Stored::before;
    }
    InodeValue inode = object.inode;
    touch_content(inode);
    inode.size_bytes = end > inode.size_bytes ? end : inode.size_bytes;
    TRY(commit_stored(request, object, SpacePriority::normal, end, inode));
    return Stored::now;
}

// The whole blocks of a range, and what lies beside them.
struct RangeShape {
    uint64_t first_whole = 0;
    uint64_t end_whole = 0;
    bool head = false;  // bytes [head_first, head_end) of block head_block
    uint64_t head_block = 0;
    uint32_t head_first = 0;
    uint32_t head_end = 0;
    bool tail = false;  // the first tail_end bytes of block end_whole
    uint32_t tail_end = 0;
};

// Behind the end of the file all bytes count as part of the range, if its end is there.
RangeShape shape_of(const SpaceRequest& request, uint64_t size_bytes) {
    RangeShape shape;
    uint64_t end = request.end_bytes();
    shape.first_whole = blocks_for(request.offset_bytes);
    shape.end_whole = end >= size_bytes ? blocks_for(end) : block_at(end);
    if (request.offset_bytes % kBlockBytes != 0) {
        shape.head = true;
        shape.head_block = block_at(request.offset_bytes);
        shape.head_first = static_cast<uint32_t>(request.offset_bytes % kBlockBytes);
        bool ends_inside = shape.end_whole <= shape.head_block;
        shape.head_end = ends_inside ? static_cast<uint32_t>(end % kBlockBytes) : kBlockBytes;
    }
    bool ends_in_head = shape.head && shape.end_whole <= shape.head_block;
    if (end < size_bytes && end % kBlockBytes != 0 && !ends_in_head) {
        shape.tail = true;
        shape.tail_end = static_cast<uint32_t>(end % kBlockBytes);
    }
    return shape;
}

// Replaces a written block by a copy with zeros in [first_byte, end_byte).
Result<void> zero_in_block(const SpaceRequest& request, Object& object, uint64_t block,
                           uint32_t first_byte, uint32_t end_byte) REQUIRES(object.claims) {
    Volume& volume = request.volume();
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    OldBlock copy =
        TRY(copy_with_zeros(volume, object, block, first_byte, end_byte, request.scratch));
    if (!copy.written) {
        return {};
    }
    AllocatedBlocks allocated(volume.allocator(), {copy.physical_block, 1});
    MapUsage usage;
    usage.extent_bytes =
        sizeof(LeafSlot) + sizeof(ExtentValue) + sizeof(uint32_t) * kWrittenExtentMaximumBlocks;
    InodeValue inode = object.inode;
    touch_content(inode);
    Transaction transaction(volume);
    TRY(transaction.begin(SpacePriority::overwriting, extent_change_size(usage, 1, 1, 1)));
    TRY(transaction.write_extent(object.node, block, copy.physical_block, 1, 0,
                                 Span<const uint32_t>(&copy.checksum, 1)));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    allocated.keep();
    object.inode = inode;
    return {};
}

Result<RangeShape> zero_edges(const SpaceRequest& request, Object& object) REQUIRES(object.claims) {
    uint64_t size_bytes = 0;
    {
        BiasedSharedLock lock(object.state, object.node);
        size_bytes = object.inode.size_bytes;
    }
    RangeShape shape = shape_of(request, size_bytes);
    if (shape.head) {
        TRY(zero_in_block(request, object, shape.head_block, shape.head_first, shape.head_end));
    }
    if (shape.tail) {
        TRY(zero_in_block(request, object, shape.end_whole, 0, shape.tail_end));
    }
    return shape;
}

// The file has blocks from here on, or will have: it leaves the inline form.
Result<void> require_blocks(const SpaceRequest& request, Object& object) REQUIRES(object.claims) {
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    return is_inline(object.inode) ? leave_inline(request.file_system, object, request.scratch)
                                   : Result<void>();
}

}  // namespace

Result<void> fill_holes(const SpaceRequest& request, Object& object, uint64_t first_block,
                        uint64_t end_block) {
    TRY(require_blocks(request, object));
    TRY(check_space(request, object, first_block, end_block));
    return fill_range(request, object, first_block, end_block, Fill::holes);
}

Result<void> allocate_range(const SpaceRequest& request, Object& object) {
    switch (TRY(store_inline(request, object))) {
        case Stored::now:
            return {};
        case Stored::before:
            break;
        case Stored::no:
            TRY(fill_holes(request, object, block_at(request.offset_bytes),
                           blocks_for(request.end_bytes())));
            break;
    }
    return finish_request(request, object);
}

Result<void> zero_range(const SpaceRequest& request, Object& object) {
    if (TRY(zero_inline(request, object, true))) {
        return allocate_range(request, object);
    }
    uint64_t first = block_at(request.offset_bytes);
    uint64_t end = blocks_for(request.end_bytes());
    TRY(check_space(request, object, first, end));
    RangeShape shape = TRY(zero_edges(request, object));
    TRY(fill_range(request, object, shape.first_whole, shape.end_whole, Fill::holes_and_written));
    TRY(fill_range(request, object, first, end, Fill::holes));
    return finish_request(request, object);
}

Result<void> punch_hole(const SpaceRequest& request, Object& object) {
    if (!TRY(zero_inline(request, object, false))) {
        RangeShape shape = TRY(zero_edges(request, object));
        uint64_t first = shape.first_whole;
        while (first < shape.end_whole) {
            BiasedExclusiveLock lock(object.state, object.node);
            TRY(check_regular(object));
            first = TRY(free_blocks_step(request.file_system, object, first, shape.end_whole,
                                         ContentTimes::touch));
        }
    }
    return finish_request(request, object);
}

}  // namespace tiffin::tiffinfs
