// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How long selective repeat needs for a message, computed: section 4.2.2 and appendix A of "SDR-RDMA:
// Software-Defined Reliability Architecture for Planetary Scale RDMA Communication" (arXiv:2505.05366).
//
// Chunk i of M leaves at i * T, T being the time that one chunk takes on the wire. Each transmission is lost with
// the same probability, independently, and the next follows RTO + T later. The message is complete at the sender
// one round trip after its last chunk left for the last time.
//
// What this leaves out: retransmissions take no time from other chunks, queues are empty, acknowledgements are not
// lost. So it is a lower bound where a retransmission competes with chunks that were never sent, which is when the
// message takes longer to inject than the timeout.
//
// Pure functions of their arguments, callable from any thread; nothing is allocated. A call costs some
// microseconds: few enough to be made for each message of at least 128 KiB.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tiffin::rdma_blk::sdr {

// A path as the model sees it.
struct ModelPath {
    double chunk_time_s = 0;  // to inject one chunk: its bytes over the bandwidth; > 0
    double round_trip_s = 0;  // >= 0
    double chunk_drop_rate =
        0;  // that one transmission of one chunk is lost: 0 to kModelMaxDropRate
    // How many neighbouring chunks are lost at once, in the mean. Only the estimates (estimate.h) know bursts; to the
    // paper's model losses are independent.
    double mean_loss_run = 1;
};

// Above this the sums get long and no scheme is worth choosing: greater rates count as this one.
inline constexpr double kModelMaxDropRate = 0.9;
inline double valid_drop_rate(double drop_rate) {
    return std::clamp(drop_rate, 0.0, kModelMaxDropRate);
}

// A chunk is lost when any of its packets is: 1 - (1 - packet_drop_rate)^packets_per_chunk.
[[nodiscard]] double chunk_drop_rate(double packet_drop_rate, uint32_t packets_per_chunk);

// From the first chunk's injection until the acknowledgement of the last one is at the sender. No chunks take one
// round trip. `timeout_s` is RTO: the paper's "SR RTO" has 3 round trips, its "SR NACK" 1. Chunks may be fractions,
// as expected numbers of them are.
[[nodiscard]] double selective_repeat_mean_s(const ModelPath& path, double chunks,
                                             double timeout_s);

// The time that a share `quantile` of all messages needs at most: 0.999 for the 99.9th percentile. In [0, 1).
[[nodiscard]] double selective_repeat_quantile_s(const ModelPath& path, double chunks,
                                                 double timeout_s, double quantile);

// Whether the two functions above give no more than a lower bound (see the top of this file).
[[nodiscard]] inline bool selective_repeat_is_lower_bound(const ModelPath& path, double chunks,
                                                          double timeout_s) {
    return chunks * path.chunk_time_s > timeout_s;
}

}  // namespace tiffin::rdma_blk::sdr
