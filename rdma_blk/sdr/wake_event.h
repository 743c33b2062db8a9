// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How a carrier's thread sleeps: until its channel has something, somebody kicks it, or it is time.
#pragma once

#include <cstdint>

#include "fs/vfs/result.h"

namespace tiffin::rdma_blk::sdr {

class WakeEvent {
  public:
    WakeEvent() = default;
    ~WakeEvent();
    WakeEvent(const WakeEvent&) = delete;
    WakeEvent& operator=(const WakeEvent&) = delete;

    // Errors: those of eventfd(2).
    Result<void> open();
    // Ends the sleep that is under way, or the next one. Any thread; nothing before open().
    void kick();
    // Until `descriptor` is readable, a kick, or the monotonic time `until_ns`, but not longer than a moment, so that a thread
    // that nothing wakes looks around. True: it was kicked. The owner's thread only.
    bool sleep(int descriptor, uint64_t until_ns);

  private:
    int descriptor_ = -1;  // eventfd
};

}  // namespace tiffin::rdma_blk::sdr
