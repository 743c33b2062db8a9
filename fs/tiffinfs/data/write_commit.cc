// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/data/write_grant.h"

namespace tiffin::tiffinfs {
namespace {

// Sets what every write sets in an inode that grows to at least `end_bytes`: size and, unless `keep_times`, times; and
// stages the end of privileges when the flags say so (one scattered change).
Result<void> stage_write_effects(TiffinFileSystem& file_system, Object& object, uint64_t end_bytes,
                                 uint32_t flags, InodeValue& inode, Transaction& transaction)
    REQUIRES(object.state) {
    inode.size_bytes = end_bytes > inode.size_bytes ? end_bytes : inode.size_bytes;
    if ((flags & vfs::write_flag::keep_times) == 0) {
        touch_content(inode);
    }
    if ((flags & vfs::write_flag::kill_privileges) != 0) {
        TRY(file_system.stage_kill_privileges(object, inode, transaction));
    }
    return {};
}

// A small file that stays one: its value is replaced.
Result<uint64_t> commit_content(TiffinFileSystem& file_system, const vfs::WriteGrant& grant,
                                Object& object, ByteSpan content, RoomPolicy room,
                                DataScratch& scratch) REQUIRES(object.claims) {
    Volume& volume = file_system.volume();
    const uint64_t end_bytes = grant.offset_bytes + grant.length_bytes;
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    uint64_t stored_bytes = TRY(load_inline(volume, object, scratch.inline_bytes));
    __builtin_memcpy(scratch.inline_bytes + grant.offset_bytes, content.data(), content.size());
    // Zeros behind what is stored need not be: a page cache writes a file up to its end, and may have no more room than what a
    // program has overwritten.
    uint64_t kept_bytes = end_bytes;
    while (kept_bytes > stored_bytes && scratch.inline_bytes[kept_bytes - 1] == 0) {
        --kept_bytes;
    }
    const bool overwriting = kept_bytes <= stored_bytes;
    stored_bytes = overwriting ? stored_bytes : kept_bytes;
    Transaction transaction(volume);
    TRY(transaction.begin(change_priority(grant.flags, overwriting), {.scattered = 3}, room));
    InodeValue inode = object.inode;
    TRY(stage_write_effects(file_system, object, end_bytes, grant.flags, inode, transaction));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    if (stored_bytes != 0) {
        TRY(transaction.put(make_key(object.node, Kind::inline_data, 0),
                            ByteSpan(scratch.inline_bytes, stored_bytes)));
    }
    TRY(transaction.prepare());
    const uint64_t ticket = transaction.commit();
    raise_ticket(object, ticket);
    object.inode = inode;
    return ticket;
}

// True when `plan` still says what the map holds. Only the deletion of the file can have changed that under the claim.
Result<bool> plan_still_holds(Volume& volume, const Object& object, DataScratch& scratch)
    REQUIRES_SHARED(object.state) {
    const WritePlan& plan = scratch.plan;
    uint64_t block = plan.first_block;
    for (uint32_t i = 0; i < plan.run_count; ++i) {
        const WriteRun& run = plan.runs[i];
        if (run.in_place) {
            WritePlan& current = scratch.second_plan;
            TRY(look_at_range(volume, object, block, block + run.block_count, current));
            if (current.wanted_count != 1 || !(current.wanted[0] == run)) {
                return false;
            }
        }
        block += run.block_count;
    }
    return true;
}

// What the transaction replaces was counted when room was granted. Changes of other parts of the file may have cut or
// joined extents that reach into this one.
Result<void> count_again(Volume& volume, Object& object, const WriteState& state,
                         DataScratch& scratch) REQUIRES(object.state) {
    if (object.last_ticket.load(std::memory_order_relaxed) == state.seen_ticket) [[likely]] {
        return {};
    }
    if (object.inode.link_count == 0 && !TRY(plan_still_holds(volume, object, scratch))) {
        return Error::estale;
    }
    return recount_usage(volume, object, scratch.plan);
}

// Makes the blocks of scratch.plan the file's.
Result<uint64_t> commit_plan(TiffinFileSystem& file_system, vfs::WriteGrant& grant, Object& object,
                             const uint32_t* checksums, DataScratch& scratch)
    REQUIRES(object.claims) {
    Volume& volume = file_system.volume();
    const WriteState& state = WriteState::of(grant);
    WritePlan& plan = scratch.plan;
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    TRY(count_again(volume, object, state, scratch));
    const bool was_inline = is_inline(object.inode);
    const bool erases_content =
        was_inline && TRY(load_inline(volume, object, scratch.inline_bytes)) > 0;
    Transaction transaction(volume);
    // Inode, inline value and privileges.
    TRY(transaction.begin(change_priority(grant.flags, plan.all_mapped),
                          extent_change_size(plan.usage, plan.run_count, plan.block_count, 3),
                          state.room));
    InodeValue inode = object.inode;
    TRY(stage_write_effects(file_system, object, grant.offset_bytes + grant.length_bytes,
                            grant.flags, inode, transaction));
    subtract_blocks(inode, plan.usage.mapped_blocks);
    inode.allocated_blocks += plan.block_count;
    inode.inode_flags &= ~inode_flag::inline_data;
    if (erases_content) {
        TRY(transaction.erase(make_key(object.node, Kind::inline_data, 0)));
    }
    TRY(stage_runs(transaction, object.node, plan, checksums));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.prepare());
    const uint64_t ticket = transaction.commit();
    raise_ticket(object, ticket);
    object.inode = inode;
    return ticket;
}

// The part of the grant as a plan.
void load_plan(vfs::WriteGrant& grant, WritePlan& plan) {
    const WriteState& state = WriteState::of(grant);
    plan.first_block = block_at(grant.offset_bytes);
    plan.new_block_priority = new_block_priority(grant.flags);
    plan.all_mapped = state.all_mapped;
    plan.usage = state.usage;
    plan.block_count = 0;
    plan.run_count = grant.segment_count;
    for (uint32_t i = 0; i < grant.segment_count; ++i) {
        const auto count = static_cast<uint32_t>(block_at(grant.segments[i].length_bytes));
        plan.runs[i] = {block_at(grant.segments[i].device_offset_bytes), count,
                        (state.in_place >> i & 1U) != 0};
        plan.block_count += count;
    }
}

// Gives back all blocks of the grant but the first `block_count`, which are mapped.
void cut_part(Volume& volume, vfs::WriteGrant& grant, uint32_t block_count) {
    WriteState& state = WriteState::of(grant);
    uint64_t kept_bytes = 0;
    const uint64_t wanted_bytes = uint64_t{block_count} * kBlockBytes;
    uint32_t segment_count = 0;
    for (uint32_t i = 0; i < grant.segment_count; ++i) {
        vfs::WriteSegment& segment = grant.segments[i];
        const uint64_t left = wanted_bytes - kept_bytes;
        const uint64_t kept = segment.length_bytes < left ? segment.length_bytes : left;
        if (kept < segment.length_bytes && (state.in_place >> i & 1U) == 0) {
            volume.allocator().cancel({block_at(segment.device_offset_bytes + kept),
                                       block_at(segment.length_bytes - kept)});
        }
        segment.length_bytes = kept;
        kept_bytes += kept;
        segment_count += kept > 0 ? 1 : 0;
    }
    grant.segment_count = segment_count;
    const uint64_t end = (block_at(grant.offset_bytes) + block_count) * kBlockBytes;
    if (end < grant.offset_bytes + grant.length_bytes) {
        grant.length_bytes = end - grant.offset_bytes;
    }
    state.all_mapped = true;
    state.seen_ticket = WriteState::kNotCounted;
}

}  // namespace

Result<uint64_t> commit_part(TiffinFileSystem& file_system, vfs::WriteGrant& grant,
                             Span<const uint32_t> checksums, ByteSpan content,
                             DataScratch& scratch) {
    Volume& volume = file_system.volume();
    WriteState& state = WriteState::of(grant);
    Object& object = *state.object;
    WritePlan& plan = scratch.plan;
    object.claims.assert_held();
    while (true) {
        load_plan(grant, plan);
        if (grant.takes_content ? content.size() != grant.length_bytes
                                : checksums.size() < plan.block_count) {
            return Error::einval;
        }
        Result<uint64_t> ticket =
            grant.takes_content
                ? commit_content(file_system, grant, object, content, state.room, scratch)
                : commit_plan(file_system, grant, object, checksums.data(), scratch);
        if (ticket.ok()) {
            state.ticket = ticket.value();
            grant.segment_count = 0;  // these blocks are the file's
            return grant.length_bytes;
        }
        if (ticket.error() != Error::enospc) {
            return ticket;
        }
        if (state.try_again(volume, grant.flags)) {
            continue;
        }
        // On a full volume the new blocks may have used up what the transaction needs for its nodes. What replaces mapped
        // blocks may use the reserve, and less of it leaves more for nodes, also where it was promised.
        const uint32_t fewer_blocks =
            state.all_mapped ? plan.block_count / 4 : state.mapped_prefix_blocks;
        if (fewer_blocks == 0) {
            return Error::enospc;
        }
        cut_part(volume, grant, fewer_blocks);
    }
}

}  // namespace tiffin::tiffinfs
