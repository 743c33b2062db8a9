// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Memory that is registered with each device, for operations whose buffers are not: pieces of kChunkBytes that an operation
// holds while it is posted. No lock: its owner's.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

class BouncePool {
  public:
    static constexpr uint32_t kChunkBytes = 64 * 1024;
    static constexpr uint32_t kChunkCount = 256;  // 16 MiB
    static constexpr size_t kWords = 2;
    static constexpr size_t kBytes = size_t{kChunkBytes} * kChunkCount + kWords * sizeof(uint64_t);
    static constexpr uint32_t kMaxChunks =
        wire::kMaxTransferBytes / kChunkBytes;  // of one operation

    Result<void> create() {
        constexpr std::align_val_t kPage{4096};
        memory_.reset(static_cast<unsigned char*>(::operator new(kBytes, kPage, std::nothrow)));
        if (!memory_) {
            return Error::enomem;
        }
        for (uint32_t i = 0; i < kChunkCount; i++) {
            free_[i] = static_cast<uint16_t>(i);
        }
        free_count_ = kChunkCount;
        return {};
    }
    // All of it, for a device.
    MutableByteSpan memory() const { return {memory_.get(), kBytes}; }

    uint32_t free_count() const { return free_count_; }
    uint16_t take() { return free_[--free_count_]; }
    void give_back(uint16_t chunk) { free_[free_count_++] = chunk; }
    unsigned char* chunk(uint16_t chunk) const {
        return memory_.get() + size_t{chunk} * kChunkBytes;
    }
    // Words beside the chunks, for who makes paths: one for each.
    uint64_t& word(size_t index) const {
        return reinterpret_cast<uint64_t*>(memory_.get() +
                                           size_t{kChunkBytes} * kChunkCount)[index];
    }

  private:
    struct Release {
        void operator()(unsigned char* memory) const {
            ::operator delete (memory, std::align_val_t{4096});
        }
    };

    std::unique_ptr<unsigned char, Release> memory_;
    uint16_t free_[kChunkCount] = {};
    uint32_t free_count_ = 0;
};

}  // namespace tiffin::rdma_blk
