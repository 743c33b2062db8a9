// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A session with a volume, perhaps over several links that are cut, and operations of one kind and size to measure it with.
// Anything that is not executed stops the program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rdma_blk/remote_memory.h"
#include "rdma_blk/transport/open.h"

namespace tiffin::bench {

constexpr uint16_t kSlots = 256;

struct OperationShape {
    rdma_blk::OperationKind kind = rdma_blk::OperationKind::read;
    uint32_t size_bytes = 4096;
    size_t depth = 1;

    std::string text() const;  // "write 4 KiB"
};

class LinkedMemory {
  public:
    explicit LinkedMemory(const std::string& address,
                          rdma_blk::LinkTrial trial = rdma_blk::LinkTrial::none);
    ~LinkedMemory();
    LinkedMemory(const LinkedMemory&) = delete;
    LinkedMemory& operator=(const LinkedMemory&) = delete;

    rdma_blk::Statistics statistics() const { return memory_->statistics(); }
    // Of the link that has the requests.
    size_t active() const;
    // Both links have come back.
    void wait_until_well() const;

    // `shape.depth` operations at once, until all are done; host::monotonic_ns() of each completion as it was seen.
    const std::vector<uint64_t>& run(const OperationShape& shape);

  private:
    std::unique_ptr<rdma_blk::RemoteMemory> memory_;
    std::vector<unsigned char> buffer_;
    std::vector<uint64_t> completed_ns_;
};

}  // namespace tiffin::bench
