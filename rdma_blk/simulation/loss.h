// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which packets a link loses. The unit is the distance to the next loss, so that a thousand packets that arrive cost
// as much as one.
#pragma once

#include <cstdint>

#include "rdma_blk/simulation/random.h"

namespace tiffin::rdma_blk::simulation {

// The model of Gilbert and Elliott: a link is good or bad, changes between packets, and loses packets independently
// in each state. With bad_after = 0 it is always good, and loss independent. All are probabilities for one packet.
struct LossOptions {
    double good_rate = 0;  // of losing a packet while good
    double bad_rate = 0;   // while bad
    double bad_after = 0;  // of getting bad before the next packet
    double good_after =
        1;  // of getting good before the next packet; 1 / this is the mean length of a bad phase
};

// Losses of the mean rate `rate`, each independent of the others (mean_burst 1), or in bursts of `mean_burst` packets in the
// mean, in which all are lost. Between two bursts something arrives. 0 <= rate < 1, mean_burst >= 1; with bursts
// rate / (1 - rate) <= mean_burst.
LossOptions burst_loss(double rate, double mean_burst);

class Loss {
  public:
    // Starts good.
    Loss(const LossOptions& options, uint64_t seed);

    // How many packets arrive before the next one that is lost. Does not change until take() has passed it.
    [[nodiscard]] uint64_t packets_before_loss() const { return before_loss_; }

    // `count` packets were sent, which is at most packets_before_loss() + 1. Returns whether the last was lost.
    bool take(uint64_t count);

  private:
    void draw();

    LossOptions options_;
    Random random_;
    bool bad_ = false;
    uint64_t phase_packets_ = 0;  // how many packets are left of this phase
    uint64_t before_loss_ = 0;
};

}  // namespace tiffin::rdma_blk::simulation
