// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/simulation/link.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "rdma_blk/simulation/event_queue.h"

namespace tiffin::rdma_blk::simulation {
namespace {

struct PacketArrival {
    uint64_t number;
    uint64_t at_ns;
    bool operator==(const PacketArrival&) const = default;
};

// Sends and takes runs apart again.
void send(Link& link, uint64_t now_ns, uint64_t first, uint64_t count, uint64_t packet_bytes,
          std::vector<PacketArrival>& arrivals) {
    link.send(now_ns, count, packet_bytes, [&](const Arrival& run) {
        ASSERT_GT(run.count, 0U);
        ASSERT_LE(run.first + run.count, count);
        for (uint64_t i = 0; i < run.count; ++i) {
            const double share =
                run.count == 1 ? 0 : static_cast<double>(i) / static_cast<double>(run.count - 1);
            const double at_ns = static_cast<double>(run.first_ns) +
                                 share * static_cast<double>(run.last_ns - run.first_ns);
            arrivals.push_back({first + run.first + i, static_cast<uint64_t>(at_ns + 0.5)});
        }
    });
}

LinkOptions fast_link() {
    LinkOptions options;
    options.bits_per_second = 400e9;
    options.delay_ns = 12'500'000;
    return options;
}

double lost_share(const LinkOptions& options, uint64_t packets) {
    Link link(options, 7);
    uint64_t arrived = 0;
    link.send(0, packets, 100, [&](const Arrival& run) { arrived += run.count; });
    EXPECT_EQ(arrived + link.counters().lost_packets, packets);
    return static_cast<double>(link.counters().lost_packets) / static_cast<double>(packets);
}

TEST(Link, PacketsTakeTheirTimeOnTheWireOneAfterTheOther) {
    LinkOptions options;
    options.bits_per_second = 8e9;  // a nanosecond for a byte
    options.delay_ns = 1000;
    Link link(options, 1);
    std::vector<PacketArrival> arrivals;
    send(link, 50, 0, 3, 100, arrivals);
    // The wire is busy until 350, then free at 1000.
    send(link, 60, 3, 1, 10, arrivals);
    send(link, 1000, 4, 1, 10, arrivals);
    EXPECT_EQ(arrivals,
              (std::vector<PacketArrival>{{0, 1150}, {1, 1250}, {2, 1350}, {3, 1360}, {4, 2010}}));
    EXPECT_EQ(link.queued_bytes(1000), 10U);
    EXPECT_EQ(link.free_ns(), 1010U);
}

TEST(Link, FractionsOfANanosecondAddUp) {
    Link link(fast_link(), 1);
    uint64_t last_ns = 0;
    for (int i = 0; i < 1'000'000; ++i) {
        link.send(0, 1, 4096, [&](const Arrival& run) { last_ns = run.last_ns; });
    }
    EXPECT_EQ(last_ns, 81'920'000U + 12'500'000U);
}

// Bursts of one packet are losses by themselves: two in a row are as likely as the rate says.
TEST(Loss, SingleLossesAreIndependent) {
    for (const double rate : {0.2, 0.8}) {
        Loss loss(burst_loss(rate, 1), 1);
        constexpr int kPackets = 1'000'000;
        int lost = 0;
        int lost_twice = 0;
        bool was_lost = false;
        for (int packet = 0; packet < kPackets; packet++) {
            const bool is_lost = loss.take(1);
            lost += is_lost ? 1 : 0;
            lost_twice += is_lost && was_lost ? 1 : 0;
            was_lost = is_lost;
        }
        EXPECT_NEAR(lost, rate * kPackets, 0.005 * kPackets);
        EXPECT_NEAR(lost_twice, rate * lost, 0.005 * kPackets);
    }
}

TEST(Link, ARunArrivesAsItsPacketsWould) {
    LinkOptions options = fast_link();
    options.loss = burst_loss(0.05, 3);
    options.duplicate_rate = 0.02;
    options.hold_rate = 0.03;
    options.held_ns = 500'000;
    Link by_run(options, 42);
    Link by_packet(options, 42);
    std::vector<PacketArrival> runs;
    std::vector<PacketArrival> packets;
    for (uint64_t first = 0; first < 20'000; first += 1000) {
        send(by_run, first * 90, first, 1000, 4096, runs);
        for (uint64_t i = 0; i < 1000; ++i) {
            send(by_packet, first * 90, first + i, 1, 4096, packets);
        }
    }
    ASSERT_EQ(runs.size(), packets.size());
    for (size_t i = 0; i < runs.size(); ++i) {
        EXPECT_EQ(runs[i].number, packets[i].number);
        EXPECT_LE(std::llabs(static_cast<int64_t>(runs[i].at_ns - packets[i].at_ns)), 1);
    }
    EXPECT_GT(by_run.counters().lost_packets, 0U);
    EXPECT_GT(by_run.counters().duplicated_packets, 0U);
    EXPECT_GT(by_run.counters().held_packets, 0U);
    EXPECT_EQ(by_run.counters().lost_packets, by_packet.counters().lost_packets);
}

TEST(Link, IndependentLossHasItsRate) {
    for (const double rate : {0.0, 1e-5, 1e-2, 0.5}) {
        LinkOptions options = fast_link();
        options.loss.good_rate = rate;
        const uint64_t packets = 10'000'000;
        const double deviation = std::sqrt(rate * (1 - rate) / packets);
        EXPECT_NEAR(lost_share(options, packets), rate, 5 * deviation) << rate;
    }
    LinkOptions options = fast_link();
    options.loss.good_rate = 1;
    EXPECT_EQ(lost_share(options, 1000), 1);
}

TEST(Link, BurstsHaveTheirRateAndLength) {
    LinkOptions options = fast_link();
    options.loss = burst_loss(0.01, 8);
    const uint64_t packets = 10'000'000;
    Link link(options, 3);
    uint64_t runs = 0;
    link.send(0, packets, 100, [&](const Arrival&) { ++runs; });
    const auto lost = static_cast<double>(link.counters().lost_packets);
    EXPECT_NEAR(lost / packets, 0.01, 0.0008);
    EXPECT_NEAR(lost / static_cast<double>(runs), 8, 0.5);
}

TEST(Link, TheQueueIsBounded) {
    LinkOptions options;
    options.bits_per_second = 8e9;
    options.queue_bytes = 1000;
    Link link(options, 1);
    std::vector<PacketArrival> arrivals;
    send(link, 0, 0, 15, 100, arrivals);
    EXPECT_EQ(arrivals.size(), 10U);
    EXPECT_EQ(link.counters().tail_dropped_packets, 5U);
    // After 250 ns there is room for two packets, not three.
    send(link, 250, 0, 3, 100, arrivals);
    EXPECT_EQ(arrivals.size(), 12U);
    EXPECT_EQ(link.counters().sent_bytes, 1200U);
    EXPECT_EQ(link.queued_bytes(250), 950U);
}

TEST(Link, HeldPacketsAreOvertaken) {
    LinkOptions options = fast_link();
    options.hold_rate = 0.1;
    options.held_ns = 10'000;
    Link link(options, 5);
    std::vector<PacketArrival> arrivals;
    send(link, 0, 0, 10'000, 4096, arrivals);
    ASSERT_EQ(arrivals.size(), 10'000U);
    uint64_t overtaken = 0;
    for (size_t i = 1; i < arrivals.size(); ++i) {
        overtaken += arrivals[i].at_ns < arrivals[i - 1].at_ns ? 1 : 0;
    }
    EXPECT_GT(overtaken, 500U);
    EXPECT_NEAR(static_cast<double>(link.counters().held_packets), 1000, 150);
}

TEST(Link, DoubledPacketsArriveTwice) {
    LinkOptions options = fast_link();
    options.duplicate_rate = 1;
    Link link(options, 5);
    std::vector<PacketArrival> arrivals;
    send(link, 0, 0, 3, 4096, arrivals);
    std::vector<uint64_t> numbers;
    for (const PacketArrival& arrival : arrivals) {
        numbers.push_back(arrival.number);
    }
    EXPECT_EQ(numbers, (std::vector<uint64_t>{0, 0, 1, 1, 2, 2}));
}

TEST(Link, TheSeedDecides) {
    LinkOptions options = fast_link();
    options.loss.good_rate = 0.1;
    const auto sent = [&](uint64_t seed) {
        Link link(options, seed);
        std::vector<PacketArrival> arrivals;
        send(link, 0, 0, 1000, 4096, arrivals);
        return arrivals;
    };
    EXPECT_EQ(sent(1), sent(1));
    EXPECT_NE(sent(1), sent(2));
}

TEST(EventQueue, EventsComeInOrderOfTimeThenOfPuttingIn) {
    EventQueue<int> queue;
    queue.put(30, 1);
    queue.put(10, 2);
    queue.put(30, 3);
    queue.put(20, 4);
    std::vector<int> order;
    std::vector<uint64_t> times;
    while (!queue.empty()) {
        EXPECT_GE(queue.next_ns(), queue.now_ns());
        order.push_back(queue.take());
        times.push_back(queue.now_ns());
        if (order.size() == 2) {
            queue.put(5, 5);  // the past is now
        }
    }
    EXPECT_EQ(order, (std::vector<int>{2, 4, 5, 1, 3}));
    EXPECT_EQ(times, (std::vector<uint64_t>{10, 20, 20, 30, 30}));
}

}  // namespace
}  // namespace tiffin::rdma_blk::simulation
