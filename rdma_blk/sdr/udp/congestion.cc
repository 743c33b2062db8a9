// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/udp/congestion.h"

#include <algorithm>

#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

Congestion::Congestion(uint64_t packet_bytes, uint64_t most_bytes)
    : packet_bytes_(packet_bytes),
      most_bytes_(std::max(most_bytes, kMinWindowPackets * packet_bytes)),
      window_bytes_(std::min(kInitialWindowPackets * packet_bytes, most_bytes_)) {}

uint64_t Congestion::timeout_ns() const {
    return smoothed_ns_ == 0 ? kInitialFeedbackTimeoutNs
                             : std::clamp(smoothed_ns_ * 3, kMinFeedbackTimeoutNs, kMaxTimeoutNs);
}

uint64_t Congestion::timeout_at_ns() const {
    return next_number_ == settled_ ? ~uint64_t{0} : last_event_ns_ + timeout_ns();
}

void Congestion::on_sent(uint64_t now_ns, uint64_t number, uint64_t /*bytes*/) {
    if (next_number_ == settled_) {
        last_event_ns_ = now_ns;
    }
    next_number_ = number + 1;
    round_peak_bytes_ = std::max(round_peak_bytes_, in_flight_bytes());
}

uint64_t Congestion::room_bytes(uint64_t now_ns) {
    if (now_ns >= timeout_at_ns()) {
        settled_ = next_number_;
        window_bytes_ = std::max(window_bytes_ / 2, kMinWindowPackets * packet_bytes_);
        starting_ = false;
        last_event_ns_ = now_ns;
    }
    return window_bytes_ - std::min(window_bytes_, in_flight_bytes());
}

void Congestion::on_feedback(uint64_t now_ns, uint64_t highest, uint64_t received,
                             uint64_t round_trip_ns) {
    if (highest >= next_number_) {
        return;  // not sent yet
    }
    // Also when the packet was given up by then: else a path that is longer than the timeout would never be measured.
    last_event_ns_ = now_ns;
    smoothed_ns_ = smoothed_ns_ == 0 ? round_trip_ns : (smoothed_ns_ * 7 + round_trip_ns) / 8;
    smallest_ns_ = std::min(smallest_ns_, round_trip_ns);
    round_smallest_ns_ = std::min(round_smallest_ns_, round_trip_ns);
    if (highest + 1 < settled_) {
        return;
    }
    settled_ = highest + 1;
    if (settled_ > round_end_) {
        end_round(now_ns, received);
    }
}

// Once per round trip. The smallest delay of the round decides: a single one may have met a sleeping thread.
void Congestion::end_round(uint64_t /*now_ns*/, uint64_t received) {
    const uint64_t sent = settled_ - round_first_;
    const uint64_t came = std::min(received - std::min(received, round_received_), sent);
    const bool is_lossy =
        sent >= kMinWindowPackets && (sent - came) * 100 > sent * uint64_t{kCongestionLossPercent};
    const uint64_t queued_ns = round_smallest_ns_ - smallest_ns_;
    const uint64_t target_ns = std::max(kMinQueueTargetNs, smallest_ns_ / 4);
    if (queued_ns > target_ns || is_lossy) {
        const uint64_t excess_percent =
            is_lossy ? 25 : std::min<uint64_t>((queued_ns - target_ns) * 100 / queued_ns, 25);
        window_bytes_ -= window_bytes_ * excess_percent / 100;
        starting_ = false;
    } else if (round_peak_bytes_ < window_bytes_ / 2) {
        // It was not used, so nothing is known of a larger one (RFC 7661).
    } else if (starting_) {
        window_bytes_ *= 2;
    } else {
        window_bytes_ += packet_bytes_ + window_bytes_ / 16;
    }
    window_bytes_ = std::clamp(window_bytes_, kMinWindowPackets * packet_bytes_, most_bytes_);
    round_first_ = settled_;
    round_received_ = received;
    round_end_ = next_number_;
    round_smallest_ns_ = ~uint64_t{0};
    round_peak_bytes_ = in_flight_bytes();
}

}  // namespace tiffin::rdma_blk::sdr
