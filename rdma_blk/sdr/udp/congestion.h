// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How much may be on the way: a window in bytes, by delay first and by loss second. Sans I/O.
//
// The round trip is compared with the smallest one seen. As long as the difference, which is what waits in queues,
// is below a target, the window grows: doubling per round trip at first, later by a packet and a share of itself, and
// only when half of it was used (RFC 7661); above it, it shrinks in proportion, at most once per round trip and by a quarter. Loss alone is no sign of a full queue on
// the links this is made for: only above kCongestionLossPercent in a round trip the window is reduced. When nothing
// is heard for a timeout (three round trips; a second before the first is measured, as RFC 6298 has it), what was on
// the way is taken for lost. (After Swift, Kumar et al., SIGCOMM 2020, and
// RFC 6817.)
#pragma once

#include <cstdint>

namespace tiffin::rdma_blk::sdr {

class Congestion {
  public:
    // `most_bytes`: never more on the way than this (the peer's socket buffer).
    Congestion(uint64_t packet_bytes, uint64_t most_bytes);

    void on_sent(uint64_t now_ns, uint64_t number, uint64_t bytes);
    // The peer has seen `highest` and `received` packets in all; `round_trip_ns` is that of the highest.
    void on_feedback(uint64_t now_ns, uint64_t highest, uint64_t received, uint64_t round_trip_ns);

    // Bytes that may be sent now.
    uint64_t room_bytes(uint64_t now_ns);
    // When room_bytes() changes by itself, if nothing is heard; ~0: never.
    uint64_t timeout_at_ns() const;

    uint64_t window_bytes() const { return window_bytes_; }
    uint64_t round_trip_ns() const { return smoothed_ns_; }

  private:
    void end_round(uint64_t now_ns, uint64_t received);
    uint64_t in_flight_bytes() const { return (next_number_ - settled_) * packet_bytes_; }
    uint64_t timeout_ns() const;

    uint64_t packet_bytes_;
    uint64_t most_bytes_;
    uint64_t window_bytes_;
    bool starting_ = true;  // doubling
    uint64_t next_number_ = 0;
    uint64_t settled_ = 0;  // packets before this have come, or are lost
    uint64_t last_event_ns_ = 0;
    uint64_t smallest_ns_ = ~uint64_t{0};
    uint64_t smoothed_ns_ = 0;
    // A round begins when the packet that was next at its start has come.
    uint64_t round_end_ = 0;
    uint64_t round_first_ = 0;
    uint64_t round_received_ = 0;
    uint64_t round_smallest_ns_ = ~uint64_t{0};
    uint64_t round_peak_bytes_ = 0;  // the most that was on the way
};

}  // namespace tiffin::rdma_blk::sdr
