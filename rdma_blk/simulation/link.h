// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One direction of a network path in virtual time: a queue, a wire of some rate behind it, and a delay. Packets may
// be lost, doubled, or held back so that others pass them.
//
// A link computes when packets arrive; it keeps none. Whoever sends puts the arrivals into an EventQueue, so that
// any kind of packet can travel. Packets that follow each other go in as one run and come out as few runs: what it
// costs depends on the number of losses, not of packets, and the result is the same as for packets one by one.
//
// Deterministic: the same options, seed and calls give the same arrivals. One thread at a time.
#pragma once

#include <cstdint>

#include "rdma_blk/simulation/loss.h"
#include "rdma_blk/simulation/random.h"

namespace tiffin::rdma_blk::simulation {

struct LinkOptions {
    double bits_per_second = 1e9;  // > 0
    uint64_t delay_ns = 0;         // from a packet's last bit on the wire until it arrives
    // What may wait for the wire or be on it. A packet that would not fit is dropped: a tail drop. 0: no bound.
    uint64_t queue_bytes = 0;
    LossOptions loss;
    double duplicate_rate = 0;  // of a packet that arrives: that it does so twice
    // A packet may be held back by up to held_ns, drawn evenly, without delaying others.
    double hold_rate = 0;
    uint64_t held_ns = 0;
};

// Packets, in the order of sending. All but runs of one packet are evenly spaced from first_ns to last_ns.
struct Arrival {
    uint64_t first = 0;  // of the packets given to send(), from 0
    uint64_t count = 0;
    uint64_t first_ns = 0;
    uint64_t last_ns = 0;
};

struct LinkCounters {
    uint64_t sent_packets = 0;
    uint64_t sent_bytes = 0;  // that took time on the wire
    uint64_t lost_packets = 0;
    uint64_t tail_dropped_packets = 0;
    uint64_t duplicated_packets = 0;
    uint64_t held_packets = 0;
};

class Link {
  public:
    Link(const LinkOptions& options, uint64_t seed);

    // Sends `count` packets of `packet_bytes` each at `now_ns`, which must not go back, and calls `arrived(Arrival)`
    // for each run that arrives, in the order of sending.
    template <typename Function>
    void send(uint64_t now_ns, uint64_t count, uint64_t packet_bytes, Function&& arrived) {
        const uint64_t accepted = accept(now_ns, count, packet_bytes);
        for (uint64_t first = 0; first < accepted;) {
            const Piece piece = next_piece(accepted - first);
            if (piece.arrived > 0) {
                arrived(arrival_of(first, piece.arrived, packet_bytes, 0));
            }
            if (piece.single) {
                const uint64_t last = first + piece.arrived;
                arrived(arrival_of(last, 1, packet_bytes, piece.held_ns));
                if (piece.doubled) {
                    arrived(arrival_of(last, 1, packet_bytes, draw_hold_ns()));
                }
            }
            first += piece.taken;
        }
    }

    // When the wire is free: a sender that keeps to it never meets a tail drop of its own making.
    [[nodiscard]] uint64_t free_ns() const { return static_cast<uint64_t>(free_ns_); }
    // What waits for the wire or is on it.
    [[nodiscard]] uint64_t queued_bytes(uint64_t now_ns) const;
    [[nodiscard]] const LinkCounters& counters() const { return counters_; }
    [[nodiscard]] const LinkOptions& options() const { return options_; }

  private:
    // The next packets of a run: some that arrive as sent, then at most one that is special.
    struct Piece {
        uint64_t taken = 0;
        uint64_t arrived = 0;
        bool single = false;  // one more arrives, on its own
        bool doubled = false;
        uint64_t held_ns = 0;
    };

    uint64_t accept(uint64_t now_ns, uint64_t count, uint64_t packet_bytes);
    Piece next_piece(uint64_t most);
    Arrival arrival_of(uint64_t first, uint64_t count, uint64_t packet_bytes,
                       uint64_t held_ns) const;
    uint64_t draw_hold_ns();

    LinkOptions options_;
    Loss loss_;
    Random random_;
    double ns_per_byte_;
    uint64_t before_duplicate_;
    uint64_t before_hold_;
    // Fractions of a nanosecond count: at 400 Gbit/s, 4 KiB take 81.92 ns.
    double run_start_ns_ = 0;
    double free_ns_ = 0;
    LinkCounters counters_;
};

}  // namespace tiffin::rdma_blk::simulation
