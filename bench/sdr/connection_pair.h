// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Two ends of a reliable connection on a simulated network: the product's state machines, with messages that have
// a size and no bytes.
#pragma once

#include <memory>
#include <set>

#include "bench/sdr/point.h"
#include "rdma_blk/sdr/simulated/network.h"

namespace tiffin::bench_sdr {

sdr::NetworkOptions network_options(const Point& point);

class ConnectionPair {
  public:
    // Joins the network, on two links of its own. Ends the program when the protocol refuses: there is no
    // measurement without it.
    ConnectionPair(sdr::Network& network, const Point& point, uint64_t message_bytes,
                   uint64_t seed);

    // Lets a message come.
    void post_receive();
    // Starts one.
    void send();

    // How many have been delivered, and how many is the sender done with. Looks for new completions.
    uint64_t received();
    uint64_t sent();
    // So many messages have been delivered without one missing before them.
    uint64_t received_in_order();
    // Nothing that was posted has failed so far.
    bool ok() const { return ok_; }

    const sdr::ReliabilityStatistics& sender_statistics() const {
        return sender_->reliability_statistics();
    }
    // What asks for repetitions, and decodes.
    const sdr::ReliabilityStatistics& receiver_statistics() const {
        return receiver_->reliability_statistics();
    }
    const rdma_blk::simulation::Link& forward_link() const { return network_.link(forward_); }

  private:
    void collect(sdr::ReliableConnection& connection);

    sdr::Network& network_;
    std::unique_ptr<sdr::Context> context_;
    std::unique_ptr<sdr::ReliableConnection> sender_;
    std::unique_ptr<sdr::ReliableConnection> receiver_;
    sdr::RegisteredMemory memory_;
    sdr::Network::Node sender_node_ = 0;
    sdr::Network::Node receiver_node_ = 0;
    sdr::Network::LinkNumber forward_ = 0;
    uint64_t sent_ = 0;
    uint64_t received_ = 0;
    uint64_t received_in_order_ = 0;
    std::set<uint64_t> ahead_;  // message numbers that were delivered before an earlier one
    bool ok_ = true;
};

}  // namespace tiffin::bench_sdr
