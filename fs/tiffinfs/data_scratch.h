// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Working memory of the data path: what one request needs beside the caller's buffers. Kept and used
// again, so that reading and writing allocate nothing in the steady state.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/tree.h"
#include "fs/tiffinfs/write_plan.h"
#include "fs/vfs/data_path.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

// The most that one transaction writes.
inline constexpr uint32_t kPieceBlocks = kWrittenExtentMaximumBlocks;

// About 24 KiB; used by one request at a time.
struct DataScratch {
    vfs::ReadScratch read;  // also the edge blocks and the buffer lists of writes
    KeyAndValue found;
    WritePlan plan;
    WritePlan second_plan;  // for looking again
    uint32_t checksums[kPieceBlocks];
    alignas(8) unsigned char inline_bytes[kInlineDataMaximumBytes];

    unsigned char* edge(uint32_t index) { return read.edges[index]; }
};

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

// Any thread; no locks. At most kSlots are kept.
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

    static constexpr uint32_t kSlots = 32;
    // Looked at before memory is allocated or freed.
    static constexpr uint32_t kProbes = 4;
    std::atomic<DataScratch*> slots_[kSlots]{};
};

}  // namespace tiffin::tiffinfs
