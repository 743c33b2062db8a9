// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffin perf over a long or lossy link that this machine does not have: transport sdr, with an emulated link in this
// process between it and the server (rdma_blk/simulation/emulator). What the session's stream carries (opening it,
// signs of life) does not pass the link.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fuse/host/problem.h"
#include "rdma_blk/simulation/emulator/udp_emulator.h"

namespace tiffin::fuse {

// The same for both directions.
struct PerfLink {
    double loss = 0;   // share of the datagrams
    double burst = 1;  // how many are lost at once, in the mean; 1: each by itself
    uint64_t delay_ns = 0;
    double bits_per_second = rdma_blk::simulation::kUnlimitedBitsPerSecond;

    bool has_rate() const {
        return bits_per_second < rdma_blk::simulation::kUnlimitedBitsPerSecond;
    }
};

// As on the command line; what was not given is empty.
struct PerfLinkArguments {
    std::optional<double> loss;
    std::optional<double> burst;
    std::string delay;  // "10ms"; us, ms, s
    std::string rate;   // "100mbit"; kbit, mbit, gbit
};

// No link when nothing was given.
OrProblem<std::optional<PerfLink>> parse_link(const PerfLinkArguments& arguments);

// What waits for a limited rate is bounded, as in a router: by what the link holds in a round trip, at least 256 KiB.
rdma_blk::simulation::EmulatorOptions emulator_options(const PerfLink& link);

// "1 % of datagrams lost in bursts of 4, 10 ms, 100 Mbit/s each way".
std::string describe_link(const PerfLink& link);

}  // namespace tiffin::fuse
