// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Copies inside the file system, through memory; holes stay holes.
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// In steps of this size.
constexpr uint64_t kCopyBytes = 1U << 20;

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
    // The source may become shorter between steps: behind its end is no hole.
    uint64_t hole_end = 0;
    Result<uint64_t> data = seek_with_size(file_system, job.source, job.source_offset_bytes,
                                           vfs::SeekTarget::data, hole_end);
    if (data.ok()) {
        hole_end = data.value();
    } else if (data.error() != Error::enxio) {
        return data.error();
    }
    if (hole_end < job.source_offset_bytes) {
        return uint64_t{0};
    }
    uint64_t hole_bytes = hole_end - job.source_offset_bytes;
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
