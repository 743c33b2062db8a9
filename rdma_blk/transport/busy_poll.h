// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Busy-polling for a short time before sleeping. Waking a thread on another processor takes longer than a request on a
// fast network, so a thread that is about to wait polls for an answer first; as KVM does before it halts a virtual
// processor, and fuse/session/request_loop.h. Only while that pays: each sleep tells whether polling would have met the
// answer, and a thread that has polled in vain sleeps for some time, longer when that is repeated.
//
// Of one thread at a time; no lock.
#pragma once

#include <cstdint>

namespace tiffin::rdma_blk {

class BusyPoll {
  public:
    static constexpr uint32_t kMaxUs = 1000;

    // 0: sleeps at once; so does a process that may use a single processor.
    explicit BusyPoll(uint32_t limit_us);

    // Whether `is_there` said so within the limit. False: the caller sleeps now, and calls slept() after it.
    template <typename IsThere>
    bool meets(IsThere is_there) {
        if (!begin()) {
            return false;
        }
        do {
            if (is_there()) {
                note_met();
                return true;
            }
        } while (yield());
        return false;
    }
    void slept();

  private:
    bool begin();
    // Lets others have the processor: perhaps one of them will answer. False: it has been long enough.
    bool yield();
    void note_met() {
        if (++met_ == kMetForTrust) {
            met_ = 0;
            rest_ns_ = rest_ns_ / 2 < kLeastRestNs ? kLeastRestNs : rest_ns_ / 2;
        }
    }

    // Polling may be what keeps the answer from coming: when the answering thread needs the same processor, or when
    // another thread computes there, and the scheduler gives the processor back late. A thread that sleeps gets it at
    // once. But now and then an answer is late for reasons of its own.
    static constexpr uint64_t kLeastRestNs = 1'000'000;
    static constexpr uint64_t kMostRestNs = 32'000'000;
    static constexpr uint32_t kMetForTrust = 64;

    uint64_t limit_ns_;
    uint64_t began_ns_ = 0;
    uint64_t rests_until_ns_ = 0;      // it has looked in vain
    uint64_t rest_ns_ = kLeastRestNs;  // after the next time
    uint32_t met_ = 0;                 // in a row, since the rest became shorter
    bool pays_ = false;
};

}  // namespace tiffin::rdma_blk
