// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Writing: the claim of a range, and parts of it that are granted and committed (write_grant.h); fsync.
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/data/write_grant.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// Whether the file may be written like this.
Result<void> check_may_write(const Object& object, const vfs::WriteGrant& grant)
    REQUIRES_SHARED(object.state) {
    // What is written back from a cache was permitted when it came there.
    if ((grant.flags & vfs::write_flag::write_back) != 0) {
        return {};
    }
    if ((object.inode.file_flags & vfs::file_flag::immutable) != 0) {
        return Error::eperm;
    }
    const bool only_appends = (object.inode.file_flags & vfs::file_flag::append_only) != 0;
    return only_appends && grant.start_bytes < object.inode.size_bytes ? Error::eperm
                                                                       : Result<void>();
}

// Sets where the write goes, the claim of which is held.
Result<void> place_write(TiffinFileSystem& file_system, Object& object, uint64_t offset_bytes,
                         uint64_t length_bytes, vfs::WriteGrant& grant) REQUIRES(object.claims) {
    BiasedSharedLock lock(object.state, object.node);
    TRY(check_regular(object));
    const bool append = (grant.flags & vfs::write_flag::append) != 0;
    grant.start_bytes = append ? object.inode.size_bytes : offset_bytes;
    TRY(check_may_write(object, grant));
    TRY(file_system.volume().check_writable());
    if (length_bytes > 0 && grant.start_bytes >= kMaximumFileBytes) {
        return Error::efbig;
    }
    grant.end_bytes = length_bytes < kMaximumFileBytes - grant.start_bytes
                          ? grant.start_bytes + length_bytes
                          : kMaximumFileBytes;
    return {};
}

}  // namespace

// Nothing here is analysed, since the claim outlives the function.
Result<void> TiffinFileSystem::begin_write(vfs::NodeId node, uint64_t offset_bytes,
                                           uint64_t length_bytes, uint32_t flags,
                                           vfs::WriteGrant& grant) NO_THREAD_SAFETY_ANALYSIS {
    TIFFIN_EXPECT(*volume_, !grant.active);
    TRY(volume_->check_writable());
    auto* state = new (grant.state) WriteState(TRY(objects_.get(node)));
    Object& object = *state->object;
    grant.node = node;
    grant.flags = flags;
    const bool append = (flags & vfs::write_flag::append) != 0;
    const uint64_t end_bytes =
        offset_bytes < kMaximumFileBytes - length_bytes && length_bytes < kMaximumFileBytes
            ? offset_bytes + length_bytes
            : kMaximumFileBytes;
    const uint64_t first_block =
        offset_bytes < kMaximumFileBytes ? block_at(offset_bytes) : kMaximumFileBlocks;
    Result<void> begun = volume_->with_room(new_block_priority(flags), [&] {
        return claim_blocks(object, append ? 0 : first_block,
                            append ? RangeClaim::kEndOfFile : blocks_for(end_bytes), state->claim);
    });
    if (begun.ok()) {
        begun = place_write(*this, object, offset_bytes, length_bytes, grant);
        if (!begun.ok()) {
            object.claims.release(state->claim);
        }
    }
    if (!begun.ok()) {
        state->~WriteState();
        return begun;
    }
    grant.active = true;
    if ((flags & vfs::write_flag::promised) != 0) {
        const uint64_t blocks = blocks_for(grant.end_bytes) - block_at(grant.start_bytes);
        state->claimed_blocks = volume_->allocator().take_promise(blocks);
    }
    return {};
}

Result<void> TiffinFileSystem::grant_write(vfs::WriteGrant& grant, uint64_t offset_bytes) {
    if (!grant.active) {
        return Error::einval;
    }
    WriteState& state = WriteState::of(grant);
    give_back_part(*volume_, grant);
    TRY(volume_->check_writable());
    if (offset_bytes >= kMaximumFileBytes) {
        return Error::efbig;
    }
    if (offset_bytes < grant.start_bytes || offset_bytes >= grant.end_bytes) {
        return Error::einval;
    }
    DataScratchLease scratch = TRY(data_scratch_.take());
    if (state.refused_at >= 0) [[unlikely]] {
        // The commit was refused. If there are no others any more, what they had may be free by now.
        (void)state.wait_for_others(*volume_, grant.flags);
    }
    Result<void> granted = grant_part(*this, grant, offset_bytes, *scratch);
    while (!granted.ok() && granted.error() == Error::enospc) {
        if (state.refused_at < 0) {
            // Not before the first attempt, since it reads a line of each processor: so that is made once more.
            state.refused_at = volume_->parts_ended();
        } else if (!state.try_again(*volume_, grant.flags) &&
                   !state.wait_for_others(*volume_, grant.flags)) {
            break;
        }
        granted = grant_part(*this, grant, offset_bytes, *scratch);
    }
    state.refused_at = -1;
    return granted;
}

Result<uint64_t> TiffinFileSystem::commit_write(vfs::WriteGrant& grant,
                                                Span<const uint32_t> checksums, ByteSpan content) {
    if (!grant.active || !grant.granted) {
        return Error::einval;
    }
    WriteState& state = WriteState::of(grant);
    // No transaction inside an epoch: it may wait for readers.
    state.leave_epoch(*volume_);
    Result<void> ready = volume_->check_writable();
    Result<DataScratchLease> scratch = data_scratch_.take();
    if (ready.ok() && !scratch.ok()) {
        ready = scratch.error();
    }
    if (!ready.ok()) {
        give_back_part(*volume_, grant);
        return ready.error();
    }
    if (!grant.takes_content) {
        volume_->journal().data_written();
    }
    Result<uint64_t> committed = commit_part(*this, grant, checksums, content, **scratch);
    give_back_part(*volume_, grant);
    if (committed.ok()) {
        state.part_committed();
    } else if (committed.error() == Error::enospc) {
        state.refused_at = volume_->parts_ended();
    }
    return committed;
}

// As begin_write().
Result<void> TiffinFileSystem::end_write(vfs::WriteGrant& grant) NO_THREAD_SAFETY_ANALYSIS {
    if (!grant.active) {
        return Error::einval;
    }
    WriteState& state = WriteState::of(grant);
    give_back_part(*volume_, grant);
    volume_->allocator().drop_claim(state.claimed_blocks);
    grant.active = false;
    const uint64_t ticket = state.ticket;
    state.object->claims.release(state.claim);
    state.~WriteState();
    const bool durable = options_.synchronous || (grant.flags & vfs::write_flag::synchronous) != 0;
    // Without the claim: threads that wait for durability share one commit.
    return ticket != 0 && durable ? volume_->commit(ticket) : Result<void>();
}

Result<void> TiffinFileSystem::finish(uint64_t ticket) {
    return options_.synchronous ? volume_->commit(ticket) : Result<void>();
}

Result<void> TiffinFileSystem::fsync(vfs::NodeId node, bool /*data_only*/) {
    TRY(volume_->check_running());
    ObjectPin object = TRY(objects_.get(node));
    // That of the root is how to make everything durable where a host does not pass on sync(). And an object that was not
    // in memory all the time does not know its last transaction.
    const uint64_t ticket =
        node == vfs::kRootNode ? 0 : object->last_ticket.load(std::memory_order_acquire);
    return volume_->commit(ticket != 0 ? ticket : volume_->journal().last_ticket());
}

}  // namespace tiffin::tiffinfs
