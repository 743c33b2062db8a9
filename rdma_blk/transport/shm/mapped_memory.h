// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A server's memory in this process, at one address for good: it may grow, be mapped for writing later, and be
// replaced by that of a server that started again, without anybody who has an address noticing.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/vfs/result.h"
#include "rdma_blk/transport/tcp/socket.h"

namespace tiffin::rdma_blk {

struct AddressRange {
    unsigned char* begin = nullptr;
    uint64_t size_bytes = 0;
};
// Reserves addresses for a memory of that size, with room to grow, at a whole huge page; munmap() gives them back. A
// memory that is larger than the range that it gets is too large. Errors: enomem.
Result<AddressRange> reserve_addresses(uint64_t size_bytes);

class MappedMemory {
  public:
    MappedMemory() = default;
    ~MappedMemory() { unmap(); }
    MappedMemory(const MappedMemory&) = delete;
    MappedMemory& operator=(const MappedMemory&) = delete;

    // Maps the beginning of a memfd, which is checked: of that size at least, and sealed against shrinking, so
    // that reading it never fails (SIGBUS). As much as the reserved addresses hold: see size_bytes(). What was
    // mapped before is gone. Errors: eproto (not such memory), enomem, those of the system.
    Result<void> map(Socket memfd, uint64_t size_bytes, bool is_writable);
    // The same memory has grown. Errors: as above; then it is mapped as before.
    Result<void> grow(uint64_t size_bytes);
    void unmap();

    unsigned char* data() const { return address_; }
    // May be asked while another thread maps: addresses of what is mapped stay.
    uint64_t size_bytes() const { return size_bytes_.load(std::memory_order_acquire); }
    bool is_writable() const { return is_writable_; }

  private:
    Result<void> reserve(uint64_t size_bytes);
    Result<void> map_from(uint64_t offset_bytes, uint64_t size_bytes);

    Socket memfd_;
    unsigned char* address_ = nullptr;
    uint64_t reserved_bytes_ = 0;
    std::atomic<uint64_t> size_bytes_{0};
    bool is_writable_ = false;
};

}  // namespace tiffin::rdma_blk
