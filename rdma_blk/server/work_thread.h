// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A thread for what others must not wait for: what waits for a disk (leases), for devices, for the end of processes; and what
// happens at intervals. Each kind has its own.
#pragma once

#include <deque>
#include <functional>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {

class WorkThread {
  public:
    ~WorkThread() { stop(); }

    // `at_intervals` is called in the thread; nullptr: nothing is. Errors: those of the system.
    Result<void> start(const char* name, uint64_t interval_ns = ~uint64_t{0},
                       std::function<void()> at_intervals = nullptr);
    // Does what is queued, and ends.
    void stop();
    // Any thread. False: too much is queued, or it is stopping.
    bool add(std::function<void()> work);

  private:
    static constexpr size_t kMaxQueued = 4096;

    void run();

    uint64_t interval_ns_ = 0;
    std::function<void()> at_intervals_;
    host::Thread thread_;
    host::Mutex mutex_{host::LockClass::leaf};
    host::Condition changed_;
    std::deque<std::function<void()>> queue_ GUARDED_BY(mutex_);
    bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace tiffin::rdma_blk
