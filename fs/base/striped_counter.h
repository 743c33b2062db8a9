// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A count that many threads change and few read: each adds to a cache line of its own, so that no line
// travels between the processors with every addition.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/vfs/host.h"

namespace tiffin {

// Any thread. The sum of all additions, which may be negative, must fit int64_t.
class StripedCounter {
  public:
    void add(int64_t amount) {
        stripes_[host::concurrency_hint() % kStripes].value.fetch_add(amount,
                                                                      std::memory_order_relaxed);
    }
    // While no thread adds.
    void reset(int64_t value) {
        for (Stripe& stripe : stripes_) {
            stripe.value.store(0, std::memory_order_relaxed);
        }
        stripes_[0].value.store(value, std::memory_order_relaxed);
    }
    // Exact when no thread adds meanwhile; else it has some of what is being added, but never a part of one
    // addition.
    int64_t sum() const {
        int64_t total = 0;
        for (const Stripe& stripe : stripes_) {
            total += stripe.value.load(std::memory_order_relaxed);
        }
        return total;
    }

  private:
    static constexpr uint32_t kStripes = 16;
    struct alignas(64) Stripe {
        std::atomic<int64_t> value{0};
    };
    Stripe stripes_[kStripes];
};

}  // namespace tiffin
