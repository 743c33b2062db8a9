// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/data/data_scratch.h"

#include "fs/base/allocate.h"
#include "fs/tiffinfs/objects/data_scratch_pool.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {

DataScratchLease::~DataScratchLease() {
    if (scratch_ != nullptr) {
        pool_->give_back(scratch_);
    }
}

DataScratchPool::~DataScratchPool() {
    for (std::atomic<DataScratch*>& slot : slots_) {
        destroy_object(slot.load(std::memory_order_acquire));
    }
}

Result<DataScratchLease> DataScratchPool::take() {
    uint32_t first = host::concurrency_hint();
    for (uint32_t i = 0; i < kProbes; ++i) {
        std::atomic<DataScratch*>& slot = slots_[(first + i) % kSlots];
        if (slot.load(std::memory_order_relaxed) == nullptr) {
            continue;
        }
        // A slot is emptied as a whole, so nobody can take or return the same scratch twice.
        DataScratch* scratch = slot.exchange(nullptr, std::memory_order_acquire);
        if (scratch != nullptr) {
            return DataScratchLease(*this, scratch);
        }
    }
    auto* scratch = make_object<DataScratch>();
    if (scratch == nullptr) {
        return Error::enomem;
    }
    return DataScratchLease(*this, scratch);
}

void DataScratchPool::give_back(DataScratch* scratch) {
    uint32_t first = host::concurrency_hint();
    for (uint32_t i = 0; i < kProbes; ++i) {
        DataScratch* empty = nullptr;
        if (slots_[(first + i) % kSlots].compare_exchange_strong(
                empty, scratch, std::memory_order_release, std::memory_order_relaxed)) {
            return;
        }
    }
    destroy_object(scratch);
}

}  // namespace tiffin::tiffinfs
