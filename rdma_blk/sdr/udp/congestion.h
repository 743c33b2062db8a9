// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How much may be on the way: a window in bytes, by delay first and by loss second. Sans I/O.
//
// By delay (after Swift, Kumar et al., SIGCOMM 2020, and RFC 6817): the round trip is compared with the smallest one. As
// long as the difference, which is what waits in queues, is below a target, the window grows: doubling per round trip at
// first, later by a packet and a share of itself, and only when half of it was used (RFC 7661); above it, it shrinks in
// proportion, at most once per round trip and by a quarter. Loss alone is no sign of a full queue on the links this is
// made for: only above kCongestionLossPercent in a round trip the window is reduced.
//
// Against a competitor that goes by loss (as Copa, Arun and Balakrishnan, NSDI 2018): a queue that stays above the target
// for kCompetitorRounds although the window shrinks is somebody else's. The window is then CUBIC's, and a loss reduces it
// once the queue gets shorter after it (the other has lost something, too) or it has happened in kLossRounds, if the queue
// is at least half as long as it has been lately: with a short queue, loss is chance. When a probe shows that nobody else
// fills the queue, it goes by delay again.
//
// The smallest round trip is forgotten when it has not come back for kRoundTripMemoryNs; then the window is closed to a
// few packets for two round trips, as BBR does, so that what this flow has put into queues is not measured.
//
// When nothing is heard for a timeout (three round trips; a second before the first is measured, as RFC 6298 has it), what
// was on the way is taken for lost.
#pragma once

#include <cstdint>

#include "rdma_blk/sdr/udp/cubic_window.h"
#include "rdma_blk/sdr/udp/delivery_rate.h"

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
    // What this flow gets through, when it has sent as much as the window allows, without pauses, and that no longer doubles;
    // 0: it has not.
    uint64_t rate_bytes_per_s() const { return rate_.bytes_per_s(); }
    // How often nothing was heard for a timeout since something was.
    uint32_t timeouts_in_a_row() const { return timeouts_; }
    // Whether somebody who goes by loss shares the path, as far as can be seen.
    bool is_competing() const { return is_competing_; }

  private:
    // What a round trip showed.
    struct Round {
        uint64_t sent = 0;
        uint64_t lost = 0;
        uint64_t queued_ns = 0;
        uint64_t target_ns = 0;
        bool is_lossy = false;  // beyond chance
        bool was_used = false;
    };

    void end_round(uint64_t now_ns, uint64_t received);
    void begin_round(uint64_t received);
    void measure_rate(uint64_t now_ns, uint64_t came, bool was_used);
    void follow_delay(const Round& round);
    void follow_loss(uint64_t now_ns, const Round& round);
    void look_for_competitor(uint64_t now_ns, const Round& round);
    void begin_probe();
    void end_probe(uint64_t now_ns);
    uint64_t in_flight_bytes() const { return (next_number_ - settled_) * packet_bytes_; }
    uint64_t open_bytes() const;
    uint64_t timeout_ns() const;

    uint64_t packet_bytes_;
    uint64_t most_bytes_;
    uint64_t window_bytes_;
    bool starting_ = true;  // doubling
    uint64_t next_number_ = 0;
    uint64_t settled_ = 0;  // packets before this have come, or are lost
    uint64_t last_event_ns_ = 0;
    uint32_t timeouts_ = 0;
    uint64_t smallest_ns_ = ~uint64_t{0};
    uint64_t smallest_at_ns_ = 0;  // when it was seen last
    uint64_t smoothed_ns_ = 0;
    // A round begins when the packet that was next at its start has come.
    uint64_t round_end_ = 0;
    uint64_t round_first_ = 0;
    uint64_t round_received_ = 0;
    uint64_t round_smallest_ns_ = ~uint64_t{0};
    uint64_t round_peak_bytes_ = 0;  // the most that was on the way
    uint64_t rounds_ = 0;
    bool has_lost_ = false;
    DeliveryRate rate_;

    // Against a competitor.
    bool is_competing_ = false;
    CubicWindow cubic_;
    uint32_t long_queue_rounds_ = 0;  // in a row
    uint64_t contested_bytes_ =
        0;  // the window that it had when it met one the last time; 0: not lately
    uint64_t long_queue_window_ = 0;  // the window when the first of them began
    uint64_t uncontested_bytes_ = 0;  // since then, the largest with a short queue
    uint64_t peak_queue_ns_ = 0;      // lately
    uint64_t last_queued_ns_ = 0;
    uint32_t loss_rounds_ = 0;    // since the last reduction
    bool is_recovering_ = false;  // losses of this round belong to the reduction that was made

    // Looking for the smallest round trip: rounds left; 0: not now.
    uint32_t probe_rounds_ = 0;
    uint64_t probed_round_ = 0;  // when the last one ended
    uint64_t probed_ns_ = 0;     // what the last one has seen
    uint32_t longer_probes_ =
        0;  // in a row that have seen about the same, and more than the smallest
};

}  // namespace tiffin::rdma_blk::sdr
