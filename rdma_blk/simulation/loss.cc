// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/simulation/loss.h"

#include <algorithm>

namespace tiffin::rdma_blk::simulation {
namespace {

// Links that change without ever losing anything are given up after so many changes: they are set up wrongly.
constexpr int kMaxPhasesWithoutLoss = 1'000'000;

uint64_t add_limited(uint64_t first, uint64_t second) {
    return first > Random::kNever - second ? Random::kNever : first + second;
}

}  // namespace

LossOptions burst_loss(double rate, double mean_burst) {
    LossOptions options;
    if (mean_burst <= 1) {
        options.good_rate = rate;
        return options;
    }
    options.bad_rate = 1;
    options.good_after = 1 / mean_burst;
    // The share of packets in bad phases is bad_after / (bad_after + good_after).
    options.bad_after = std::min(options.good_after * rate / (1 - rate), 1.0);
    return options;
}

Loss::Loss(const LossOptions& options, uint64_t seed) : options_(options), random_(seed) {
    phase_packets_ = random_.trials_before(options_.bad_after);
    draw();
}

bool Loss::take(uint64_t count) {
    if (count <= before_loss_) {
        before_loss_ -= before_loss_ == Random::kNever ? 0 : count;
        return false;
    }
    draw();
    return true;
}

// Passes through phases until one has a loss in it.
void Loss::draw() {
    before_loss_ = 0;
    for (int phase = 0; phase < kMaxPhasesWithoutLoss; ++phase) {
        const uint64_t before =
            random_.trials_before(bad_ ? options_.bad_rate : options_.good_rate);
        if (before < phase_packets_) {
            before_loss_ = add_limited(before_loss_, before);
            phase_packets_ -= phase_packets_ == Random::kNever ? 0 : before + 1;
            return;
        }
        before_loss_ = add_limited(before_loss_, phase_packets_);
        if (before_loss_ == Random::kNever) {
            return;
        }
        bad_ = !bad_;
        // A phase has at least the packet that it began with.
        phase_packets_ =
            add_limited(random_.trials_before(bad_ ? options_.good_after : options_.bad_after), 1);
    }
    before_loss_ = Random::kNever;
}

}  // namespace tiffin::rdma_blk::simulation
