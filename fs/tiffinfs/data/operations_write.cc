// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Writing: whole requests, fsync, and copies inside the file system.
#include "fs/base/memory_patience.h"
#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/data/write_piece.h"
#include "fs/tiffinfs/objects/operations.h"
#include "fs/vfs/buffer_cursor.h"

namespace tiffin::tiffinfs {
namespace {

// copy_range() goes through memory in steps of this size.
constexpr uint64_t kCopyBytes = 1U << 20;

// Whether the file may be written like this, and where: the request's offset, or the end of the file.
// Finishes what an intent has left to do.
Result<uint64_t> start_write(TiffinFileSystem& file_system, Object& object, uint64_t offset_bytes,
                             uint32_t flags, DataScratch& scratch) REQUIRES(object.data) {
    bool write_back = (flags & vfs::write_flag::write_back) != 0;
    bool append = (flags & vfs::write_flag::append) != 0;
    bool has_intent = false;
    {
        BiasedSharedLock lock(object.state, object.node);
        TRY(check_regular(object));
        offset_bytes = append ? object.inode.size_bytes : offset_bytes;
        // What is written back from a cache was permitted when it came there.
        if (!write_back && (object.inode.file_flags & vfs::file_flag::immutable) != 0) {
            return Error::eperm;
        }
        if (!write_back && (object.inode.file_flags & vfs::file_flag::append_only) != 0 &&
            offset_bytes < object.inode.size_bytes) {
            return Error::eperm;
        }
        has_intent = (object.inode.inode_flags & inode_flag::has_intent) != 0;
    }
    if (has_intent) {
        BiasedExclusiveLock lock(object.state, object.node);
        TRY(finish_intent(file_system, object, scratch));
    }
    return offset_bytes;
}

// Each overwritten piece frees blocks, so that room can be made again; but it takes checkpoints.
constexpr uint32_t kRoomAttemptsAtMost = 64;

// A request on its way through the file.
struct WriteProgress {
    uint64_t position_bytes = 0;
    size_t written_bytes = 0;
    uint64_t ticket = 0;   // of the last transaction
    Result<void> failure;  // the first that could not be helped
    RoomPolicy room = RoomPolicy::make;
    uint32_t room_attempt = 0;
    uint32_t room_attempts_left = kRoomAttemptsAtMost;
};

// Whether it is worth while to try the same step again, after it has failed.
bool try_again(Volume& volume, uint32_t flags, Error error, MemoryPatience& patience,
               WriteProgress& progress) {
    if (error == Error::enomem) {
        return patience.wait();
    }
    if (error != Error::enospc || progress.room == RoomPolicy::as_it_is) {
        return false;
    }
    if (progress.room_attempts_left-- == 1 ||
        !volume.make_room(progress.room_attempt++, new_block_priority(flags), RoomWait::others)) {
        progress.room = RoomPolicy::as_it_is;
    }
    return true;
}

// Whether other blocks of the request may be written although one could not be.
bool may_go_on(const Volume& volume, Error error) {
    return (error == Error::enospc || error == Error::eio || error == Error::enomem) &&
           volume.check_writable().ok();
}

// Everything that happens under the object's data lock. Without write_flag::write_back the first error
// is the end.
Result<void> write_locked(TiffinFileSystem& file_system, Object& object, uint64_t offset_bytes,
                          BufferCursor& cursor, uint32_t flags, MemoryPatience& patience,
                          WriteProgress& progress) {
    Volume& volume = file_system.volume();
    DataScratchLease scratch = TRY(patience.run([&] { return file_system.data_scratch().take(); }));
    MutexLock data_lock(object.data);
    while (true) {
        Result<uint64_t> start = start_write(file_system, object, offset_bytes, flags, *scratch);
        if (start.ok()) [[likely]] {
            progress.position_bytes = start.value();
            break;
        }
        if (!try_again(volume, flags, start.error(), patience, progress)) {
            return start.error();
        }
    }
    while (cursor.remaining() > 0) {
        Result<WrittenPiece> piece = write_piece(file_system, object, progress.position_bytes,
                                                 cursor, flags, progress.room, *scratch);
        if (piece.ok()) [[likely]] {
            progress.position_bytes += piece->length_bytes;
            progress.written_bytes += static_cast<size_t>(piece->length_bytes);
            progress.ticket = piece->ticket;
            progress.room_attempt = 0;
            progress.room =
                progress.room_attempts_left > 0 ? RoomPolicy::make : RoomPolicy::as_it_is;
            continue;
        }
        if (try_again(volume, flags, piece.error(), patience, progress)) {
            continue;
        }
        if (progress.failure.ok()) {
            progress.failure = piece.error();
        }
        if ((flags & vfs::write_flag::write_back) == 0 || !may_go_on(volume, piece.error())) {
            break;
        }
        size_t skipped = kBlockBytes - static_cast<size_t>(progress.position_bytes % kBlockBytes);
        skipped = skipped < cursor.remaining() ? skipped : cursor.remaining();
        cursor.skip(skipped);
        progress.position_bytes += skipped;
    }
    return {};
}

}  // namespace

Result<size_t> TiffinFileSystem::write(vfs::NodeId node, vfs::Handle /*handle*/,
                                       uint64_t offset_bytes, Span<const vfs::IoVector> buffers,
                                       uint32_t flags) {
    TRY(volume_->check_writable());
    const bool write_back = (flags & vfs::write_flag::write_back) != 0;
    if (!write_back) {
        MemoryPatience none(0);
        return write_patiently(node, offset_bytes, buffers, flags, none);
    }
    // The host sends it only once, so an error is loss.
    host::MemoryReserveScope scope;
    MemoryPatience patience(MemoryPatience::kWaitsAtMost);
    return write_patiently(node, offset_bytes, buffers, flags, patience);
}

Result<size_t> TiffinFileSystem::write_patiently(vfs::NodeId node, uint64_t offset_bytes,
                                                 Span<const vfs::IoVector> buffers, uint32_t flags,
                                                 MemoryPatience& patience) {
    const bool write_back = (flags & vfs::write_flag::write_back) != 0;
    ObjectPin object = TRY(patience.run([&] { return objects_.get(node); }));
    BufferCursor cursor(buffers);
    WriteProgress progress;
    TRY(write_locked(*this, *object, offset_bytes, cursor, flags, patience, progress));
    if (progress.written_bytes > 0) {
        // Outside the lock: those who wait for durability share one commit.
        TRY(finish(*object, progress.ticket));
        if ((flags & vfs::write_flag::synchronous) != 0) {
            TRY(volume_->commit(progress.ticket));
        }
    }
    if (!progress.failure.ok() && (write_back || progress.written_bytes == 0)) {
        return progress.failure.error();
    }
    return progress.written_bytes;
}

Result<void> TiffinFileSystem::finish(Object& object, uint64_t ticket) {
    raise_ticket(object, ticket);
    if (options_.synchronous) {
        return volume_->commit(ticket);
    }
    return {};
}

Result<void> TiffinFileSystem::fsync(vfs::NodeId node, bool /*data_only*/) {
    TRY(volume_->check_running());
    ObjectPin object = TRY(objects_.get(node));
    uint64_t ticket = object->last_ticket.load(std::memory_order_acquire);
    // An object that was not in memory all the time does not know its last transaction.
    return volume_->commit(ticket != 0 ? ticket : volume_->journal().last_ticket());
}

namespace {

// A range of one file that becomes a range of another.
struct CopyJob {
    vfs::NodeId source;
    uint64_t source_offset_bytes;
    vfs::NodeId destination;
    uint64_t destination_offset_bytes;
    uint64_t length_bytes;
};

// How much of the range the source has.
Result<uint64_t> clip_to_source(TiffinFileSystem& file_system, const CopyJob& job) {
    ObjectPin object = TRY(file_system.objects().get(job.source));
    BiasedSharedLock lock(object->state, job.source);
    TRY(check_regular(*object));
    uint64_t size_bytes = object->inode.size_bytes;
    if (job.source_offset_bytes >= size_bytes) {
        return uint64_t{0};
    }
    uint64_t available = size_bytes - job.source_offset_bytes;
    return available < job.length_bytes ? available : job.length_bytes;
}

// The source has a hole of `length_bytes`: makes the destination read as zeros there, without filling
// what lies behind its end.
Result<void> copy_hole(TiffinFileSystem& file_system, const CopyJob& job, uint64_t length_bytes) {
    uint64_t size_bytes = 0;
    uint64_t end = job.destination_offset_bytes + length_bytes;
    {
        ObjectPin object = TRY(file_system.objects().get(job.destination));
        BiasedSharedLock lock(object->state, job.destination);
        TRY(check_regular(*object));
        size_bytes = object->inode.size_bytes;
    }
    if (job.destination_offset_bytes < size_bytes) {
        uint64_t inside = (end < size_bytes ? end : size_bytes) - job.destination_offset_bytes;
        TRY(file_system.allocate(job.destination,
                                 vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size,
                                 job.destination_offset_bytes, inside));
    }
    if (end <= size_bytes) {
        return {};
    }
    // One byte at the end brings the file to its size.
    unsigned char zero = 0;
    vfs::IoVector buffer{&zero, 1};
    TRY(file_system.write(job.destination, 0, end - 1, Span<const vfs::IoVector>(&buffer, 1), 0));
    return {};
}

// Copies the beginning of what is left of `job`, at most one step, and returns how much that was.
Result<uint64_t> copy_step(TiffinFileSystem& file_system, const CopyJob& job, void* memory,
                           size_t memory_bytes) {
    Result<uint64_t> data =
        file_system.seek(job.source, job.source_offset_bytes, vfs::SeekTarget::data);
    if (!data.ok() && data.error() != Error::enxio) {
        return data.error();
    }
    uint64_t hole_bytes = data.ok() ? data.value() - job.source_offset_bytes : job.length_bytes;
    hole_bytes = hole_bytes < job.length_bytes ? hole_bytes : job.length_bytes;
    if (hole_bytes >= memory_bytes) {
        file_system.note_read(job.source);
        TRY(copy_hole(file_system, job, hole_bytes));
        return hole_bytes;
    }
    size_t size_bytes =
        job.length_bytes < memory_bytes ? static_cast<size_t>(job.length_bytes) : memory_bytes;
    vfs::IoVector buffer{memory, size_bytes};
    buffer.size_bytes = TRY(file_system.read(job.source, 0, job.source_offset_bytes,
                                             Span<const vfs::IoVector>(&buffer, 1)));
    if (buffer.size_bytes == 0) {
        return uint64_t{0};
    }
    return uint64_t{TRY(file_system.write(job.destination, 0, job.destination_offset_bytes,
                                          Span<const vfs::IoVector>(&buffer, 1), 0))};
}

}  // namespace

Result<uint64_t> TiffinFileSystem::copy_range(vfs::NodeId source, uint64_t source_offset_bytes,
                                              vfs::NodeId destination,
                                              uint64_t destination_offset_bytes,
                                              uint64_t length_bytes) {
    TRY(volume_->check_writable());
    CopyJob job{source, source_offset_bytes, destination, destination_offset_bytes, length_bytes};
    job.length_bytes = TRY(clip_to_source(*this, job));
    if (job.length_bytes == 0) {
        return uint64_t{0};
    }
    if (destination_offset_bytes >= kMaximumFileBytes ||
        job.length_bytes > kMaximumFileBytes - destination_offset_bytes) {
        return Error::efbig;
    }
    if (source == destination &&
        source_offset_bytes < destination_offset_bytes + job.length_bytes &&
        destination_offset_bytes < source_offset_bytes + job.length_bytes) {
        return Error::einval;
    }
    auto memory_bytes = static_cast<size_t>(
        job.length_bytes < kCopyBytes ? blocks_for(job.length_bytes) * kBlockBytes : kCopyBytes);
    void* memory = host::allocate_pages(memory_bytes);
    if (memory == nullptr) {
        return Error::enomem;
    }
    uint64_t copied = 0;
    Result<void> result;
    while (job.length_bytes > 0) {
        Result<uint64_t> step = copy_step(*this, job, memory, memory_bytes);
        if (!step.ok()) {
            result = step.error();
            break;
        }
        if (step.value() == 0) {
            break;
        }
        copied += step.value();
        job.source_offset_bytes += step.value();
        job.destination_offset_bytes += step.value();
        job.length_bytes -= step.value();
    }
    host::release_pages(memory, memory_bytes);
    if (!result.ok() && copied == 0) {
        return result.error();
    }
    return copied;
}

}  // namespace tiffin::tiffinfs
