// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Waiting for another thread that is between two steps of something that takes less than a microsecond, unless it
// loses its processor in the middle: then for milliseconds.
#pragma once

#include <cstdint>

#include "fs/base/processor_pause.h"
#include "fs/vfs/host.h"

namespace tiffin {

// Any thread that may sleep and holds no lock of class leaf; other locks may be held. For one wait:
//
//     ShortWait wait;
//     while (!finished()) {
//         wait.once();
//     }
class ShortWait {
  public:
    // A wait that is given up after this many times has taken a tenth of a second or more.
    static constexpr uint32_t kTimesAtMost = 1100;

    // Waits some dozen nanoseconds the first hundred times, later asleep for 50 us.
    void once() {
        constexpr uint32_t kPauses = 100;
        constexpr uint64_t kNapUs = 50;
        if (++times_ <= kPauses) {
            pause_processor();
            return;
        }
        host::Mutex mutex(host::LockClass::leaf);
        host::Condition nobody_notifies;
        MutexLock lock(mutex);
        (void)nobody_notifies.wait_for(mutex, kNapUs);
    }
    // For those who do not wait for ever.
    [[nodiscard]] bool long_enough() const { return times_ >= kTimesAtMost; }

  private:
    uint32_t times_ = 0;
};

}  // namespace tiffin
