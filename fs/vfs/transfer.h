// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Several requests to a device that are under way together: waits for the last, or calls when it has completed.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"

namespace tiffin::vfs {

// For one round of requests after the other, each by one thread.
class Transfer {
  public:
    // Called once when the last request has completed, from the context of its completion (BlockDevice): it queues work.
    using Completed = void (*)(void* owner);

    Transfer() = default;
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    // Begins a round of `count` requests, at least one. Without `completed`, wait() follows the last submit(); with it,
    // result() may be called as soon as it has been.
    void begin(uint32_t count, Completed completed = nullptr, void* owner = nullptr);
    // Submits the next one, whose operation, range and buffers are set.
    void submit(BlockDevice& device, IoRequest& request);
    // Errors: the last of those that the requests had.
    Result<void> wait(BlockDevice& device);
    Result<void> result() const;

  private:
    static void request_completed(IoRequest& request, Result<void> result);

    uint32_t unsubmitted_ = 0;
    Completed completed_ = nullptr;
    void* owner_ = nullptr;
    std::atomic<uint32_t> pending_{0};
    std::atomic<int> error_{0};
    host::Semaphore all_completed_;
};

}  // namespace tiffin::vfs
