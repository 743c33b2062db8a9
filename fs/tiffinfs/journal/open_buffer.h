// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How far the buffer is filled that takes transactions, in one word: taking a place in it is one atomic step in one
// cache line, which is all that threads that append at the same time share. (Log managers of databases reserve
// their room like that: Johnson and others, "Aether: A Scalable Approach to Logging", VLDB 2010.)
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/race_point.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {

class OpenBuffer {
  public:
    static constexpr uint32_t kMaximumSlots = 4;
    // Places begin at multiples of this and take as much: so no two threads write to one cache line.
    static constexpr uint32_t kUnitBytes = 64;
    static constexpr uint32_t kMaximumBytes = ((1U << 19) - 1) * kUnitBytes;
    static constexpr uint32_t place_bytes(uint32_t size_bytes) {
        return (size_bytes + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
    }
    static constexpr uint32_t kMaximumTransactions = (1U << 16) - 1;

    // Its value at one moment. Never the same again after a change, as long as no thread sleeps through a hundred
    // million buffers.
    class State {
      public:
        State() = default;
        uint32_t slot() const { return static_cast<uint32_t>(word_ >> 35) % kMaximumSlots; }
        uint32_t transaction_count() const {
            return static_cast<uint32_t>(word_ >> 19) & kMaximumTransactions;
        }
        // That are taken, with what lies between transactions.
        uint32_t bytes() const {
            return (static_cast<uint32_t>(word_) & ((1U << 19) - 1)) * kUnitBytes;
        }
        // Two states of one buffer, however full.
        bool is_of_same_buffer(State other) const { return word_ >> 35 == other.word_ >> 35; }

      private:
        friend class OpenBuffer;
        explicit State(uint64_t word) : word_(word) {}
        State after(uint32_t size_bytes) const {
            return State(word_ + (uint64_t{1} << 19) + place_bytes(size_bytes) / kUnitBytes);
        }
        // The first state of the buffer behind this one.
        State next(uint32_t slot) const {
            return State(((word_ >> 37) + 1) << 37 | uint64_t{slot} << 35);
        }
        uint64_t word_ = 0;
    };

    // Acquiring, as all looks: what was done before the buffer was opened is seen.
    State look() const { return State(word_.load(std::memory_order_acquire)); }
    // Takes a place for `size_bytes`, unless more than `capacity_bytes` would be taken then. `state` is what was found:
    // on success the place begins at its bytes().
    [[nodiscard]] bool take_place(uint32_t size_bytes, uint32_t capacity_bytes, State& state) {
        // Beginning with an exchange that fails, not with a load, fetches the line once instead of twice: at first to
        // read, then to write.
        uint64_t word = kNever;
        (void)word_.compare_exchange_strong(word, word, std::memory_order_acquire);
        for (;;) {
            state = State(word);
            if (state.bytes() + place_bytes(size_bytes) > capacity_bytes) {
                return false;
            }
            race_point();
            if (word_.compare_exchange_weak(word, state.after(size_bytes).word_,
                                            std::memory_order_acq_rel, std::memory_order_acquire)) {
                return true;
            }
        }
    }
    // The buffer in `slot` is opened instead, if nothing has changed since `seen`.
    [[nodiscard]] bool close(State seen, uint32_t slot) {
        TIFFIN_ASSERT(slot < kMaximumSlots);
        return word_.compare_exchange_strong(seen.word_, seen.next(slot).word_,
                                             std::memory_order_acq_rel);
    }

  private:
    // Fuller than any.
    static constexpr uint64_t kNever = ~uint64_t{0};
    std::atomic<uint64_t> word_{0};
};

}  // namespace tiffin::tiffinfs
