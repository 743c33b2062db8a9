// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Registered memory for operations whose buffers are not: pieces of kChunkBytes that an operation holds while it is
// posted. And 8 bytes for each posted operation, where an atomic's old value goes. No lock: its owner's.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "fs/vfs/result.h"
#include "rdma_blk/transport/verbs/verbs.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

class BouncePool {
  public:
    static constexpr uint32_t kChunkBytes = 64 * 1024;
    static constexpr uint32_t kChunkCount = 256;  // 16 MiB
    static constexpr uint32_t kMaxChunks =
        wire::kMaxTransferBytes / kChunkBytes;  // of one operation

    Result<void> create(verbs::Device& device, uint16_t word_count) {
        const size_t size = size_t{kChunkBytes} * kChunkCount + sizeof(uint64_t) * word_count;
        constexpr std::align_val_t kPage{4096};
        memory_.reset(static_cast<unsigned char*>(::operator new(size, kPage, std::nothrow)));
        if (!memory_) {
            return Error::enomem;
        }
        registration_ = TRY(device.register_memory(memory_.get(), size, false));
        for (uint32_t i = 0; i < kChunkCount; i++) {
            free_[i] = static_cast<uint16_t>(i);
        }
        free_count_ = kChunkCount;
        return {};
    }
    // Before the device goes.
    void destroy() { registration_.reset(); }

    uint32_t free_count() const { return free_count_; }
    uint16_t take() { return free_[--free_count_]; }
    void give_back(uint16_t chunk) { free_[free_count_++] = chunk; }
    unsigned char* chunk(uint16_t chunk) const {
        return memory_.get() + size_t{chunk} * kChunkBytes;
    }
    uint64_t& word(uint16_t index) const {
        return reinterpret_cast<uint64_t*>(memory_.get() +
                                           size_t{kChunkBytes} * kChunkCount)[index];
    }
    uint32_t local_key() const { return registration_->local_key(); }

  private:
    struct Release {
        void operator()(unsigned char* memory) const {
            ::operator delete (memory, std::align_val_t{4096});
        }
    };

    std::unique_ptr<unsigned char, Release> memory_;
    std::unique_ptr<verbs::Memory> registration_;
    uint16_t free_[kChunkCount] = {};
    uint32_t free_count_ = 0;
};

}  // namespace tiffin::rdma_blk
