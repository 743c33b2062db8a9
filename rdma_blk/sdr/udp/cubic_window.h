// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How large CUBIC (RFC 9438) would have a window, with segments of Ethernet: what a flow that shares a queue with TCP must
// do to get its share, and no more. Sans I/O.
#pragma once

#include <cstdint>

namespace tiffin::rdma_blk::sdr {

class CubicWindow {
  public:
    // Begins to grow from there, as after a reduction from `plateau_bytes`, which is at least `window_bytes`.
    void start(uint64_t now_ns, uint64_t window_bytes, uint64_t plateau_bytes);
    // After a loss: the smaller window.
    uint64_t reduce(uint64_t now_ns, uint64_t window_bytes);
    // Once per round trip: the window for the next one, at least `window_bytes`.
    uint64_t grow(uint64_t now_ns, uint64_t window_bytes, uint64_t round_trip_ns);

  private:
    uint64_t start_ns_ = 0;
    double plateau_segments_ = 0;  // W_max
    double plateau_s_ = 0;         // K
    double reno_segments_ = 0;     // W_est
};

}  // namespace tiffin::rdma_blk::sdr
