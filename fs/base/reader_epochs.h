// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Lets readers use something without a lock while others wait until all of them have left: the
// two-counter scheme of SRCU (McKenney, "Sleepable Read-Copy Update", LWN 2006). Readers may sleep
// and may leave on another thread than they entered on.
//
// The guarantee: when a grace period is over, every reader that was inside when it began has
// left. A reader that enters later must not be able to find what was taken away before; so readers
// look it up, and writers take it away, under a lock or with sequentially consistent operations.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/vfs/host.h"

namespace tiffin {

class ReaderEpochs {
  public:
    ReaderEpochs() = default;
    ReaderEpochs(const ReaderEpochs&) = delete;
    ReaderEpochs& operator=(const ReaderEpochs&) = delete;

    // Returns a token to leave() with. Two atomic operations, never blocks.
    uint32_t enter();
    // One atomic operation, never blocks; any thread, completions of I/O included.
    void leave(uint32_t token);

    // Waits until every reader that was inside when it was called has left. Bounded only by how long
    // readers stay; must not be called by a reader.
    void synchronize();
    // Like synchronize(), but gives up and returns false when a reader would have to be waited for.
    bool try_synchronize() { return poll_grace_period(begin_grace_period()); }

    // The same without waiting: begin_grace_period() names the readers that are inside now, and
    // poll_grace_period() says later, as often as it is asked, whether they have left. Unlike
    // try_synchronize() this comes to an end even when there is never a moment without a reader.
    uint64_t begin_grace_period() EXCLUDES(mutex_);
    bool poll_grace_period(uint64_t grace_period) EXCLUDES(mutex_);

  private:
    static constexpr uint32_t kStripes = 16;
    // Both members of a pair only grow; a reader leaves on the pair it entered on.
    struct alignas(64) Stripe {
        std::atomic<uint64_t> entered[2]{};
        std::atomic<uint64_t> left[2]{};
    };
    bool drained(uint32_t parity) const;
    // Flips as often as `grace_period` needs and readers allow; true when it is over.
    bool advance(uint64_t grace_period) REQUIRES(mutex_);

    Stripe stripes_[kStripes];
    // New readers count themselves under this number modulo 2. Written under the mutex.
    std::atomic<uint64_t> flips_{0};
    host::Mutex mutex_{host::LockClass::leaf};  // one waiter flips at a time
};

}  // namespace tiffin
