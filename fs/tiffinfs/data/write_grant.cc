// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/data/write_grant.h"

#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"

namespace tiffin::tiffinfs {
namespace {

// What is granted at most, in one extent, behind the first block's beginning.
uint64_t longest_part(const vfs::WriteGrant& grant, uint64_t offset_bytes) {
    const uint64_t block_room =
        uint64_t{kWrittenExtentMaximumBlocks} * kBlockBytes - offset_bytes % kBlockBytes;
    const uint64_t file_room = kMaximumFileBytes - offset_bytes;
    const uint64_t room = block_room < file_room ? block_room : file_room;
    return grant.end_bytes - offset_bytes < room ? grant.end_bytes - offset_bytes : room;
}

// The content of a small file is moved to a block before something behind that block is written; a part that touches the
// block replaces it.
Result<bool> has_to_leave_inline(Volume& volume, const Object& object, const vfs::WriteGrant& grant,
                                 DataScratch& scratch) REQUIRES_SHARED(object.state) {
    return is_inline(object.inode) && grant.offset_bytes >= kBlockBytes &&
           TRY(load_inline(volume, object, scratch.inline_bytes)) > 0;
}

enum class Looked : uint8_t { takes_content, has_to_leave_inline, at_map };

Result<Looked> look_at_part(Volume& volume, Object& object, vfs::WriteGrant& grant,
                            DataScratch& scratch) REQUIRES(object.claims) {
    WriteState& state = WriteState::of(grant);
    const uint64_t end_bytes = grant.offset_bytes + grant.length_bytes;
    BiasedSharedLock lock(object.state, object.node);
    TRY(check_regular(object));
    if (is_inline(object.inode) && end_bytes <= kInlineDataMaximumBytes) {
        return Looked::takes_content;
    }
    if (TRY(has_to_leave_inline(volume, object, grant, scratch))) [[unlikely]] {
        return Looked::has_to_leave_inline;
    }
    WritePlan& plan = scratch.plan;
    plan.new_block_priority = new_block_priority(grant.flags);
    plan.claimed_blocks = state.claims(grant.flags);
    TRY(look_at_range(volume, object, block_at(grant.offset_bytes), blocks_for(end_bytes), plan));
    state.seen_ticket = object.last_ticket.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < plan.wanted_count; ++i) {
        if (plan.wanted[i].in_place && !state.is_in_epoch) {
            state.enter_epoch(volume);
        }
    }
    return Looked::at_map;
}

// Cuts the part to its first `block_count` blocks, at least one.
void cut_to_blocks(vfs::WriteGrant& grant, uint64_t block_count) {
    const uint64_t end = (block_at(grant.offset_bytes) + block_count) * kBlockBytes;
    if (end < grant.offset_bytes + grant.length_bytes) {
        grant.length_bytes = end - grant.offset_bytes;
    }
}

void keep_plan(const WritePlan& plan, vfs::WriteGrant& grant) {
    WriteState& state = WriteState::of(grant);
    state.all_mapped = plan.all_mapped;
    state.mapped_prefix_blocks = plan.mapped_prefix_blocks;
    state.usage = plan.usage;
    state.in_place = 0;
    for (uint32_t i = 0; i < plan.run_count; ++i) {
        const WriteRun& run = plan.runs[i];
        grant.segments[i] = {run.physical_block * kBlockBytes,
                             uint64_t{run.block_count} * kBlockBytes};
        state.in_place |= run.in_place ? static_cast<uint16_t>(1U << i) : uint16_t{0};
    }
    grant.segment_count = plan.run_count;
    cut_to_blocks(grant, plan.block_count);
    if (plan.block_count < plan.wanted_blocks) {
        // What was counted is that of more blocks.
        state.seen_ticket = WriteState::kNotCounted;
    }
}

Result<void> allocate_part(Volume& volume, Object& object, vfs::WriteGrant& grant,
                           DataScratch& scratch) REQUIRES(object.claims) {
    WritePlan& plan = scratch.plan;
    Result<void> allocated = allocate_runs(volume, plan);
    if (!allocated.ok()) {
        WriteState::of(grant).leave_epoch(volume);
        return allocated;
    }
    const WriteRun& last = plan.runs[plan.run_count - 1];
    object.goal_block.store(last.physical_block + last.block_count, std::memory_order_relaxed);
    keep_plan(plan, grant);
    return {};
}

}  // namespace

Result<void> grant_part(TiffinFileSystem& file_system, vfs::WriteGrant& grant,
                        uint64_t offset_bytes, DataScratch& scratch) {
    Volume& volume = file_system.volume();
    WriteState& state = WriteState::of(grant);
    Object& object = *state.object;
    object.claims.assert_held();
    grant.offset_bytes = offset_bytes;
    grant.length_bytes = longest_part(grant, offset_bytes);
    grant.takes_content = false;
    grant.segment_count = 0;
    state.all_mapped = false;
    state.mapped_prefix_blocks = 0;
    Looked looked = TRY(look_at_part(volume, object, grant, scratch));
    if (looked == Looked::has_to_leave_inline) [[unlikely]] {
        {
            BiasedExclusiveLock lock(object.state, object.node);
            TRY(check_regular(object));
            TRY(leave_inline(file_system, object, scratch, change_priority(grant.flags, false)));
        }
        looked = TRY(look_at_part(volume, object, grant, scratch));
    }
    if (looked == Looked::takes_content) {
        grant.takes_content = true;
        grant.granted = true;
        return {};
    }
    Result<void> allocated = allocate_part(volume, object, grant, scratch);
    if (!allocated.ok() && allocated.error() == Error::enospc &&
        state.room == RoomPolicy::as_it_is && !scratch.plan.all_mapped &&
        scratch.plan.mapped_prefix_blocks > 0) {
        cut_to_blocks(grant, scratch.plan.mapped_prefix_blocks);
        TRY(look_at_part(volume, object, grant, scratch));
        allocated = allocate_part(volume, object, grant, scratch);
    }
    TRY(allocated);
    volume.part_granted();
    grant.granted = true;
    return {};
}

void give_back_part(Volume& volume, vfs::WriteGrant& grant) {
    WriteState& state = WriteState::of(grant);
    state.leave_epoch(volume);
    for (uint32_t i = 0; i < grant.segment_count; ++i) {
        if ((state.in_place >> i & 1U) == 0) {
            volume.allocator().cancel({block_at(grant.segments[i].device_offset_bytes),
                                       block_at(grant.segments[i].length_bytes)},
                                      state.claims(grant.flags));
        }
    }
    if (grant.granted && !grant.takes_content) {
        volume.part_ended();
    }
    grant.segment_count = 0;
    grant.granted = false;
}

}  // namespace tiffin::tiffinfs
