// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "kmod/adapter/device.h"

#include "fs/vfs/host.h"

namespace tiffin::kmod {
namespace {

// The framework reads the lists of the core as they are.
static_assert(sizeof(tiffin_vector) == sizeof(vfs::IoVector) &&
              offsetof(tiffin_vector, data) == offsetof(vfs::IoVector, data) &&
              offsetof(tiffin_vector, size_bytes) == offsetof(vfs::IoVector, size_bytes));

constexpr uint32_t operation_of(vfs::IoOperation operation) {
    switch (operation) {
        case vfs::IoOperation::read:
            return TIFFIN_IO_READ;
        case vfs::IoOperation::write:
            return TIFFIN_IO_WRITE;
        case vfs::IoOperation::flush:
            return TIFFIN_IO_FLUSH;
        case vfs::IoOperation::discard:
            return TIFFIN_IO_DISCARD;
    }
    return ~0U;
}

// What the contract has for a failure of the kernel's block layer.
Result<void> result_of(int error) {
    switch (error) {
        case 0:
            return {};
        case -errno_value(Error::einval):
            return Error::einval;
        case -errno_value(Error::eopnotsupp):
            return Error::eopnotsupp;
        default:
            return Error::eio;
    }
}

void request_completed(void* owner, int error) {
    auto* request = static_cast<vfs::IoRequest*>(owner);
    request->complete(*request, result_of(error));
}

// What a thread sleeps on; see BlockDevice::submit_and_wait().
struct Waiter {
    host::Semaphore done;
    int error = 0;
};

void wake(void* owner, int error) {
    auto* waiter = static_cast<Waiter*>(owner);
    waiter->error = error;
    waiter->done.post();
}

}  // namespace

KernelDevice::KernelDevice(const tiffin_services& services, tiffin_device* device)
    : services_(services), device_(device) {
    if (device == nullptr) {
        return;
    }
    tiffin_geometry geometry = {};
    services_.geometry(device_, &geometry);
    geometry_.size_bytes = geometry.size_bytes;
    geometry_.write_unit_bytes = geometry.write_unit_bytes;
    geometry_.volatile_cache = geometry.volatile_cache;
    geometry_.supports_discard = geometry.supports_discard;
    geometry_.read_only = geometry.read_only;
}

// A device that has become smaller is left to the errors of what lies behind its end.
Result<uint64_t> KernelDevice::update_size() {
    tiffin_geometry geometry = {};
    services_.geometry(device_, &geometry);
    if (geometry.size_bytes > geometry_.size_bytes) {
        geometry_.size_bytes = geometry.size_bytes;
    }
    return geometry_.size_bytes;
}

void KernelDevice::submit(vfs::IoRequest& request) {
    services_.submit(device_, operation_of(request.operation), request.offset_bytes,
                     request.length_bytes, reinterpret_cast<const tiffin_vector*>(request.buffers),
                     request.buffer_count, request_completed, &request);
}

Result<void> KernelDevice::write_ordered(Span<const vfs::OrderedWrite> data,
                                         const vfs::OrderedWrite& record) {
    for (const vfs::OrderedWrite& part : data) {
        TRY(write(part.offset_bytes, part.buffers, part.buffer_count));
    }
    Waiter waiter;
    services_.submit(device_, TIFFIN_IO_WRITE_ORDERED, record.offset_bytes, 0,
                     reinterpret_cast<const tiffin_vector*>(record.buffers), record.buffer_count,
                     wake, &waiter);
    waiter.done.wait();
    return result_of(waiter.error);
}

}  // namespace tiffin::kmod
