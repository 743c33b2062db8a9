// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/udp/cubic_window.h"

#include <algorithm>
#include <cmath>

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr double kSegmentBytes = 1448;
// RFC 9438, section 4: C and beta.
constexpr double kScale = 0.4;
constexpr double kReduction = 0.7;
constexpr double kRenoIncrease = 3 * (1 - kReduction) / (1 + kReduction);

}  // namespace

void CubicWindow::start(uint64_t now_ns, uint64_t window_bytes, uint64_t plateau_bytes) {
    start_ns_ = now_ns;
    plateau_segments_ = static_cast<double>(plateau_bytes) / kSegmentBytes;
    reno_segments_ = static_cast<double>(window_bytes) / kSegmentBytes;
    plateau_s_ = std::cbrt((plateau_segments_ - reno_segments_) / kScale);
}

uint64_t CubicWindow::reduce(uint64_t now_ns, uint64_t window_bytes) {
    const double segments = static_cast<double>(window_bytes) / kSegmentBytes;
    // Fast convergence: who did not get back to where it was makes room for others.
    const double share = segments < plateau_segments_ ? (1 + kReduction) / 2 : 1;
    const auto smaller = static_cast<uint64_t>(static_cast<double>(window_bytes) * kReduction);
    start(now_ns, smaller, static_cast<uint64_t>(static_cast<double>(window_bytes) * share));
    return smaller;
}

uint64_t CubicWindow::grow(uint64_t now_ns, uint64_t window_bytes, uint64_t round_trip_ns) {
    const double segments = static_cast<double>(window_bytes) / kSegmentBytes;
    const double ahead_s =
        static_cast<double>(now_ns - start_ns_ + round_trip_ns) * 1e-9 - plateau_s_;
    const double cubic = kScale * ahead_s * ahead_s * ahead_s + plateau_segments_;
    reno_segments_ += kRenoIncrease;
    const double larger = std::max(std::clamp(cubic, segments, 1.5 * segments), reno_segments_);
    return std::max(window_bytes, static_cast<uint64_t>(larger * kSegmentBytes));
}

}  // namespace tiffin::rdma_blk::sdr
