// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Waiting for another thread that is between two steps of something that takes less than a microsecond, unless it
// loses its processor, or waits for a device, in the middle: then for milliseconds or longer.
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
    // Waits some dozen nanoseconds the first hundred times. Then asleep: for 50 us, later for a quarter of what it
    // has slept so far, up to 2 ms. So a long wait costs few wake-ups, and takes at most a quarter longer than it
    // had to.
    void once() {
        constexpr uint32_t kPauses = 100;
        constexpr uint64_t kShortestNapUs = 50;
        constexpr uint64_t kLongestNapUs = 2000;
        if (pauses_ < kPauses) {
            ++pauses_;
            pause_processor();
            return;
        }
        uint64_t nap_us = slept_us_ / 4;
        nap_us = nap_us < kShortestNapUs ? kShortestNapUs : nap_us;
        nap_us = nap_us > kLongestNapUs ? kLongestNapUs : nap_us;
        slept_us_ += nap_us;
        host::Mutex mutex(host::LockClass::leaf);
        host::Condition nobody_notifies;
        MutexLock lock(mutex);
        (void)nobody_notifies.wait_for(mutex, nap_us);
    }
    // For callers that do not wait for ever.
    [[nodiscard]] bool long_enough() const { return slept_us_ >= kLongEnoughUs; }

  private:
    static constexpr uint64_t kLongEnoughUs = 50'000;
    uint32_t pauses_ = 0;
    uint64_t slept_us_ = 0;
};

}  // namespace tiffin
