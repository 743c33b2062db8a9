// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Waiting for memory where giving up would lose data that a program believes to be written.
#pragma once

#include <cstdint>

#include "fs/vfs/host.h"
#include "fs/vfs/result.h"

namespace tiffin {

// How long one request may wait for memory, in all. Any thread that may sleep and holds no lock of
// class leaf; other locks may be held.
class MemoryPatience {
  public:
    static constexpr uint32_t kWaitUs = 5'000;
    static constexpr uint32_t kWaitsAtMost = 1'000;  // 5 s

    // `waits_at_most` 0: a request that fails instead.
    explicit MemoryPatience(uint32_t waits_at_most) : waits_left_(waits_at_most) {}

    // Runs `operation`, which returns a Result, again as long as it fails for want of memory.
    template <typename Operation>
    auto run(Operation operation) -> decltype(operation()) {
        while (true) {
            auto result = operation();
            if (result.ok() || result.error() != Error::enomem || !wait()) [[likely]] {
                return result;
            }
        }
    }

    // Sleeps a little; false when the time is up.
    [[nodiscard]] bool wait() {
        if (waits_left_ == 0) {
            return false;
        }
        --waits_left_;
        host::Mutex mutex(host::LockClass::leaf);
        host::Condition nobody_notifies;
        MutexLock lock(mutex);
        (void)nobody_notifies.wait_for(mutex, kWaitUs);
        return true;
    }

  private:
    uint32_t waits_left_;
};

}  // namespace tiffin
