// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A TCP flow to share a link with: CUBIC's congestion control (RFC 9438) over packets that need no retransmission,
// since only their number counts.
//
// Sans-I/O, in virtual time. Each packet is acknowledged on its own; three acknowledgements of later packets make it
// lost (RFC 6675 in spirit). Left out: HyStart, delayed acknowledgements, pacing.
#pragma once

#include <cstdint>
#include <set>

namespace tiffin::rdma_blk::simulation {

class CubicFlow {
  public:
    // The packet size matters to a link only: CUBIC counts segments.
    explicit CubicFlow(uint64_t timeout_ns) : timeout_ns_(timeout_ns) {}

    // Whether another packet may be sent now.
    [[nodiscard]] bool may_send() const;
    // Returns its number. Only when may_send().
    uint64_t send(uint64_t now_ns);
    // Packet `number` has arrived, which its sender learns now. `round_trip_ns` is that packet's.
    void acknowledge(uint64_t now_ns, uint64_t number, uint64_t round_trip_ns);
    // When timer() wants to be called; the greatest number: not at all.
    [[nodiscard]] uint64_t timer_ns() const;
    // Everything in flight counts as lost when nothing was heard for the timeout.
    void timer(uint64_t now_ns);

    [[nodiscard]] double window_packets() const { return window_; }
    [[nodiscard]] uint64_t acknowledged_packets() const { return acknowledged_; }
    [[nodiscard]] uint64_t reductions() const { return reductions_; }

  private:
    void grow(uint64_t now_ns, uint64_t round_trip_ns);
    void reduce();
    void detect_losses();

    uint64_t timeout_ns_;
    std::set<uint64_t> in_flight_;
    uint64_t next_number_ = 0;
    uint64_t highest_acknowledged_ = 0;
    uint64_t recovery_end_ = 0;  // losses of packets below it belong to the reduction that was made
    uint64_t last_heard_ns_ = 0;

    double window_ = 10;
    double slow_start_threshold_ = 1e12;
    double window_before_reduction_ = 0;  // W_max
    double reno_window_ = 0;              // W_est
    bool epoch_started_ = false;
    uint64_t epoch_start_ns_ = 0;
    double epoch_window_ = 0;
    double time_to_plateau_s_ = 0;  // K

    uint64_t acknowledged_ = 0;
    uint64_t reductions_ = 0;
};

}  // namespace tiffin::rdma_blk::simulation
