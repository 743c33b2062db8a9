// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/base/reader_epochs.h"

#include "fs/base/race_point.h"

namespace tiffin {
namespace {

// How long a waiter sleeps before it looks again. Readers stay as long as one I/O; leave() wakes
// no thread, so that leaving stays one atomic operation.
constexpr uint64_t kFirstPause_us = 20;
constexpr uint64_t kLongestPause_us = 1000;

}  // namespace

uint32_t ReaderEpochs::enter() {
    const uint32_t stripe = host::concurrency_hint() % kStripes;
    const auto parity = static_cast<uint32_t>(flips_.load(std::memory_order_acquire) & 1);
    race_point();
    // Sequentially consistent: ordered before everything the reader looks up.
    stripes_[stripe].entered[parity].fetch_add(1, std::memory_order_seq_cst);
    return stripe << 1 | parity;
}

void ReaderEpochs::leave(uint32_t token) {
    TIFFIN_ASSERT(token < kStripes * 2);
    stripes_[token >> 1].left[token & 1].fetch_add(1, std::memory_order_release);
}

// Every reader that was inside under `parity` when this was called has left, when it returns true. The
// departures are summed first: each one that is seen brings its arrival into the second sum, so the
// sums can only be equal when every arrival that was seen has left.
bool ReaderEpochs::drained(uint32_t parity) const {
    uint64_t left = 0;
    for (const Stripe& stripe : stripes_) {
        left += stripe.left[parity].load(std::memory_order_seq_cst);
    }
    race_point();
    uint64_t entered = 0;
    for (const Stripe& stripe : stripes_) {
        entered += stripe.entered[parity].load(std::memory_order_seq_cst);
    }
    return left == entered;
}

// Before each flip the parity that gets the new readers must be empty but for readers that read the
// number before an earlier flip and counted themselves late. Two flips after the beginning, both
// parities have been seen empty: whichever one a reader was counted under, it has left.
bool ReaderEpochs::advance(uint64_t grace_period) {
    uint64_t flips = flips_.load(std::memory_order_relaxed);
    while (flips < grace_period) {
        if (!drained(static_cast<uint32_t>((flips + 1) & 1))) {
            return false;
        }
        race_point();
        flips_.store(++flips, std::memory_order_seq_cst);
    }
    return true;
}

uint64_t ReaderEpochs::begin_grace_period() {
    // Under the mutex, so that no flip counts whose look at the readers lies before this.
    MutexLock lock(mutex_);
    return flips_.load(std::memory_order_relaxed) + 2;
}

bool ReaderEpochs::poll_grace_period(uint64_t grace_period) {
    if (flips_.load(std::memory_order_acquire) >= grace_period) {
        return true;
    }
    MutexLock lock(mutex_);
    return advance(grace_period);
}

void ReaderEpochs::synchronize() {
    const uint64_t grace_period = begin_grace_period();
    host::Condition nobody_notifies;
    uint64_t pause_us = kFirstPause_us;
    MutexLock lock(mutex_);
    while (!advance(grace_period)) {
        (void)nobody_notifies.wait_for(mutex_, pause_us);
        pause_us = pause_us * 2 < kLongestPause_us ? pause_us * 2 : kLongestPause_us;
    }
}

}  // namespace tiffin
