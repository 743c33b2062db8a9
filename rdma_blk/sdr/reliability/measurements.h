// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a connection measures of its path: round trip and loss.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

// Smoothed as by RFC 6298, but for samples that are far from all before them and come of one event: a peer which got no
// processor answers all at once that was sent to it meanwhile.
class RoundTrip {
  public:
    explicit RoundTrip(uint32_t initial_us) : smoothed_us_(initial_us) {}

    // `sent_us`: when what was answered was sent, by the clock of `now_us`.
    void add(uint32_t sample_us, uint64_t sent_us, uint64_t now_us) {
        sample_us = std::max<uint32_t>(sample_us, 1);
        if (!measured_) {
            smoothed_us_ = sample_us;
            variation_us_ = sample_us / 2.0;
            least_us_ = sample_us;
            measured_ = true;
            return;
        }
        const double most_us = kMostOfCareful * (smoothed_us_ + 4 * variation_us_);
        const bool is_late = sample_us > most_us;
        if (is_late && late_us_ != 0 && sent_us < late_us_) {
            return;
        }
        if (is_late && late_us_ == 0) {
            sample_us = static_cast<uint32_t>(most_us);
        }
        late_us_ = is_late ? now_us : 0;
        // Follows a path that has become longer, slowly.
        least_us_ = std::min<double>(sample_us, least_us_ + (sample_us - least_us_) / 64);
        const double difference = static_cast<double>(sample_us) - smoothed_us_;
        variation_us_ += (std::max(difference, -difference) - variation_us_) / 4;
        smoothed_us_ += difference / 8;
    }

    bool measured() const { return measured_; }
    uint32_t smoothed_us() const { return static_cast<uint32_t>(std::lround(smoothed_us_)); }
    uint64_t smoothed_ns() const { return static_cast<uint64_t>(smoothed_us_ * 1000); }

    // What was sent less than this ago, nobody can have missed yet; 0: not measured. A little less than the smallest
    // round trip, for the clocks' granularity.
    uint64_t least_ns() const {
        return static_cast<uint64_t>(std::max(least_us_ * 31 / 32 - 20, 0.0) * 1000);
    }

    // With room for its variation, as RFC 6298's timeout has: how long a peer waits before it asks again.
    uint32_t careful_us() const {
        return static_cast<uint32_t>(std::lround(smoothed_us_ + 4 * variation_us_));
    }

    // Of a retransmission: `percent` of the round trip, or what its variation asks for.
    uint64_t timeout_ns(uint32_t percent) const {
        const double multiple_us = smoothed_us_ * percent / 100;
        const double careful_us = smoothed_us_ + 4 * variation_us_;
        const auto wanted_ns = static_cast<uint64_t>(std::max(multiple_us, careful_us) * 1000);
        return std::clamp(wanted_ns, kMinTimeoutNs, kMaxTimeoutNs);
    }

  private:
    static constexpr double kMostOfCareful = 4;

    double smoothed_us_;
    double variation_us_ = 0;
    uint64_t late_us_ = 0;  // when the last sample came if it was late; else 0
    double least_us_ = 0;
    bool measured_ = false;
};

// The share of chunks that is lost: of about the last kLossMemoryChunks. What is assumed at first counts as
// much as a few measured chunks.
class LossMeter {
  public:
    explicit LossMeter(double initial) : lost_(initial * kLossPriorChunks) {}

    void add(double lost_chunks, double sent_chunks) {
        lost_ += lost_chunks;
        sent_ += sent_chunks;
        if (sent_ > kLossMemoryChunks) {
            const double keep = kLossMemoryChunks / (2 * sent_);
            lost_ *= keep;
            sent_ *= keep;
        }
    }
    double loss() const { return std::clamp(lost_ / sent_, 0.0, 1.0); }

  private:
    double lost_;
    double sent_ = kLossPriorChunks;
};

// How many neighbouring chunks are lost at once: of about the last kRunMemory runs of them. What chance alone would
// make counts as much as a few measured runs.
class RunMeter {
  public:
    // A receiver that does not count runs tells of none.
    void add(double lost_chunks, double runs) {
        if (runs < 1 || lost_chunks < runs) {
            return;
        }
        chunks_ += lost_chunks;
        runs_ += runs;
        if (runs_ > kRunMemory) {
            chunks_ /= 2;
            runs_ /= 2;
        }
    }
    // `loss`: the share of chunks, which makes longer runs also when losses are independent.
    double mean_chunks(double loss) const {
        const double by_chance = 1 / (1 - std::min(loss, 0.9));
        return (chunks_ + kRunPrior * by_chance) / (runs_ + kRunPrior);
    }

  private:
    double chunks_ = 0;
    double runs_ = 0;
};

// A share of a round trip, within bounds.
inline uint64_t part_of_round_trip_ns(uint32_t round_trip_us, uint32_t percent, uint64_t least_ns,
                                      uint64_t most_ns) {
    return std::clamp(uint64_t{round_trip_us} * 10 * percent, least_ns, most_ns);
}

}  // namespace tiffin::rdma_blk::sdr
