// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which scheme is the fastest for a message, by the estimates of rdma_blk/sdr/model and what was measured.
#pragma once

#include <cstdint>

#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

struct PathMeasurement {
    uint64_t chunk_bytes = 0;
    uint32_t round_trip_us = 0;
    double chunk_loss = 0;          // share of chunks, 0 to 1
    double mean_loss_run = 1;       // how many neighbouring chunks are lost at once, in the mean
    uint64_t rate_bytes_per_s = 0;  // 0: not known yet; 10 Gbit/s is assumed then
    // The most parity that the receiver keeps of a group: with more of it a code would only fall back.
    uint32_t parity_buffer_chunks = kDefaultParityChunks;
};

// Pure. Computes the model for each candidate, which can take as long as sending some hundred packets.
SchemeChoice choose_scheme(const PathMeasurement& path, uint64_t message_bytes);

// The same for one connection: chooses anew only when size, loss, bursts, rate or round trip have changed by more than a
// tenth.
class SchemeChooser {
  public:
    SchemeChoice choose(const PathMeasurement& path, uint64_t message_bytes);

  private:
    PathMeasurement path_;
    uint64_t message_bytes_ = 0;
    SchemeChoice choice_;
};

}  // namespace tiffin::rdma_blk::sdr
