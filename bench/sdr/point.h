// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One point of the evaluation: what is measured, and what came out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rdma_blk/sdr/reliable_connection.h"

namespace tiffin::bench_sdr {

namespace sdr = rdma_blk::sdr;

struct Point {
    std::string scheme = "sr_rto";  // sr_rto, sr_nack, ec_xor, ec_mds, auto
    uint64_t message_bytes = 128 << 20;
    // Of one transmission of one packet, which is one chunk.
    double drop_rate = 0;
    double mean_burst_packets = 1;  // more: losses come in bursts of that mean length
    // Whether what goes back is lost as often: acknowledgements, requests. The paper's are not.
    bool control_is_lost = false;
    double gbit_per_s = 400;
    double round_trip_ms = 25;
    uint32_t packet_bytes = 65536;
    uint32_t data_chunks = 32;
    uint32_t parity_chunks = 8;
    // 0: one message from one end to the other. Else a ring Allreduce of `message_bytes` among so many.
    uint32_t ring_nodes = 0;
    uint64_t samples = 1000;  // 0: only the model is asked
    // Messages that are sent before, so that what is measured by the connection has been.
    uint64_t warm_up = 1;
    uint64_t seed = 1;

    uint64_t round_trip_ns() const { return static_cast<uint64_t>(round_trip_ms * 1e6); }
    double chunk_time_s() const { return packet_bytes * 8 / (gbit_per_s * 1e9); }
    uint64_t chunks() const { return (message_bytes + packet_bytes - 1) / packet_bytes; }
};

// Reads "key=value key=value ..."; what is not named keeps its default. Returns what is wrong, or nothing.
std::string parse_point(const std::string& line, Point& point);

struct Outcome {
    std::vector<double> times_s;  // one for each sample, ascending
    double sent_share = 0;        // bytes that were sent, over those of the messages
    uint64_t failed_groups = 0;   // submessages that were repeated
    uint64_t fallbacks = 0;       // messages with at least one of them
    uint64_t repeated_chunks = 0;
    uint64_t coded_messages = 0;  // that were sent with parity
    uint64_t events = 0;
    std::string error;  // empty: all messages arrived

    double mean_s() const;
    double standard_error_s() const;
    double quantile_s(double quantile) const;
};

// What the connection of a point is made with.
sdr::QueuePairAttributes queue_pair_attributes(const Point& point);
sdr::ReliabilityAttributes reliability_attributes(const Point& point);

// Sends `samples` messages, one after the other, each on a quiet link.
Outcome measure_messages(const Point& point);
// Runs `samples` Allreduces, one after the other.
Outcome measure_ring(const Point& point);

struct ModelFigures {
    bool exists = false;
    double mean_s = 0;
    double p99_s = 0;
    double p999_s = 0;
    double fallback_probability = 0;
    bool lower_bound = false;
    double estimate_s = 0;  // of rdma_blk/sdr/model/estimate.h; 0: there is none
};
// What the paper's model says of it, which knows no rings and bursts, and what the choice of schemes goes by.
ModelFigures predict(const Point& point);

}  // namespace tiffin::bench_sdr
