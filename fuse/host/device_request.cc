// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/device_request.h"

namespace tiffin::fuse {
namespace {

// Errors: einval (not in whole write units), eio (beyond the end).
Result<void> check_range(const vfs::DeviceGeometry& geometry, uint64_t offset_bytes,
                         uint64_t length_bytes) {
    if (((offset_bytes | length_bytes) & (geometry.write_unit_bytes - 1)) != 0) {
        return Error::einval;
    }
    if (offset_bytes > geometry.size_bytes || length_bytes > geometry.size_bytes - offset_bytes) {
        return Error::eio;
    }
    return {};
}

Result<void> carry_out(vfs::BlockDevice& device, const vfs::IoRequest& request) {
    switch (request.operation) {
        case vfs::IoOperation::read:
            return device.read(request.offset_bytes, request.buffers, request.buffer_count);
        case vfs::IoOperation::write:
            return device.write(request.offset_bytes, request.buffers, request.buffer_count);
        case vfs::IoOperation::flush:
            return device.flush();
        case vfs::IoOperation::discard:
            return device.discard(request.offset_bytes, request.length_bytes);
    }
    return Error::eopnotsupp;
}

}  // namespace

Result<uint64_t> check_transfer(const vfs::DeviceGeometry& geometry, bool is_write,
                                uint64_t offset_bytes, const vfs::IoVector* buffers,
                                size_t buffer_count) {
    if (is_write && geometry.read_only) {
        return Error::erofs;
    }
    uint64_t length_bytes = 0;
    for (size_t i = 0; i < buffer_count; ++i) {
        if (__builtin_add_overflow(length_bytes, buffers[i].size_bytes, &length_bytes)) {
            return Error::eio;
        }
    }
    TRY(check_range(geometry, offset_bytes, length_bytes));
    return length_bytes;
}

Result<void> check_discard(const vfs::DeviceGeometry& geometry, uint64_t offset_bytes,
                           uint64_t length_bytes) {
    if (!geometry.supports_discard) {
        return Error::eopnotsupp;
    }
    if (geometry.read_only) {
        return Error::erofs;
    }
    return check_range(geometry, offset_bytes, length_bytes);
}

void complete_synchronously(vfs::BlockDevice& device, vfs::IoRequest& request) {
    request.complete(request, carry_out(device, request));
}

}  // namespace tiffin::fuse
