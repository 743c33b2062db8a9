// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Lets operations touch mapped memory while a session is ready, counts them, and can wait until none is under
// way. There is no line of cache that all threads write: each takes a place of its own, alone for as long as
// its operation lasts, so that counting in it needs no atomic instruction but the one that takes it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rdma_blk/remote_memory.h"

namespace tiffin::rdma_blk {

class DirectGate {
  public:
    // One thread's place. Written by who has it, read by anybody.
    struct alignas(128) Place {
        std::atomic<uint32_t> is_taken{0};
        std::atomic<uint64_t> changes{0};  // writes and atomics
        std::atomic<uint64_t> operations[6]{};
        std::atomic<uint64_t> bytes_read{0};
        std::atomic<uint64_t> bytes_written{0};
        std::atomic<uint64_t> system_calls{0};
    };
    static void add(std::atomic<uint64_t>& counter, uint64_t by) {
        counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
    // What is counted has been done, for whoever reads the count: a flush that covers it finds it in memory.
    static void count_change(Place& place) {
        place.changes.store(place.changes.load(std::memory_order_relaxed) + 1,
                            std::memory_order_release);
    }

    // nullptr: closed. Else the caller may use what the gate guards until leave(), which comes soon.
    Place* enter();
    static void leave(Place& place) { place.is_taken.store(0, std::memory_order_release); }

    bool is_open() const { return is_open_.load(std::memory_order_acquire); }
    // What was written before is visible to who enters.
    void open() { is_open_.store(true); }
    // Returns once everybody has left. One thread at a time.
    void close();

    uint64_t change_count() const;
    void add_to(Statistics& statistics) const;

  private:
    static constexpr size_t kPlaces = 64;

    std::atomic<bool> is_open_{false};
    Place places_[kPlaces];
};

}  // namespace tiffin::rdma_blk
