// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A session with a volume, perhaps over several links that are cut, and operations of one kind and size to measure it with.
// Anything that is not executed stops the program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fuse/host/remote_address.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/transport/open.h"

namespace tiffin::bench {

constexpr uint16_t kSlots = 256;

// Says the problem, and ends the program as it is: threads may be running.
[[noreturn]] void stop(const std::string& problem);
// The volume of an address "tiffin://...".
fuse::RemoteVolumeAddress parse_volume(const std::string& address);
// Of the link that has the requests; `otherwise` if none has them at this moment.
size_t active_link(const rdma_blk::RemoteMemory& memory, size_t otherwise);
void wait_until_links_are_well(const rdma_blk::RemoteMemory& memory);

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
    size_t active() const { return active_link(*memory_, 0); }
    // Both links have come back.
    void wait_until_well() const { wait_until_links_are_well(*memory_); }

    // `shape.depth` operations at once, until all are done; host::monotonic_ns() of each completion as it was seen.
    const std::vector<uint64_t>& run(const OperationShape& shape);

  private:
    std::unique_ptr<rdma_blk::RemoteMemory> memory_;
    std::vector<unsigned char> buffer_;
    std::vector<uint64_t> completed_ns_;
};

}  // namespace tiffin::bench
