// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A carrier's mutex, and a count of what has changed under it, for those who wait for changes.
#pragma once

#include <cstdint>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk::sdr {

// Any number of threads.
class WatchedMutex {
  public:
    host::Mutex mutex{host::LockClass::leaf};

    // Wakes all who wait.
    void note_change() REQUIRES(mutex) {
        changes_++;
        changed_.notify_all();
    }
    // Until something has changed since `seen`, or the time is over; may end without a reason. Returns what to pass the
    // next time, at first 0: whoever looks around between two calls misses nothing.
    uint64_t wait(uint64_t seen, uint64_t timeout_us) EXCLUDES(mutex) {
        mutex.lock();
        if (changes_ == seen) {
            (void)changed_.wait_for(mutex, timeout_us);
        }
        const uint64_t now_seen = changes_;
        mutex.unlock();
        return now_seen;
    }

  private:
    host::Condition changed_;
    uint64_t changes_ GUARDED_BY(mutex) = 0;
};

}  // namespace tiffin::rdma_blk::sdr
