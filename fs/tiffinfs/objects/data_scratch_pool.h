// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Lends requests the working memory of the data path (data/data_scratch.h), and keeps it to be used
// again, so that reading and writing allocate nothing in the steady state.
#pragma once

#include "fs/base/slot_pool.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

struct DataScratch;
class DataScratchPool;

// A scratch, given back at the end of the scope.
class DataScratchLease {
  public:
    DataScratchLease(DataScratchPool& pool, DataScratch* scratch)
        : pool_(&pool), scratch_(scratch) {}
    DataScratchLease(DataScratchLease&& other) noexcept
        : pool_(other.pool_), scratch_(other.scratch_) {
        other.scratch_ = nullptr;
    }
    DataScratchLease& operator=(DataScratchLease&&) = delete;
    ~DataScratchLease();

    DataScratch* operator->() const { return scratch_; }
    DataScratch& operator*() const { return *scratch_; }

  private:
    DataScratchPool* pool_;
    DataScratch* scratch_;
};

// Any thread; no locks.
class DataScratchPool {
  public:
    DataScratchPool() = default;
    ~DataScratchPool();
    DataScratchPool(const DataScratchPool&) = delete;
    DataScratchPool& operator=(const DataScratchPool&) = delete;

    // Errors: enomem.
    Result<DataScratchLease> take();

  private:
    friend class DataScratchLease;
    void give_back(DataScratch* scratch);

    SlotPool<DataScratch> kept_;
};

}  // namespace tiffin::tiffinfs
