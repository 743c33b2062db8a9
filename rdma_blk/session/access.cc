// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/access.h"

#include "rdma_blk/remote_memory.h"

namespace tiffin::rdma_blk {
namespace {

// Whether [offset, offset + length) lies in [begin, begin + size); nothing here can overflow, as parsers
// and layouts keep all of them below 2^62.
bool lies_within(uint64_t offset, uint64_t length, uint64_t begin, uint64_t size) {
    return offset >= begin && offset + length <= begin + size;
}

}  // namespace

Result<void> check_access(const SessionAccess& access, const wire::Request& request) {
    const auto kind = static_cast<OperationKind>(request.operation);
    const bool is_control = request.space == static_cast<uint8_t>(AddressSpace::control);
    if (kind != OperationKind::read) {
        if (!access.is_writer) {
            return Error::erofs;
        }
        if (request.epoch != access.volume_epoch) {
            return Error::estale;
        }
    }
    if (kind == OperationKind::flush) {
        return {};
    }
    const uint64_t offset = request.offset_bytes;
    const uint64_t length = request.length_bytes;
    if (!lies_within(offset, length, 0, is_control ? access.control_bytes : access.data_bytes)) {
        return Error::eio;
    }
    if (is_control && kind != OperationKind::read &&
        !lies_within(offset, length, access.words_offset, access.words_bytes) &&
        !lies_within(offset, length, access.client_offset, access.client_bytes)) {
        return Error::eio;
    }
    return {};
}

Result<void> check_flush_range(const SessionAccess& access, const wire::Request& request,
                               const wire::FlushRange& range) {
    const bool is_control = request.space == static_cast<uint8_t>(AddressSpace::control);
    if (!lies_within(range.offset_bytes, range.length_bytes, 0,
                     is_control ? access.control_bytes : access.data_bytes)) {
        return Error::eio;
    }
    return {};
}

}  // namespace tiffin::rdma_blk
