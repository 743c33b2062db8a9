// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/sdr/connection_pair.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tiffin::bench_sdr {
namespace {

using rdma_blk::simulation::LinkOptions;

// A piece of a run is noticed when its last packet is there: at most this share of a round trip late.
constexpr double kRunShareOfRoundTrip = 1.0 / 200;

template <typename T>
T must(Result<T> result, const char* what) {
    if (!result.ok()) {
        std::fprintf(stderr, "sdr_evaluation: %s: error %d\n", what, errno_value(result.error()));
        std::exit(1);
    }
    return std::move(result.value());
}

void must_do(Result<void> result, const char* what) {
    if (!result.ok()) {
        std::fprintf(stderr, "sdr_evaluation: %s: error %d\n", what, errno_value(result.error()));
        std::exit(1);
    }
}

LinkOptions link_options(const Point& point, bool lossy) {
    LinkOptions options;
    options.bits_per_second = point.gbit_per_s * 1e9;
    options.delay_ns = point.round_trip_ns() / 2;
    if (lossy) {
        options.loss = rdma_blk::simulation::burst_loss(point.drop_rate, point.mean_burst_packets);
    }
    return options;
}

}  // namespace

sdr::NetworkOptions network_options(const Point& point) {
    sdr::NetworkOptions options;
    options.packet_bytes = point.packet_bytes;
    const double packets = point.round_trip_ms / 1000 * kRunShareOfRoundTrip / point.chunk_time_s();
    options.max_run_packets = static_cast<uint32_t>(std::clamp(packets, 1.0, 4096.0));
    return options;
}

ConnectionPair::ConnectionPair(sdr::Network& network, const Point& point, uint64_t message_bytes,
                               uint64_t seed)
    : network_(network), context_(must(sdr::context_create(), "context")) {
    sdr::QueuePairAttributes queue_pair = queue_pair_attributes(point);
    const sdr::ReliabilityAttributes reliability = reliability_attributes(point);
    sender_ = must(sdr::reliable_connection_create(*context_, queue_pair, reliability), "sender");
    receiver_ =
        must(sdr::reliable_connection_create(*context_, queue_pair, reliability), "receiver");
    must_do(sender_->connect(receiver_->info_get()), "connect");
    must_do(receiver_->connect(sender_->info_get()), "connect");
    memory_ = must(context_->mr_reg(MutableByteSpan(nullptr, message_bytes)), "memory");

    sender_node_ = network_.add(*sender_);
    receiver_node_ = network_.add(*receiver_);
    forward_ = network_.add_link(link_options(point, true), seed);
    const auto backward = network_.add_link(link_options(point, point.control_is_lost), seed + 1);
    network_.connect(sender_node_, receiver_node_, forward_, backward);
}

void ConnectionPair::post_receive() {
    must(receiver_->recv_post(network_.now_ns(), memory_), "recv_post");
    network_.kick(receiver_node_);
}

void ConnectionPair::send() {
    must(sender_->send_post(network_.now_ns(), memory_, 0), "send_post");
    network_.kick(sender_node_);
}

uint64_t ConnectionPair::received() {
    collect(*receiver_);
    return received_;
}

uint64_t ConnectionPair::received_in_order() {
    collect(*receiver_);
    return received_in_order_;
}

uint64_t ConnectionPair::sent() {
    collect(*sender_);
    return sent_;
}

void ConnectionPair::collect(sdr::ReliableConnection& connection) {
    sdr::Completion completion;
    while (connection.next_completion(completion)) {
        (completion.is_send ? sent_ : received_) += 1;
        ok_ = ok_ && completion.ok && completion.message_bytes == memory_.size_bytes();
        if (!completion.is_send) {
            ahead_.insert(completion.message_number);
            while (ahead_.erase(received_in_order_) > 0) {
                ++received_in_order_;
            }
        }
    }
}

}  // namespace tiffin::bench_sdr
