// SPDX-License-Identifier: MIT OR GPL-2.0-only
// An amount that many threads take from and give back to, of which never more may be taken than there is: free
// blocks, room in the journal, spare nodes. As long as there is plenty, processors have some at hand in cache lines
// of their own (more than eight processors share them), so that taking and giving back make no line travel; when it
// becomes scarce, what was at hand is brought together again and the count is exact. (The idea is that of Linux's
// percpu_counter; here with a guarantee: an amount that is there can be taken.)
//
// What one thread moves from one line to another is for a moment in neither. Moves are counted when they begin and
// when they have ended, so that a thread that finds too little sees whether that was all, and looks again if not.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/race_point.h"
#include "fs/base/short_wait.h"
#include "fs/vfs/host.h"

namespace tiffin {

// Any thread, but for start(). No locks; take(), take_up_to() and sum() may have to wait for a thread that has lost
// its processor in the middle of a move (ShortWait says from where they may be called), a tenth of a second at most.
class StripedBudget {
  public:
    // Before any other use: there is `amount` (which may be negative). A processor fetches `batch` at a time, as
    // long as at least `plenty` is left in common; `batch` 0: never. It gives back what exceeds four of these, but for
    // what others do to its line at the same moment.
    void start(int64_t amount, int64_t batch, int64_t plenty) {
        for (Stripe& stripe : stripes_) {
            stripe.at_hand.store(0, std::memory_order_relaxed);
        }
        batch_ = batch;
        plenty_ = batch > 0 ? plenty : kNever;
        common_.store(amount, std::memory_order_relaxed);
    }

    // Takes as much of `wanted` as there is above `kept` (at most `plenty`), but at least `minimum` or nothing;
    // returns how much. Nothing: there was too little, but for what others give back at this moment.
    [[nodiscard]] int64_t take_up_to(int64_t wanted, int64_t minimum, int64_t kept) {
        TIFFIN_ASSERT(kept <= plenty_);  // take_at_hand() leaves that much
        if (take_at_hand(wanted)) {
            return wanted;
        }
        ShortWait wait;
        for (;;) {
            const Moves before = moves();
            const uint64_t own_moves = gather();
            const int64_t taken = take_common(wanted, minimum, kept);
            if (taken != 0 || wait.long_enough() || nothing_moved(before, own_moves)) {
                return taken;
            }
            wait.once();
        }
    }
    // All of it or nothing.
    [[nodiscard]] bool take(int64_t amount) { return take_up_to(amount, amount, 0) == amount; }

    // The same, but leaves alone what other processors have at hand and, in common, what is not plenty. Never waits.
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
        if (common - amount - fetched < plenty_) {
            return false;
        }
        begin_move();
        bool taken = false;
        while (!taken && common - amount - fetched >= plenty_) {
            taken =
                common_.compare_exchange_weak(common, common - amount - fetched,
                                              std::memory_order_release, std::memory_order_relaxed);
        }
        if (taken) {
            race_point();
            mine.fetch_add(fetched, std::memory_order_relaxed);
        }
        end_move();
        return taken;
    }

    // Gives `amount` back, or takes it without asking when it is negative. Never waits.
    void give(int64_t amount) {
        if (amount < 0 || common_.load(std::memory_order_relaxed) < plenty_) {
            common_.fetch_add(amount, std::memory_order_relaxed);
            return;
        }
        race_point();
        std::atomic<int64_t>& mine = my_stripe();
        int64_t at_hand = mine.fetch_add(amount, std::memory_order_relaxed) + amount;
        if (at_hand < 4 * batch_) {
            return;
        }
        begin_move();
        if (mine.compare_exchange_strong(at_hand, 2 * batch_, std::memory_order_release,
                                         std::memory_order_relaxed)) {
            race_point();
            common_.fetch_add(at_hand - 2 * batch_, std::memory_order_relaxed);
        }
        end_move();
    }

    // Exact when no thread takes or gives meanwhile.
    [[nodiscard]] int64_t sum() const {
        ShortWait wait;
        for (;;) {
            const Moves before = moves();
            const int64_t total = estimate();
            if (wait.long_enough() || nothing_moved(before, 0)) {
                return total;
            }
            wait.once();
        }
    }
    // The same without waiting: what is being moved may be missing, but is not counted twice where it is scarce.
    [[nodiscard]] int64_t estimate() const {
        // In common first: what is scarce moves there.
        int64_t total = common_.load(std::memory_order_acquire);
        for (const Stripe& stripe : stripes_) {
            total += stripe.at_hand.load(std::memory_order_acquire);
        }
        return total;
    }
    // A part of it, for callers that only need to know whether there is enough: reads one line, which seldom
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
    struct Moves {
        uint64_t ended;
        uint64_t begun;
    };

    // A move is begun before it takes anything away, and that is a release; it has ended after it has added as much
    // elsewhere. So a thread that sees (acquiring) that something was taken away sees the beginning as well, and one
    // that sees the end sees what was added.
    void begin_move() { moves_begun_.fetch_add(1, std::memory_order_relaxed); }
    void end_move() { moves_ended_.fetch_add(1, std::memory_order_release); }
    Moves moves() const {
        const uint64_t ended = moves_ended_.load(std::memory_order_acquire);
        return {ended, moves_begun_.load(std::memory_order_relaxed)};
    }
    // Between the look at `before` and now nothing was under way but `own_moves` of the caller.
    bool nothing_moved(const Moves& before, uint64_t own_moves) const {
        return before.ended == before.begun &&
               moves_begun_.load(std::memory_order_relaxed) == before.begun + own_moves;
    }

    // Brings what is at hand together. Returns how many moves that were: 0 or 1.
    uint64_t gather() {
        uint64_t moves = 0;
        for (Stripe& stripe : stripes_) {
            if (stripe.at_hand.load(std::memory_order_acquire) != 0) {
                if (moves == 0) {
                    begin_move();
                    moves = 1;
                }
                const int64_t at_hand = stripe.at_hand.exchange(0, std::memory_order_acq_rel);
                race_point();
                common_.fetch_add(at_hand, std::memory_order_relaxed);
            }
        }
        if (moves != 0) {
            end_move();
        }
        return moves;
    }
    int64_t take_common(int64_t wanted, int64_t minimum, int64_t kept) {
        int64_t common = common_.load(std::memory_order_acquire);
        for (;;) {
            const int64_t usable = common - kept;
            if (usable < minimum || usable <= 0) {
                return 0;
            }
            const int64_t amount = usable < wanted ? usable : wanted;
            if (common_.compare_exchange_weak(common, common - amount, std::memory_order_acquire)) {
                return amount;
            }
        }
    }

    // Read by all, changed seldom while there is plenty.
    alignas(64) std::atomic<int64_t> common_{0};
    int64_t batch_ = 0;
    int64_t plenty_ = kNever;
    std::atomic<uint64_t> moves_begun_{0};
    std::atomic<uint64_t> moves_ended_{0};
    Stripe stripes_[kStripes];
};

}  // namespace tiffin
