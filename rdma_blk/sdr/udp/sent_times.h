// SPDX-License-Identifier: MIT OR GPL-2.0-only
// When the latest packets were sent, so that feedback tells the round trip of one of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

#include "fs/vfs/result.h"
#include "rdma_blk/sdr/packet_format.h"

namespace tiffin::rdma_blk::sdr {

// Of one thread at a time.
class SentTimes {
  public:
    static constexpr uint64_t kCount = 65536;  // a power of two; more than a window has packets

    // Before anything else. Errors: enomem.
    Result<void> open() {
        times_ns_.reset(new (std::nothrow) uint64_t[kCount]());
        return times_ns_ == nullptr ? Result<void>(Error::enomem) : Result<void>();
    }
    void note(uint64_t number, uint64_t now_ns) { times_ns_[number % kCount] = now_ns; }
    // Whether feedback speaks of one of the latest packets before `next_number`: any other is wrong, or too old.
    static bool knows(const FeedbackHeader& feedback, uint64_t next_number) {
        return feedback.highest_packet_number < next_number &&
               next_number - feedback.highest_packet_number <= kCount;
    }
    // Without the time for which the peer has waited before it sent this; at least 1. Precondition: knows().
    uint64_t round_trip_ns(uint64_t now_ns, const FeedbackHeader& feedback) const {
        const uint64_t sent_ns = times_ns_[feedback.highest_packet_number % kCount];
        const uint64_t elapsed_ns = now_ns - std::min(now_ns, sent_ns);
        const uint64_t held_ns = std::min(elapsed_ns, uint64_t{feedback.delay_us} * 1000);
        return std::max<uint64_t>(elapsed_ns - held_ns, 1);
    }

  private:
    std::unique_ptr<uint64_t[]> times_ns_;
};

}  // namespace tiffin::rdma_blk::sdr
