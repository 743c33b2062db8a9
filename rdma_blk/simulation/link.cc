// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/simulation/link.h"

#include <algorithm>
#include <cmath>

namespace tiffin::rdma_blk::simulation {

Link::Link(const LinkOptions& options, uint64_t seed)
    : options_(options),
      loss_(options.loss, seed),
      random_(seed ^ 0x6c696e6b),
      ns_per_byte_(8e9 / options.bits_per_second),
      before_duplicate_(random_.trials_before(options.duplicate_rate)),
      before_hold_(random_.trials_before(options.hold_rate)) {}

uint64_t Link::queued_bytes(uint64_t now_ns) const {
    const double waiting_ns = free_ns_ - static_cast<double>(now_ns);
    return waiting_ns <= 0 ? 0 : static_cast<uint64_t>(std::llround(waiting_ns / ns_per_byte_));
}

// How many of them find room.
uint64_t Link::accept(uint64_t now_ns, uint64_t count, uint64_t packet_bytes) {
    uint64_t accepted = count;
    if (options_.queue_bytes > 0) {
        const uint64_t queued = queued_bytes(now_ns);
        const uint64_t room = options_.queue_bytes - std::min(queued, options_.queue_bytes);
        accepted = std::min(count, room / std::max<uint64_t>(packet_bytes, 1));
    }
    run_start_ns_ = std::max(free_ns_, static_cast<double>(now_ns));
    free_ns_ = run_start_ns_ + static_cast<double>(accepted * packet_bytes) * ns_per_byte_;
    counters_.sent_packets += accepted;
    counters_.sent_bytes += accepted * packet_bytes;
    counters_.tail_dropped_packets += count - accepted;
    return accepted;
}

Link::Piece Link::next_piece(uint64_t most) {
    const uint64_t plain = std::min({loss_.packets_before_loss(), before_duplicate_, before_hold_});
    if (plain >= most) {
        // Counters of what never happens stay where they are.
        loss_.take(most);
        before_duplicate_ -= before_duplicate_ == Random::kNever ? 0 : most;
        before_hold_ -= before_hold_ == Random::kNever ? 0 : most;
        return {.taken = most, .arrived = most};
    }

    Piece piece{.taken = plain + 1, .arrived = plain};
    const bool doubled = before_duplicate_ == plain;
    const bool held = before_hold_ == plain;
    if (loss_.take(plain + 1)) {
        ++counters_.lost_packets;
    } else {
        piece.single = true;
        piece.doubled = doubled;
        piece.held_ns = held ? draw_hold_ns() : 0;
        counters_.duplicated_packets += doubled ? 1 : 0;
        counters_.held_packets += held ? 1 : 0;
    }
    if (doubled) {
        before_duplicate_ = random_.trials_before(options_.duplicate_rate);
    } else if (before_duplicate_ != Random::kNever) {
        before_duplicate_ -= plain + 1;
    }
    if (held) {
        before_hold_ = random_.trials_before(options_.hold_rate);
    } else if (before_hold_ != Random::kNever) {
        before_hold_ -= plain + 1;
    }
    return piece;
}

Arrival Link::arrival_of(uint64_t first, uint64_t count, uint64_t packet_bytes,
                         uint64_t held_ns) const {
    const auto arrives_ns = [&](uint64_t packet) {
        const double sent_ns =
            run_start_ns_ + static_cast<double>((packet + 1) * packet_bytes) * ns_per_byte_;
        return static_cast<uint64_t>(std::llround(sent_ns)) + options_.delay_ns + held_ns;
    };
    return {first, count, arrives_ns(first), arrives_ns(first + count - 1)};
}

uint64_t Link::draw_hold_ns() {
    return options_.held_ns == 0 ? 0 : random_.below(options_.held_ns + 1);
}

}  // namespace tiffin::rdma_blk::simulation
