// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/simulated/bottleneck.h"

#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint64_t kCubicTimeoutNs = 1'000'000'000;
constexpr uint64_t kTickNs = 5'000'000;
constexpr uint64_t kMostBytes = 64 << 20;  // as of a large socket buffer
constexpr uint64_t kPacketsOfFeedback = 8;

simulation::LinkOptions link_options(const BottleneckOptions& options) {
    simulation::LinkOptions link;
    link.bits_per_second = options.bits_per_second;
    link.delay_ns = options.one_way_ns;
    link.loss.good_rate = options.loss;
    const double product_bytes =
        options.bits_per_second / 8 * 2e-9 * static_cast<double>(options.one_way_ns);
    link.queue_bytes = static_cast<uint64_t>(product_bytes * options.queue_share);
    return link;
}

}  // namespace

Bottleneck::Bottleneck(const BottleneckOptions& options, uint64_t seed)
    : options_(options),
      cubic_(kCubicTimeoutNs),
      congestion_(kPacketBytes, kMostBytes),
      link_(link_options(options), seed) {
    events_.put(0, {What::tick, 0, 0});
}

Bottleneck::Packets Bottleneck::run_until(uint64_t end_ns) {
    while (events_.next_ns() < end_ns) {
        handle(events_.take());
    }
    const Packets sum{received_, cubic_.acknowledged_packets()};
    const Packets since{sum.carrier - counted_.carrier, sum.cubic - counted_.cubic};
    counted_ = sum;
    return since;
}

uint64_t Bottleneck::queued_ns() const {
    return static_cast<uint64_t>(static_cast<double>(link_.queued_bytes(events_.now_ns())) * 8e9 /
                                 options_.bits_per_second);
}

void Bottleneck::handle(const Event& event) {
    const uint64_t now_ns = events_.now_ns();
    switch (event.what) {
        case What::cubic_answer:
            cubic_.acknowledge(now_ns, event.number, now_ns - event.value);
            break;
        case What::carrier_packet:
            receive(now_ns, event.number);
            break;
        case What::carrier_feedback:
            congestion_.on_feedback(now_ns, event.number, event.value,
                                    now_ns - sent_ns_[event.number]);
            break;
        case What::feedback_due:
            if (event.number == reports_) {
                report(now_ns);
            }
            break;
        case What::tick:
            cubic_.timer(now_ns);
            events_.put(now_ns + kTickNs, {What::tick, 0, 0});
            break;
    }
    send(now_ns);
}

void Bottleneck::receive(uint64_t now_ns, uint64_t number) {
    ++received_;
    highest_ = number;  // this link does not reorder
    if (++unreported_ == kPacketsOfFeedback) {
        report(now_ns);
    } else if (unreported_ == 1) {
        events_.put(now_ns + kFeedbackDelayNs, {What::feedback_due, reports_, 0});
    }
}

void Bottleneck::report(uint64_t now_ns) {
    unreported_ = 0;
    ++reports_;
    events_.put(now_ns + options_.one_way_ns, {What::carrier_feedback, highest_, received_});
}

void Bottleneck::send(uint64_t now_ns) {
    const bool has_cubic = now_ns >= options_.cubic_from_ns && now_ns < options_.cubic_until_ns;
    while (has_cubic && cubic_.may_send()) {
        const uint64_t number = cubic_.send(now_ns);
        link_.send(now_ns, 1, kPacketBytes, [&](const simulation::Arrival& arrival) {
            events_.put(arrival.last_ns + more_ns_ + options_.one_way_ns,
                        {What::cubic_answer, number, now_ns});
        });
    }
    while (now_ns >= options_.carrier_from_ns && congestion_.room_bytes(now_ns) >= kPacketBytes) {
        const uint64_t number = sent_ns_.size();
        sent_ns_.push_back(now_ns);
        congestion_.on_sent(now_ns, number, kPacketBytes);
        link_.send(now_ns, 1, kPacketBytes, [&](const simulation::Arrival& arrival) {
            events_.put(arrival.last_ns + more_ns_, {What::carrier_packet, number, 0});
        });
    }
}

}  // namespace tiffin::rdma_blk::sdr
