// SPDX-License-Identifier: MIT OR GPL-2.0-only
// An amount that many threads take from and give back to, of which never more may be taken than there is: free
// blocks, room in the journal, spare nodes. As long as there is plenty, each processor has some at hand in a cache
// line of its own, so that taking and giving back make no line travel; when it becomes scarce, what was at hand
// is brought together again and the count is exact. (The idea is that of Linux's percpu_counter; here with a
// guarantee for those who take.)
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/race_point.h"
#include "fs/vfs/host.h"

namespace tiffin {

// Any thread, no locks, but for start().
class StripedBudget {
  public:
    // While nobody else uses it: there is `amount` (which may be negative). A processor fetches `batch` at a time
    // and keeps less than four of these, as long as at least `plenty` is left in common; `batch` 0: never.
    void start(int64_t amount, int64_t batch, int64_t plenty) {
        for (Stripe& stripe : stripes_) {
            stripe.at_hand.store(0, std::memory_order_relaxed);
        }
        batch_ = batch;
        plenty_ = batch > 0 ? plenty : kNever;
        common_.store(amount, std::memory_order_relaxed);
    }

    // Takes as much of `wanted` as there is above `kept` (at most `plenty`), but at least `minimum` or nothing;
    // returns how much. It can be too little by what others give back at this moment.
    [[nodiscard]] int64_t take_up_to(int64_t wanted, int64_t minimum, int64_t kept) {
        if (take_at_hand(wanted)) {
            return wanted;
        }
        gather();
        int64_t common = common_.load(std::memory_order_relaxed);
        for (;;) {
            const int64_t usable = common - kept;
            if (usable < minimum || usable <= 0) {
                return 0;
            }
            const int64_t amount = usable < wanted ? usable : wanted;
            if (common_.compare_exchange_weak(common, common - amount, std::memory_order_relaxed)) {
                return amount;
            }
        }
    }
    // All of it or nothing.
    [[nodiscard]] bool take(int64_t amount) { return take_up_to(amount, amount, 0) == amount; }

    // The same, but leaves alone what other processors have at hand and, in common, what is not plenty.
    [[nodiscard]] bool take_at_hand(int64_t amount) {
        int64_t common = common_.load(std::memory_order_relaxed);
        if (common < plenty_) {
            return false;
        }
        std::atomic<int64_t>& mine = my_stripe();
        int64_t at_hand = mine.load(std::memory_order_relaxed);
        while (at_hand >= amount) {
            if (mine.compare_exchange_weak(at_hand, at_hand - amount, std::memory_order_relaxed)) {
                return true;
            }
        }
        const int64_t fetched = at_hand < batch_ ? batch_ : 0;
        while (common - amount - fetched >= plenty_) {
            if (common_.compare_exchange_weak(common, common - amount - fetched,
                                              std::memory_order_relaxed)) {
                race_point();
                mine.fetch_add(fetched, std::memory_order_relaxed);
                return true;
            }
        }
        return false;
    }

    // Gives `amount` back, or takes it without asking when it is negative.
    void give(int64_t amount) {
        if (amount < 0 || common_.load(std::memory_order_relaxed) < plenty_) {
            common_.fetch_add(amount, std::memory_order_relaxed);
            return;
        }
        race_point();
        std::atomic<int64_t>& mine = my_stripe();
        int64_t at_hand = mine.fetch_add(amount, std::memory_order_relaxed) + amount;
        if (at_hand >= 4 * batch_ &&
            mine.compare_exchange_strong(at_hand, 2 * batch_, std::memory_order_relaxed)) {
            common_.fetch_add(at_hand - 2 * batch_, std::memory_order_relaxed);
        }
    }

    // Exact when nobody takes or gives meanwhile.
    [[nodiscard]] int64_t sum() const {
        int64_t total = common_.load(std::memory_order_relaxed);
        for (const Stripe& stripe : stripes_) {
            total += stripe.at_hand.load(std::memory_order_relaxed);
        }
        return total;
    }
    // A part of it, for those to whom it matters only whether there is enough: reads one line, which seldom
    // changes.
    [[nodiscard]] int64_t at_least() const { return common_.load(std::memory_order_relaxed); }

  private:
    static constexpr uint32_t kStripes = 8;
    static constexpr int64_t kNever = INT64_MAX;
    struct alignas(64) Stripe {
        std::atomic<int64_t> at_hand{0};  // never negative
    };

    std::atomic<int64_t>& my_stripe() {
        return stripes_[host::concurrency_hint() % kStripes].at_hand;
    }
    void gather() {
        for (Stripe& stripe : stripes_) {
            if (stripe.at_hand.load(std::memory_order_relaxed) != 0) {
                const int64_t at_hand = stripe.at_hand.exchange(0, std::memory_order_relaxed);
                race_point();
                common_.fetch_add(at_hand, std::memory_order_relaxed);
            }
        }
    }

    // Read by all, changed seldom while there is plenty.
    alignas(64) std::atomic<int64_t> common_{0};
    int64_t batch_ = 0;
    int64_t plenty_ = kNever;
    Stripe stripes_[kStripes];
};

}  // namespace tiffin
