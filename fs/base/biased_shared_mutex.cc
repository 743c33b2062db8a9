// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/base/biased_shared_mutex.h"

#include "fs/base/short_wait.h"

namespace tiffin {

constinit BiasedSharedMutex::Stripe BiasedSharedMutex::stripes_[kStripes]{};

BiasedSharedMutex::Sharing BiasedSharedMutex::share_by_mutex(uint64_t level)
    NO_THREAD_SAFETY_ANALYSIS {
    mutex_.lock_shared(level);
    if (!is_biased_.load(std::memory_order_relaxed)) {
        // Processors that share a stripe may lose a number here.
        std::atomic<uint32_t>& count = my_stripe().sharings_by_mutex;
        const uint32_t number = count.load(std::memory_order_relaxed) + 1;
        count.store(number, std::memory_order_relaxed);
        if (number % kSharingsUntilBias == 0) {
            is_biased_.store(true, std::memory_order_seq_cst);
        }
    }
    return Sharing();
}

// By looking again and again: a shared owner that leaves its slot would need a full fence before it could see that
// a thread is to be woken, and that is more than all that unlock_shared() does.
void BiasedSharedMutex::wait_for_slots() {
    is_biased_.store(false, std::memory_order_seq_cst);
    race_point();
    const uint32_t number = slot_number();
    for (Stripe& stripe : stripes_) {
        ShortWait wait;
        while (stripe.slots[number].load(std::memory_order_seq_cst) == this) {
            wait.once();
        }
    }
}

// With a shared owner in a slot the lock is biased as before: the next exclusive owner has to look for it too.
bool BiasedSharedMutex::try_to_find_slots_empty() {
    is_biased_.store(false, std::memory_order_seq_cst);
    race_point();
    const uint32_t number = slot_number();
    for (Stripe& stripe : stripes_) {
        if (stripe.slots[number].load(std::memory_order_seq_cst) == this) {
            is_biased_.store(true, std::memory_order_seq_cst);
            return false;
        }
    }
    return true;
}

}  // namespace tiffin
