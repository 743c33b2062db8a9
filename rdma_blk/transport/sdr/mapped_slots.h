// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A number of equal pieces of memory, in pages of their own, that cost nothing before they are used.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"

namespace tiffin::rdma_blk {

class MappedSlots {
  public:
    MappedSlots() = default;
    ~MappedSlots() { unmap(); }
    MappedSlots(const MappedSlots&) = delete;
    MappedSlots& operator=(const MappedSlots&) = delete;

    // Errors: enomem.
    Result<void> map(size_t count, size_t slot_bytes) {
        unmap();
        constexpr size_t kPageBytes = 4096;
        stride_bytes_ = (slot_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
        size_bytes_ = count * stride_bytes_;
        void* mapped = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (mapped == MAP_FAILED) {
            size_bytes_ = 0;
            return Error::enomem;
        }
        begin_ = static_cast<unsigned char*>(mapped);
        return {};
    }
    // Gives its pages back, which are zero when they are used again. Best effort: costs nothing but memory.
    void forget() const {
        if (size_bytes_ != 0) {
            (void)madvise(begin_, size_bytes_, MADV_DONTNEED);
        }
    }
    unsigned char* at(size_t index) const { return begin_ + index * stride_bytes_; }
    size_t stride_bytes() const { return stride_bytes_; }
    MutableByteSpan all() const { return MutableByteSpan(begin_, size_bytes_); }

  private:
    void unmap() {
        if (size_bytes_ != 0) {
            (void)munmap(begin_, size_bytes_);
        }
        size_bytes_ = 0;
        begin_ = nullptr;
    }

    unsigned char* begin_ = nullptr;
    size_t size_bytes_ = 0;
    size_t stride_bytes_ = 0;
};

}  // namespace tiffin::rdma_blk
