// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The synchronous forms of a block device, built on submit().
#include "fs/vfs/block_device.h"

#include "fs/vfs/host.h"

namespace tiffin::vfs {
namespace {

// What a thread sleeps on while its request is under way. It lies on that thread's stack.
struct Waiter {
    host::Semaphore done;
    Result<void> result;
};

void wake(IoRequest& request, Result<void> result) {
    auto* waiter = static_cast<Waiter*>(request.owner);
    waiter->result = result;
    waiter->done.post();
}

}  // namespace

Result<void> BlockDevice::submit_and_wait(IoRequest& request) {
    Waiter waiter;
    request.owner = &waiter;
    request.complete = wake;
    submit(request);
    waiter.done.wait();
    return waiter.result;
}

Result<void> BlockDevice::start_writing() {
    if (geometry().read_only) {
        return Error::erofs;
    }
    return {};
}

Result<void> BlockDevice::read(uint64_t offset_bytes, const IoVector* buffers,
                               size_t buffer_count) {
    IoRequest request;
    request.operation = IoOperation::read;
    request.offset_bytes = offset_bytes;
    request.buffers = buffers;
    request.buffer_count = buffer_count;
    return submit_and_wait(request);
}

Result<void> BlockDevice::write(uint64_t offset_bytes, const IoVector* buffers,
                                size_t buffer_count) {
    IoRequest request;
    request.operation = IoOperation::write;
    request.offset_bytes = offset_bytes;
    request.buffers = buffers;
    request.buffer_count = buffer_count;
    return submit_and_wait(request);
}

Result<void> BlockDevice::flush() {
    IoRequest request;
    request.operation = IoOperation::flush;
    return submit_and_wait(request);
}

Result<void> BlockDevice::write_ordered(Span<const OrderedWrite> data, const OrderedWrite& record) {
    for (const OrderedWrite& part : data) {
        TRY(write(part.offset_bytes, part.buffers, part.buffer_count));
    }
    const bool has_cache = geometry().volatile_cache;
    if (has_cache) {
        TRY(flush());
    }
    TRY(write(record.offset_bytes, record.buffers, record.buffer_count));
    return has_cache ? flush() : Result<void>();
}

Result<void> BlockDevice::discard(uint64_t offset_bytes, uint64_t length_bytes) {
    IoRequest request;
    request.operation = IoOperation::discard;
    request.offset_bytes = offset_bytes;
    request.length_bytes = length_bytes;
    return submit_and_wait(request);
}

Result<void> BlockDevice::read(uint64_t offset_bytes, void* buffer, size_t size_bytes) {
    IoVector piece{buffer, size_bytes};
    return read(offset_bytes, &piece, 1);
}

Result<void> BlockDevice::write(uint64_t offset_bytes, const void* buffer, size_t size_bytes) {
    // The contract promises that writes only read from their buffers.
    IoVector piece{const_cast<void*>(buffer), size_bytes};
    return write(offset_bytes, &piece, 1);
}

}  // namespace tiffin::vfs
