// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/data/write_piece.h"

#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"

namespace tiffin::tiffinfs {
namespace {

// A small file that stays one: its value is replaced.
Result<WrittenPiece> write_inline(TiffinFileSystem& file_system, Object& object,
                                  const WritePiece& piece, BufferCursor& cursor, RoomPolicy room,
                                  DataScratch& scratch) REQUIRES(object.data) {
    Volume& volume = file_system.volume();
    WrittenPiece written{piece.length_bytes, 0};
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    uint64_t stored_bytes = TRY(load_inline(volume, object, scratch.inline_bytes));
    BufferCursor source = cursor;
    source.copy_to(scratch.inline_bytes + piece.position_bytes,
                   static_cast<size_t>(piece.length_bytes));
    bool overwriting = piece.end_bytes() <= stored_bytes;
    stored_bytes = overwriting ? stored_bytes : piece.end_bytes();
    Transaction transaction(volume);
    TRY(transaction.begin(
        overwriting ? SpacePriority::overwriting : new_block_priority(piece.flags),
        {.scattered = 3}, room));
    InodeValue inode = object.inode;
    TRY(stage_write_effects(file_system, object, piece.end_bytes(), piece.flags, inode,
                            transaction));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.put(make_key(object.node, Kind::inline_data, 0),
                        ByteSpan(scratch.inline_bytes, stored_bytes)));
    TRY(transaction.prepare());
    written.ticket = transaction.commit();
    object.inode = inode;
    cursor = source;
    return written;
}

// Cuts the piece to its first `block_count` blocks, at least one.
void cut_to_blocks(WritePiece& piece, uint64_t block_count) {
    block_count = block_count > 0 ? block_count : 1;
    uint64_t end = (block_at(piece.position_bytes) + block_count) * kBlockBytes;
    if (end < piece.end_bytes()) {
        piece.length_bytes = end - piece.position_bytes;
    }
}

// Looks, allocates and writes to the device, all inside one read epoch: so that neither the old blocks
// at the edges nor unwritten ones are used again meanwhile, even if the file is being deleted. On
// success scratch.plan holds allocated blocks that nothing refers to yet.
Result<void> place_and_write(Volume& volume, Object& object, WritePiece& piece,
                             const BufferCursor& cursor, DataScratch& scratch)
    REQUIRES(object.data) {
    WritePlan& plan = scratch.plan;
    plan.new_block_priority = new_block_priority(piece.flags);
    ReadEpoch epoch(volume);
    {
        BiasedSharedLock lock(object.state, object.node);
        TRY(check_regular(object));
        TRY(look_at_range(volume, object, block_at(piece.position_bytes),
                          blocks_for(piece.end_bytes()), true, scratch.found, plan));
    }
    TRY(allocate_runs(volume, plan));
    cut_to_blocks(piece, plan.block_count);
    Result<void> result = write_planned_blocks(volume, object.node, piece, cursor, scratch);
    if (!result.ok()) {
        cancel_runs(volume, plan);
    }
    return result;
}

// When there is no room for new blocks, and none can be made, the part of the piece that only replaces
// mapped ones is still written.
Result<void> place_and_write_some(Volume& volume, Object& object, WritePiece& piece,
                                  const BufferCursor& cursor, RoomPolicy room, DataScratch& scratch)
    REQUIRES(object.data) {
    const WritePlan& plan = scratch.plan;
    Result<void> result = place_and_write(volume, object, piece, cursor, scratch);
    if (result.ok() || result.error() != Error::enospc || room == RoomPolicy::make ||
        plan.all_mapped || plan.mapped_prefix_blocks == 0) {
        return result;
    }
    cut_to_blocks(piece, plan.mapped_prefix_blocks);
    return place_and_write(volume, object, piece, cursor, scratch);
}

// True when `plan` still says what the map holds. Only the deletion of the file can have changed that
// while its writers were kept out.
Result<bool> plan_still_holds(Volume& volume, const Object& object, DataScratch& scratch)
    REQUIRES_SHARED(object.state) {
    const WritePlan& plan = scratch.plan;
    uint64_t block = plan.first_block;
    for (uint32_t i = 0; i < plan.run_count; ++i) {
        const WriteRun& run = plan.runs[i];
        if (run.in_place) {
            WritePlan& current = scratch.second_plan;
            TRY(look_at_range(volume, object, block, block + run.block_count, true, scratch.found,
                              current));
            if (current.wanted_count != 1 || !(current.wanted[0] == run)) {
                return false;
            }
        }
        block += run.block_count;
    }
    return true;
}

// Makes the written blocks the file's.
Result<uint64_t> commit_piece(TiffinFileSystem& file_system, Object& object,
                              const WritePiece& piece, RoomPolicy room, DataScratch& scratch)
    REQUIRES(object.data) {
    Volume& volume = file_system.volume();
    WritePlan& plan = scratch.plan;
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    bool deleting = object.inode.link_count == 0;
    if (deleting && !TRY(plan_still_holds(volume, object, scratch))) {
        return Error::estale;
    }
    if (deleting || plan.block_count != plan.wanted_blocks) {
        TRY(recount_usage(volume, object, scratch.found, plan));
    }
    Transaction transaction(volume);
    // Inode, inline value and privileges.
    TRY(transaction.begin(plan.priority(),
                          extent_change_size(plan.usage, plan.run_count, plan.block_count, 3),
                          room));
    InodeValue inode = object.inode;
    TRY(stage_write_effects(file_system, object, piece.end_bytes(), piece.flags, inode,
                            transaction));
    subtract_blocks(inode, plan.usage.mapped_blocks);
    inode.allocated_blocks += plan.block_count;
    if (piece.was_inline) {
        inode.inode_flags &= ~inode_flag::inline_data;
        if (piece.inline_stored_bytes > 0) {
            TRY(transaction.erase(make_key(object.node, Kind::inline_data, 0)));
        }
    }
    TRY(stage_runs(transaction, object.node, plan, scratch.checksums));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.prepare());
    uint64_t ticket = transaction.commit();
    object.inode = inode;
    const WriteRun& last = plan.runs[plan.run_count - 1];
    object.goal_block.store(last.physical_block + last.block_count, std::memory_order_relaxed);
    return ticket;
}

// What the piece finds. A small file that the piece makes large without touching its first block leaves
// the inline form before.
Result<void> look_at_file(TiffinFileSystem& file_system, Object& object, WritePiece& piece,
                          DataScratch& scratch) REQUIRES(object.data) {
    Volume& volume = file_system.volume();
    bool leave = false;
    {
        BiasedSharedLock lock(object.state, object.node);
        TRY(check_regular(object));
        piece.old_size_bytes = object.inode.size_bytes;
        piece.was_inline = is_inline(object.inode);
        if (piece.was_inline && piece.end_bytes() > kInlineDataMaximumBytes) {
            piece.inline_stored_bytes = TRY(load_inline(volume, object, scratch.inline_bytes));
            leave = piece.inline_stored_bytes > 0 && piece.position_bytes >= kBlockBytes;
        }
    }
    if (leave) {
        BiasedExclusiveLock lock(object.state, object.node);
        TRY(check_regular(object));
        TRY(leave_inline(file_system, object, scratch, new_block_priority(piece.flags)));
        piece.was_inline = false;
        piece.inline_stored_bytes = 0;
    }
    return {};
}

}  // namespace

Result<void> stage_write_effects(TiffinFileSystem& file_system, Object& object, uint64_t end_bytes,
                                 uint32_t flags, InodeValue& inode, Transaction& transaction) {
    inode.size_bytes = end_bytes > inode.size_bytes ? end_bytes : inode.size_bytes;
    if ((flags & vfs::write_flag::keep_times) == 0) {
        touch_content(inode);
    }
    if ((flags & vfs::write_flag::kill_privileges) != 0) {
        TRY(file_system.stage_kill_privileges(object, inode, transaction));
    }
    return {};
}

Result<WrittenPiece> write_piece(TiffinFileSystem& file_system, Object& object,
                                 uint64_t position_bytes, BufferCursor& cursor, uint32_t flags,
                                 RoomPolicy room, DataScratch& scratch) {
    Volume& volume = file_system.volume();
    if (position_bytes >= kMaximumFileBytes) {
        return Error::efbig;
    }
    uint64_t piece_room = uint64_t{kPieceBlocks} * kBlockBytes - position_bytes % kBlockBytes;
    WritePiece piece{position_bytes,
                     cursor.remaining() < piece_room ? cursor.remaining() : piece_room, flags};
    if (piece.length_bytes > kMaximumFileBytes - position_bytes) {
        piece.length_bytes = kMaximumFileBytes - position_bytes;
    }
    TRY(look_at_file(file_system, object, piece, scratch));
    if (piece.was_inline && piece.end_bytes() <= kInlineDataMaximumBytes) {
        return write_inline(file_system, object, piece, cursor, room, scratch);
    }
    while (true) {
        TRY(place_and_write_some(volume, object, piece, cursor, room, scratch));
        Result<uint64_t> ticket = commit_piece(file_system, object, piece, room, scratch);
        if (ticket.ok()) {
            cursor.skip(static_cast<size_t>(piece.length_bytes));
            return WrittenPiece{piece.length_bytes, ticket.value()};
        }
        const WritePlan& plan = scratch.plan;
        // On a full volume the new blocks may have used up what the transaction needs for its nodes.
        // What replaces mapped blocks may use the reserve, and less of it leaves more for nodes.
        uint32_t fewer_blocks = plan.all_mapped ? plan.block_count / 4 : plan.mapped_prefix_blocks;
        cancel_runs(volume, scratch.plan);
        if (ticket.error() != Error::enospc || fewer_blocks == 0 || room == RoomPolicy::make) {
            return ticket.error();
        }
        cut_to_blocks(piece, fewer_blocks);
    }
}

}  // namespace tiffin::tiffinfs
