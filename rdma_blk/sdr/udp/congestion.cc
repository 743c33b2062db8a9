// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/udp/congestion.h"

#include <algorithm>

#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

Congestion::Congestion(uint64_t packet_bytes, uint64_t most_bytes)
    : packet_bytes_(packet_bytes),
      most_bytes_(std::max(most_bytes, kMinWindowPackets * packet_bytes)),
      window_bytes_(std::min(kInitialWindowPackets * packet_bytes, most_bytes_)),
      rate_(packet_bytes) {}

uint64_t Congestion::timeout_ns() const {
    return smoothed_ns_ == 0 ? kInitialFeedbackTimeoutNs
                             : std::clamp(smoothed_ns_ * 3, kMinFeedbackTimeoutNs, kMaxTimeoutNs);
}

uint64_t Congestion::timeout_at_ns() const {
    return next_number_ == settled_ ? ~uint64_t{0} : last_event_ns_ + timeout_ns();
}

void Congestion::on_sent(uint64_t now_ns, uint64_t number, uint64_t bytes) {
    const bool has_paused = next_number_ == settled_ && now_ns - last_event_ns_ > smoothed_ns_ / 8;
    rate_.on_sent(bytes, has_paused);
    if (next_number_ == settled_) {
        if (now_ns - last_event_ns_ > smoothed_ns_ && probe_rounds_ > 0) {
            // After a pause nothing of this flow is in any queue: what comes now is what a probe would see.
            probe_rounds_ = 0;
            smallest_ns_ = ~uint64_t{0};
            round_smallest_ns_ = ~uint64_t{0};  // or it would be smaller than the smallest
        }
        last_event_ns_ = now_ns;
    }
    next_number_ = number + 1;
    round_peak_bytes_ = std::max(round_peak_bytes_, in_flight_bytes());
}

// The window, but for a probe.
uint64_t Congestion::open_bytes() const {
    return probe_rounds_ > 0 ? std::min(window_bytes_, kMinWindowPackets * packet_bytes_)
                             : window_bytes_;
}

uint64_t Congestion::room_bytes(uint64_t now_ns) {
    if (now_ns >= timeout_at_ns()) {
        settled_ = next_number_;
        timeouts_++;
        window_bytes_ = std::max(window_bytes_ / 2, kMinWindowPackets * packet_bytes_);
        starting_ = false;
        cubic_.start(now_ns, window_bytes_, window_bytes_);
        last_event_ns_ = now_ns;
    }
    return open_bytes() - std::min(open_bytes(), in_flight_bytes());
}

void Congestion::on_feedback(uint64_t now_ns, uint64_t highest, uint64_t received,
                             uint64_t round_trip_ns) {
    if (highest >= next_number_) {
        return;  // not sent yet
    }
    // Also when the packet was given up by then: else a path that is longer than the timeout would never be measured.
    last_event_ns_ = now_ns;
    timeouts_ = 0;
    smoothed_ns_ = smoothed_ns_ == 0 ? round_trip_ns : (smoothed_ns_ * 7 + round_trip_ns) / 8;
    if (round_trip_ns <= smallest_ns_) {
        smallest_ns_ = round_trip_ns;
        smallest_at_ns_ = now_ns;
    }
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
void Congestion::end_round(uint64_t now_ns, uint64_t received) {
    Round round;
    round.sent = settled_ - round_first_;
    const uint64_t came = std::min(received - std::min(received, round_received_), round.sent);
    round.lost = round.sent - came;
    round.is_lossy = round.sent >= kMinWindowPackets &&
                     round.lost * 100 > round.sent * uint64_t{kCongestionLossPercent};
    round.queued_ns = round_smallest_ns_ - smallest_ns_;
    round.target_ns = std::max(kMinQueueTargetNs, smallest_ns_ / 4);
    round.was_used = round_peak_bytes_ >= window_bytes_ / 2;
    has_lost_ = has_lost_ || round.lost > 0;
    measure_rate(now_ns, came, round.was_used);
    if (probe_rounds_ > 0) {
        if (--probe_rounds_ == 0) {
            end_probe(now_ns);
        }
    } else {
        look_for_competitor(now_ns, round);
        if (is_competing_) {
            follow_loss(now_ns, round);
        } else {
            follow_delay(round);
        }
        const uint64_t memory_ns =
            std::max(kRoundTripMemoryNs, smallest_ns_ * kRoundTripMemoryRounds);
        if (now_ns - smallest_at_ns_ > memory_ns && round.was_used) {
            begin_probe();
        }
    }
    window_bytes_ = std::clamp(window_bytes_, kMinWindowPackets * packet_bytes_, most_bytes_);
    rounds_++;
    begin_round(received);
}

// A window that is still doubling, and one that is closed for a probe, say nothing of the path.
void Congestion::measure_rate(uint64_t now_ns, uint64_t came, bool was_used) {
    const bool is_limited_by_path = !starting_ || window_bytes_ == most_bytes_;
    rate_.end_round(now_ns, came, round_peak_bytes_ / packet_bytes_,
                    was_used && is_limited_by_path && probe_rounds_ == 0);
}

void Congestion::begin_round(uint64_t received) {
    round_first_ = settled_;
    round_received_ = received;
    round_end_ = next_number_;
    round_smallest_ns_ = ~uint64_t{0};
    round_peak_bytes_ = in_flight_bytes();
}

void Congestion::follow_delay(const Round& round) {
    if (round.queued_ns > round.target_ns || round.is_lossy) {
        const uint64_t excess_percent =
            round.is_lossy ? 25
                           : std::min<uint64_t>(
                                 (round.queued_ns - round.target_ns) * 100 / round.queued_ns, 25);
        window_bytes_ -= window_bytes_ * excess_percent / 100;
        if (starting_ && has_lost_) {
            begin_probe();  // the queue may have been full when this flow came to it, and be in every round trip seen
        }
        starting_ = false;
    } else if (!round.was_used) {
        // Nothing is known of a larger one (RFC 7661).
    } else if (starting_) {
        window_bytes_ *= 2;
    } else {
        window_bytes_ += packet_bytes_ + window_bytes_ / 16;
    }
}

void Congestion::follow_loss(uint64_t now_ns, const Round& round) {
    // Losses with a short queue are chance.
    const bool is_loss = round.lost > 0 && round.queued_ns > kMinQueueTargetNs &&
                         round.queued_ns >= peak_queue_ns_ / 2;
    loss_rounds_ += is_loss ? 1 : 0;
    // The other has made room: it has lost something, too.
    const bool has_fallen = round.queued_ns + peak_queue_ns_ / 8 < last_queued_ns_;
    last_queued_ns_ = round.queued_ns;
    if (is_recovering_) {
        is_recovering_ = false;
        loss_rounds_ = 0;
    } else if (round.is_lossy || (loss_rounds_ > 0 && (has_fallen || starting_)) ||
               loss_rounds_ >= kLossRounds) {
        window_bytes_ = cubic_.reduce(now_ns, window_bytes_);
        starting_ = false;
        is_recovering_ = true;
        loss_rounds_ = 0;
    } else if (!round.was_used) {
        cubic_.start(now_ns, window_bytes_, window_bytes_);
    } else if (starting_) {
        window_bytes_ *= 2;
    } else {
        window_bytes_ = cubic_.grow(now_ns, window_bytes_, smoothed_ns_);
    }
}

void Congestion::look_for_competitor(uint64_t now_ns, const Round& round) {
    peak_queue_ns_ = std::max(peak_queue_ns_ - peak_queue_ns_ / 128, round.queued_ns);
    if (is_competing_) {
        return;
    }
    const bool is_long = round.queued_ns > round.target_ns;
    if (is_long && long_queue_rounds_ == 0) {
        long_queue_window_ = window_bytes_;
    }
    // One that gets shorter as this flow gives way is its own.
    const bool is_shrinking = round.queued_ns < last_queued_ns_ - last_queued_ns_ / 8;
    last_queued_ns_ = round.queued_ns;
    if (!is_long) {
        long_queue_rounds_ = 0;
    } else if (!is_shrinking) {
        long_queue_rounds_++;
    }
    // Who has met one lately is quicker to see it again: by what it takes from the window that kept the queue short.
    if (!is_long && rounds_ > probed_round_ + kSettlingRounds) {
        uncontested_bytes_ = std::max(uncontested_bytes_, window_bytes_);
    }
    const bool is_back =
        is_long && contested_bytes_ > 0 && window_bytes_ < uncontested_bytes_ / 4 * 3;
    if (long_queue_rounds_ >= kCompetitorRounds || is_back) {
        is_competing_ = true;
        // The queue that ended the doubling was the other's: as TCP does, on until something is lost.
        starting_ = rounds_ < kEarlyRounds;
        is_recovering_ = false;
        loss_rounds_ = 0;
        // What the queue was taken for its own for has been given away meanwhile.
        window_bytes_ = std::max({window_bytes_, long_queue_window_, contested_bytes_});
        if (contested_bytes_ == 0) {
            cubic_.start(now_ns, window_bytes_, window_bytes_);
        }  // else it goes on where it was
    }
}

// One round until what is on the way has come, one with next to nothing on the way.
void Congestion::begin_probe() { probe_rounds_ = 2; }

void Congestion::end_probe(uint64_t now_ns) {
    const uint64_t seen_ns = round_smallest_ns_;
    const uint64_t target_ns = std::max(kMinQueueTargetNs, seen_ns / 4);
    smallest_at_ns_ = now_ns;
    // That the queue is shorter now is this flow's doing, and when its window opens again it may be lost at once.
    last_queued_ns_ = 0;
    is_recovering_ = true;
    probed_round_ = rounds_;
    if (seen_ns > smallest_ns_ + target_ns) {
        // The path is longer now, or somebody else's queue stands in it, which does not stay the same.
        const uint64_t apart_ns = std::max(seen_ns, probed_ns_) - std::min(seen_ns, probed_ns_);
        longer_probes_ = apart_ns <= seen_ns / 16 ? longer_probes_ + 1 : 1;
        probed_ns_ = seen_ns;
        if (longer_probes_ < kLongerPathProbes) {
            return;
        }
    }
    longer_probes_ = 0;
    smallest_ns_ = seen_ns;
    contested_bytes_ = is_competing_ ? window_bytes_ : 0;
    uncontested_bytes_ = 0;
    is_competing_ = false;
    long_queue_rounds_ = 0;
}

}  // namespace tiffin::rdma_blk::sdr
