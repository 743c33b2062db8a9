// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The flow that others are compared with has to behave like one: it fills a link, and shares it with its like.
#include "rdma_blk/simulation/cubic_flow.h"

#include <gtest/gtest.h>

#include <vector>

#include "rdma_blk/simulation/event_queue.h"
#include "rdma_blk/simulation/link.h"

namespace tiffin::rdma_blk::simulation {
namespace {

constexpr uint64_t kPacketBytes = 1500;
constexpr uint64_t kOneWayNs = 10'000'000;
constexpr uint64_t kSecondNs = 1'000'000'000;

// Flows over one bottleneck of 100 Mbit/s with a queue of one bandwidth-delay product; acknowledgements come back
// after a fixed delay.
class Bottleneck {
  public:
    explicit Bottleneck(size_t flows, double loss_rate = 0)
        : flows_(flows, CubicFlow(kSecondNs)), link_(options(loss_rate), 11) {}

    // Returns the packets that each flow had acknowledged from `from_ns` until `until_ns`.
    std::vector<uint64_t> run(uint64_t from_ns, uint64_t until_ns, uint64_t later_start_ns = 0) {
        std::vector<uint64_t> before(flows_.size());
        for (size_t flow = 0; flow < flows_.size(); ++flow) {
            queue_.put(flow * later_start_ns, {flow, true, 0, 0});
        }
        bool counting = false;
        while (!queue_.empty() && queue_.next_ns() < until_ns) {
            const Event event = queue_.take();
            if (!counting && queue_.now_ns() >= from_ns) {
                counting = true;
                for (size_t flow = 0; flow < flows_.size(); ++flow) {
                    before[flow] = flows_[flow].acknowledged_packets();
                }
            }
            handle(event);
        }
        for (size_t flow = 0; flow < flows_.size(); ++flow) {
            before[flow] = flows_[flow].acknowledged_packets() - before[flow];
        }
        return before;
    }

    const CubicFlow& flow(size_t index) const { return flows_[index]; }

  private:
    struct Event {
        size_t flow;
        bool timer;
        uint64_t number;
        uint64_t sent_ns;
    };

    static LinkOptions options(double loss_rate) {
        LinkOptions options;
        options.bits_per_second = 100e6;
        options.delay_ns = kOneWayNs;
        options.queue_bytes = 250'000;
        options.loss.good_rate = loss_rate;
        return options;
    }

    void handle(const Event& event) {
        CubicFlow& flow = flows_[event.flow];
        const uint64_t now_ns = queue_.now_ns();
        if (event.timer) {
            flow.timer(now_ns);
        } else {
            flow.acknowledge(now_ns, event.number, now_ns - event.sent_ns);
        }
        while (flow.may_send()) {
            const uint64_t number = flow.send(now_ns);
            link_.send(now_ns, 1, kPacketBytes, [&](const Arrival& arrival) {
                queue_.put(arrival.last_ns + kOneWayNs, {event.flow, false, number, now_ns});
            });
        }
        if (event.timer) {
            queue_.put(now_ns + kSecondNs / 10, {event.flow, true, 0, 0});
        }
    }

    std::vector<CubicFlow> flows_;
    Link link_;
    EventQueue<Event> queue_;
};

constexpr double kPacketsPerSecond = 100e6 / 8 / kPacketBytes;

TEST(CubicFlow, FillsALinkAlone) {
    Bottleneck bottleneck(1);
    const std::vector<uint64_t> packets = bottleneck.run(10 * kSecondNs, 60 * kSecondNs);
    EXPECT_GT(static_cast<double>(packets[0]), 0.95 * 50 * kPacketsPerSecond);
    // It has found the queue's end, and not much more often than CUBIC should.
    EXPECT_GT(bottleneck.flow(0).reductions(), 2U);
    EXPECT_LT(bottleneck.flow(0).reductions(), 60U);
}

TEST(CubicFlow, TwoShareEvenlyAlsoWhenOneComesLater) {
    Bottleneck bottleneck(2);
    const std::vector<uint64_t> packets =
        bottleneck.run(30 * kSecondNs, 150 * kSecondNs, 5 * kSecondNs);
    const auto total = static_cast<double>(packets[0] + packets[1]);
    EXPECT_GT(total, 0.95 * 120 * kPacketsPerSecond);
    EXPECT_NEAR(static_cast<double>(packets[0]) / total, 0.5, 0.12);
}

TEST(CubicFlow, RandomLossMakesItSlow) {
    // 1 % loss and 20 ms: about 1.2 sqrt(1/p) packets for each round trip, far from filling the link's 167.
    Bottleneck bottleneck(1, 0.01);
    const std::vector<uint64_t> packets = bottleneck.run(5 * kSecondNs, 65 * kSecondNs);
    const double window = static_cast<double>(packets[0]) / 60 * 0.02;
    EXPECT_GT(window, 8);
    EXPECT_LT(window, 20);
}

TEST(CubicFlow, FallsBackToTheTimerWhenNothingComesBack) {
    CubicFlow flow(kSecondNs);
    EXPECT_GT(flow.timer_ns(), uint64_t{1} << 60);
    while (flow.may_send()) {
        flow.send(5);
    }
    EXPECT_EQ(flow.timer_ns(), kSecondNs + 5);
    flow.timer(kSecondNs);
    EXPECT_FALSE(flow.may_send());
    flow.timer(kSecondNs + 5);
    EXPECT_TRUE(flow.may_send());
    EXPECT_EQ(flow.window_packets(), 2);
    // What arrives after all changes nothing.
    flow.acknowledge(kSecondNs + 6, 0, kSecondNs);
    EXPECT_EQ(flow.acknowledged_packets(), 0U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::simulation
