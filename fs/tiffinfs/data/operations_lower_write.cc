// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The lower path of writing: blocks for a host to write to, and making them a file's.
//
// Between prepare_write() and commit_write() nothing is locked and nothing is changed, so that grants may
// overlap, cross truncations or be forgotten: each has new blocks of its own. Unwritten blocks are not
// written in place here, since two grants could have the same ones.
#include <utility>

#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/data/write_piece.h"

namespace tiffin::tiffinfs {
namespace {

void cancel_segment(Volume& volume, const vfs::WriteSegment& segment) {
    volume.allocator().cancel(
        {block_at(segment.device_offset_bytes), block_at(segment.length_bytes)});
}

void cancel_grant(Volume& volume, vfs::WriteGrant& grant) {
    for (uint32_t i = 0; i < grant.segment_count; ++i) {
        cancel_segment(volume, grant.segments[i]);
    }
    grant.segment_count = 0;
    grant.active = false;
}

// Allocates for as much of `wanted_blocks` as the grant has segments for.
Result<void> fill_grant(Volume& volume, uint64_t goal_block, uint64_t wanted_blocks,
                        SpacePriority priority, vfs::WriteGrant& grant) {
    while (wanted_blocks > 0 && grant.segment_count < vfs::WriteGrant::kMaxSegments) {
        Result<BlockRange> range =
            grant.segment_count == 0
                ? allocate_blocks(volume, goal_block, wanted_blocks, priority)
                : volume.allocator().allocate(goal_block, wanted_blocks, priority);
        if (!range.ok()) {
            if (grant.segment_count > 0 && range.error() == Error::enospc) {
                break;
            }
            cancel_grant(volume, grant);
            return range.error();
        }
        grant.segments[grant.segment_count++] = {range->first_block * kBlockBytes,
                                                 range->block_count * kBlockBytes, false};
        grant.length_bytes += range->block_count * kBlockBytes;
        wanted_blocks -= range->block_count;
        goal_block = range->first_block + range->block_count;
    }
    return {};
}

// Takes the first `block_count` blocks of a grant into the second half of a plan; gives the others
// back.
void take_runs(Volume& volume, vfs::WriteGrant& grant, uint32_t block_count, WritePlan& plan) {
    static_assert(WritePlan::kMaximumRuns >= vfs::WriteGrant::kMaxSegments);
    plan.block_count = 0;
    plan.run_count = 0;
    for (uint32_t i = 0; i < grant.segment_count; ++i) {
        uint64_t first = block_at(grant.segments[i].device_offset_bytes);
        uint64_t count = block_at(grant.segments[i].length_bytes);
        uint64_t left = block_count - plan.block_count;
        uint64_t kept = count < left ? count : left;
        if (kept > 0) {
            plan.runs[plan.run_count++] = {first, static_cast<uint32_t>(kept), false};
            plan.block_count += static_cast<uint32_t>(kept);
        }
        if (kept < count) {
            volume.allocator().cancel({first + kept, count - kept});
        }
    }
    grant.segment_count = 0;
    grant.active = false;
}

// A file that is still small gets its blocks: the first is written by the grant, or by a copy before.
Result<bool> leave_inline_for(TiffinFileSystem& file_system, Object& object, uint64_t first_block,
                              DataScratch& scratch) REQUIRES(object.data, object.state) {
    if (!is_inline(object.inode)) {
        return false;
    }
    uint32_t stored_bytes = TRY(load_inline(file_system.volume(), object, scratch.inline_bytes));
    if (stored_bytes > 0 && first_block > 0) {
        TRY(leave_inline(file_system, object, scratch));
        return false;
    }
    return stored_bytes > 0;
}

// Makes the blocks in scratch.plan the file's; `end_bytes` is at least its size afterwards.
Result<uint64_t> commit_runs(TiffinFileSystem& file_system, Object& object, uint64_t end_bytes,
                             uint32_t flags, Span<const uint32_t> checksums, DataScratch& scratch)
    REQUIRES(object.data, object.state) {
    Volume& volume = file_system.volume();
    WritePlan& plan = scratch.plan;
    bool erase_inline = TRY(leave_inline_for(file_system, object, plan.first_block, scratch));
    TRY(recount_usage(volume, object, scratch.found, plan));
    SpacePriority priority = plan.usage.mapped_blocks == plan.block_count
                                 ? SpacePriority::overwriting
                                 : new_block_priority(flags);
    Transaction transaction(volume);
    TRY(transaction.begin(priority,
                          extent_change_size(plan.usage, plan.run_count, plan.block_count, 3)));
    InodeValue inode = object.inode;
    TRY(stage_write_effects(file_system, object, end_bytes, flags, inode, transaction));
    subtract_blocks(inode, plan.usage.mapped_blocks);
    inode.allocated_blocks += plan.block_count;
    inode.inode_flags &= ~inode_flag::inline_data;
    if (erase_inline) {
        TRY(transaction.erase(make_key(object.node, Kind::inline_data, 0)));
    }
    TRY(stage_runs(transaction, object.node, plan, checksums.data()));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.prepare());
    uint64_t ticket = transaction.commit();
    object.inode = inode;
    const WriteRun& last = plan.runs[plan.run_count - 1];
    object.goal_block.store(last.physical_block + last.block_count, std::memory_order_relaxed);
    return ticket;
}

// What commit_write() does under the object's locks. Blocks wholly behind the end that the file has
// then are given back: a truncation came between. Returns ticket 0 when nothing is left to map.
Result<uint64_t> commit_grant(TiffinFileSystem& file_system, Object& object, vfs::WriteGrant& grant,
                              Span<const uint32_t> checksums, uint64_t new_size_bytes,
                              uint32_t flags, DataScratch& scratch)
    REQUIRES(object.data, object.state) {
    Volume& volume = file_system.volume();
    TRY(check_regular(object));
    if ((object.inode.inode_flags & inode_flag::has_intent) != 0) {
        TRY(finish_intent(file_system, object, scratch));
    }
    uint64_t end_bytes =
        new_size_bytes > object.inode.size_bytes ? new_size_bytes : object.inode.size_bytes;
    uint64_t first_block = block_at(grant.offset_bytes);
    uint64_t end_block = blocks_for(end_bytes);
    uint64_t block_count = block_at(grant.length_bytes);
    uint64_t behind = end_block > first_block ? end_block - first_block : 0;
    block_count = behind < block_count ? behind : block_count;
    if (block_count == 0) {
        return uint64_t{0};
    }
    volume.journal().data_written();
    scratch.plan.first_block = first_block;
    take_runs(volume, grant, static_cast<uint32_t>(block_count), scratch.plan);
    Result<uint64_t> ticket =
        commit_runs(file_system, object, end_bytes, flags, checksums, scratch);
    if (!ticket.ok()) {
        cancel_runs(volume, scratch.plan);
    }
    return ticket;
}

Result<uint64_t> commit_grant_locked(TiffinFileSystem& file_system, Object& object,
                                     vfs::WriteGrant& grant, Span<const uint32_t> checksums,
                                     uint64_t new_size_bytes, uint32_t flags) {
    DataScratchLease scratch = TRY(file_system.data_scratch().take());
    MutexLock data_lock(object.data);
    BiasedExclusiveLock lock(object.state, object.node);
    return commit_grant(file_system, object, grant, checksums, new_size_bytes, flags, *scratch);
}

}  // namespace

Result<void> TiffinFileSystem::prepare_write(vfs::NodeId node, uint64_t offset_bytes,
                                             uint64_t length_bytes, uint32_t flags,
                                             vfs::WriteGrant& grant) {
    grant = {};
    TRY(volume_->check_writable());
    if (offset_bytes % kBlockBytes != 0 || length_bytes % kBlockBytes != 0 || length_bytes == 0) {
        return Error::einval;
    }
    if (offset_bytes >= kMaximumFileBytes || length_bytes > kMaximumFileBytes - offset_bytes) {
        return Error::efbig;
    }
    ObjectPin object = TRY(objects_.get(node));
    DataScratchLease scratch = TRY(data_scratch_.take());
    WritePlan& plan = scratch->plan;
    uint64_t first_block = block_at(offset_bytes);
    uint64_t block_count = block_at(length_bytes);
    block_count = block_count < kPieceBlocks ? block_count : kPieceBlocks;
    {
        BiasedSharedLock lock(object->state, node);
        TRY(check_regular(*object));
        if ((flags & vfs::write_flag::write_back) == 0 &&
            (object->inode.file_flags & vfs::file_flag::immutable) != 0) {
            return Error::eperm;
        }
        TRY(look_at_range(*volume_, *object, first_block, first_block + block_count, false,
                          scratch->found, plan));
    }
    grant.node = node;
    grant.offset_bytes = offset_bytes;
    plan.new_block_priority = new_block_priority(flags);
    Result<void> filled = volume_->with_room(plan.priority(), [&] {
        return fill_grant(*volume_, plan.goal_block, block_count, plan.priority(), grant);
    });
    if (!filled.ok() && filled.error() == Error::enospc && plan.mapped_prefix_blocks > 0) {
        // What only replaces mapped blocks may use the reserve.
        filled = fill_grant(*volume_, plan.goal_block, plan.mapped_prefix_blocks,
                            SpacePriority::overwriting, grant);
    }
    TRY(filled);
    grant.active = true;
    return {};
}

Result<void> TiffinFileSystem::commit_write(vfs::WriteGrant& grant, Span<const uint32_t> checksums,
                                            uint64_t new_size_bytes, uint32_t flags) {
    if (!grant.active) {
        return Error::einval;
    }
    Result<void> writable = volume_->check_writable();
    if (!writable.ok()) {
        cancel_grant(*volume_, grant);
        return writable;
    }
    if (checksums.size() < block_at(grant.length_bytes) || new_size_bytes > kMaximumFileBytes) {
        cancel_grant(*volume_, grant);
        return Error::einval;
    }
    Result<ObjectPin> object = objects_.get(grant.node);
    if (!object.ok()) {
        cancel_grant(*volume_, grant);
        return object.error();
    }
    Result<uint64_t> committed =
        commit_grant_locked(*this, **object, grant, checksums, new_size_bytes, flags);
    // What the transaction did not take.
    cancel_grant(*volume_, grant);
    uint64_t last_ticket = TRY(std::move(committed));
    if (last_ticket == 0) {
        return {};
    }
    TRY(finish(**object, last_ticket));
    if ((flags & vfs::write_flag::synchronous) != 0) {
        TRY(volume_->commit(last_ticket));
    }
    return {};
}

void TiffinFileSystem::abort_write(vfs::WriteGrant& grant) {
    if (grant.active) {
        cancel_grant(*volume_, grant);
    }
}

}  // namespace tiffin::tiffinfs
