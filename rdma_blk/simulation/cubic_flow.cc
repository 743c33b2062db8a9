// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/simulation/cubic_flow.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tiffin::rdma_blk::simulation {
namespace {

// RFC 9438, section 4: C and beta.
constexpr double kCubicScale = 0.4;
constexpr double kReduction = 0.7;
constexpr double kRenoIncrease = 3 * (1 - kReduction) / (1 + kReduction);
constexpr uint64_t kReorderingPackets = 3;
constexpr double kSmallestWindow = 2;

}  // namespace

bool CubicFlow::may_send() const { return static_cast<double>(in_flight_.size()) + 1 <= window_; }

uint64_t CubicFlow::send(uint64_t now_ns) {
    if (in_flight_.empty()) {
        last_heard_ns_ = now_ns;
    }
    in_flight_.insert(next_number_);
    return next_number_++;
}

void CubicFlow::acknowledge(uint64_t now_ns, uint64_t number, uint64_t round_trip_ns) {
    last_heard_ns_ = now_ns;
    if (in_flight_.erase(number) == 0) {
        return;  // counted as lost before, or a duplicate
    }
    ++acknowledged_;
    highest_acknowledged_ = std::max(highest_acknowledged_, number);
    detect_losses();
    if (number >= recovery_end_) {
        grow(now_ns, round_trip_ns);
    }
}

uint64_t CubicFlow::timer_ns() const {
    return in_flight_.empty() ? std::numeric_limits<uint64_t>::max() : last_heard_ns_ + timeout_ns_;
}

void CubicFlow::timer(uint64_t now_ns) {
    if (now_ns < timer_ns()) {
        return;
    }
    in_flight_.clear();
    reduce();
    window_ = kSmallestWindow;
    last_heard_ns_ = now_ns;
}

void CubicFlow::detect_losses() {
    bool lost = false;
    while (!in_flight_.empty() &&
           *in_flight_.begin() + kReorderingPackets <= highest_acknowledged_) {
        lost = lost || *in_flight_.begin() >= recovery_end_;
        in_flight_.erase(in_flight_.begin());
    }
    if (lost) {
        reduce();
    }
}

void CubicFlow::reduce() {
    ++reductions_;
    recovery_end_ = next_number_;
    // Fast convergence: a flow that did not get back to where it was makes room for others.
    window_before_reduction_ =
        window_ < window_before_reduction_ ? window_ * (1 + kReduction) / 2 : window_;
    window_ = std::max(window_ * kReduction, kSmallestWindow);
    slow_start_threshold_ = window_;
    epoch_started_ = false;
}

void CubicFlow::grow(uint64_t now_ns, uint64_t round_trip_ns) {
    if (window_ < slow_start_threshold_) {
        window_ += 1;
        return;
    }
    if (!epoch_started_) {
        epoch_started_ = true;
        epoch_start_ns_ = now_ns;
        epoch_window_ = window_;
        reno_window_ = window_;
        window_before_reduction_ = std::max(window_before_reduction_, window_);
        time_to_plateau_s_ = std::cbrt((window_before_reduction_ - epoch_window_) / kCubicScale);
    }
    const double elapsed_s = static_cast<double>(now_ns - epoch_start_ns_) * 1e-9;
    const double ahead_s =
        elapsed_s + static_cast<double>(round_trip_ns) * 1e-9 - time_to_plateau_s_;
    const double cubic = kCubicScale * ahead_s * ahead_s * ahead_s + window_before_reduction_;
    reno_window_ += kRenoIncrease / window_;
    const double target = std::clamp(cubic, window_, 1.5 * window_);
    window_ = std::max(window_ + (target - window_) / window_, reno_window_);
}

}  // namespace tiffin::rdma_blk::simulation
