// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/shm/direct_gate.h"

#include <sched.h>

namespace tiffin::rdma_blk {
namespace {

size_t preferred_place() {
    static std::atomic<size_t> next{0};
    thread_local const size_t mine = next.fetch_add(1, std::memory_order_relaxed);
    return mine;
}

}  // namespace

// Whoever enters takes a place and then looks at the gate; whoever closes shuts it and then looks at the places. Both
// orders are sequentially consistent, so that one of the two sees the other.
DirectGate::Place* DirectGate::enter() {
    const size_t first = preferred_place();
    for (size_t tried = 0;; tried++) {
        Place& place = places_[(first + tried) % kPlaces];
        uint32_t free = 0;
        if (place.is_taken.load(std::memory_order_relaxed) == 0 &&
            place.is_taken.compare_exchange_strong(free, 1)) {
            if (is_open_.load()) {
                return &place;
            }
            leave(place);
            return nullptr;
        }
        if (tried >= kPlaces) {
            sched_yield();  // more threads than places are within a copy
        }
    }
}

void DirectGate::close() {
    is_open_.store(false);
    for (Place& place : places_) {
        while (place.is_taken.load() != 0) {
            sched_yield();  // it copies at most Limits::transfer_bytes
        }
    }
}

uint64_t DirectGate::change_count() const {
    uint64_t total = 0;
    for (const Place& place : places_) {
        total += place.changes.load(std::memory_order_acquire);
    }
    return total;
}

void DirectGate::add_to(Statistics& statistics) const {
    for (const Place& place : places_) {
        for (size_t kind = 0; kind < 6; kind++) {
            const uint64_t count = place.operations[kind].load(std::memory_order_relaxed);
            statistics.operations[kind] += count;
            statistics.outcomes[static_cast<size_t>(Outcome::executed)] += count;
        }
        statistics.bytes_read += place.bytes_read.load(std::memory_order_relaxed);
        statistics.bytes_written += place.bytes_written.load(std::memory_order_relaxed);
        statistics.system_calls += place.system_calls.load(std::memory_order_relaxed);
    }
}

}  // namespace tiffin::rdma_blk
