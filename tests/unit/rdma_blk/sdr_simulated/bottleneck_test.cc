// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The UDP carrier's congestion control on a link with a CUBIC flow, in virtual time.
#include "rdma_blk/sdr/simulated/bottleneck.h"

#include <gtest/gtest.h>

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

// Of the link's rate.
double used_share(const BottleneckOptions& options, const Bottleneck::Packets& packets,
                  uint64_t duration_ns) {
    const double bits = static_cast<double>(packets.carrier + packets.cubic) * 8 *
                        static_cast<double>(Bottleneck::kPacketBytes);
    return bits * 1e9 / static_cast<double>(duration_ns) / options.bits_per_second;
}

TEST(Bottleneck, IsSharedWithCubic) {
    for (const double queue_share : {0.5, 1.0, 2.0}) {
        for (const bool cubic_first : {true, false}) {
            BottleneckOptions options;
            options.bits_per_second = 5e7;
            options.queue_share = queue_share;
            (cubic_first ? options.carrier_from_ns : options.cubic_from_ns) = 5 * kSecondNs;
            Bottleneck bottleneck(options);
            bottleneck.run_until(20 * kSecondNs);
            const Bottleneck::Packets packets = bottleneck.run_until(60 * kSecondNs);
            EXPECT_GT(packets.carrier_share(), 0.3) << queue_share << cubic_first;
            EXPECT_LT(packets.carrier_share(), 0.7) << queue_share << cubic_first;
            EXPECT_GT(used_share(options, packets, 40 * kSecondNs), 0.9);
        }
    }
}

TEST(Bottleneck, LossByChanceCostsLittle) {
    for (const double loss : {0.01, 0.05}) {
        BottleneckOptions options;
        options.cubic_from_ns = BottleneckOptions::kNever;
        options.loss = loss;
        Bottleneck bottleneck(options);
        const Bottleneck::Packets packets = bottleneck.run_until(30 * kSecondNs);
        EXPECT_GT(used_share(options, packets, 30 * kSecondNs), 0.85) << loss;
    }
}

// What `auto` reckons with.
TEST(Bottleneck, MeasuresItsRate) {
    for (const double loss : {0.0, 0.02}) {
        for (const double bits_per_second : {2e7, 1e8}) {
            BottleneckOptions options;
            options.bits_per_second = bits_per_second;
            options.loss = loss;
            options.cubic_from_ns = 30 * kSecondNs;
            Bottleneck bottleneck(options);
            bottleneck.run_until(10'000'000);
            EXPECT_EQ(bottleneck.congestion().rate_bytes_per_s(), 0U);  // not even a round trip
            bottleneck.run_until(20 * kSecondNs);
            const auto alone = static_cast<double>(bottleneck.congestion().rate_bytes_per_s());
            EXPECT_NEAR(alone * 8, bits_per_second, bits_per_second * 0.1) << loss;
            bottleneck.run_until(40 * kSecondNs);
            const Bottleneck::Packets packets = bottleneck.run_until(60 * kSecondNs);
            const auto shared = static_cast<double>(bottleneck.congestion().rate_bytes_per_s());
            EXPECT_LT(shared, alone);
            // The most in a round, beside the mean.
            EXPECT_GT(shared * 8, bits_per_second * packets.carrier_share() * 0.9);
        }
    }
}

// When the other has gone, the queue is short again, and the link is full.
TEST(Bottleneck, GoesByDelayAgainWhenItIsAlone) {
    BottleneckOptions options;
    options.cubic_from_ns = 2 * kSecondNs;
    options.cubic_until_ns = 15 * kSecondNs;
    Bottleneck bottleneck(options);
    bottleneck.run_until(14 * kSecondNs);
    EXPECT_TRUE(bottleneck.congestion().is_competing());
    bottleneck.run_until(40 * kSecondNs);
    EXPECT_FALSE(bottleneck.congestion().is_competing());
    const Bottleneck::Packets packets = bottleneck.run_until(50 * kSecondNs);
    EXPECT_FALSE(bottleneck.congestion().is_competing());
    EXPECT_GT(used_share(options, packets, 10 * kSecondNs), 0.9);
    EXPECT_LT(bottleneck.queued_ns(), 10'000'000U);  // half of what fits
}

// It never takes its own first queue for somebody else's.
TEST(Bottleneck, SeesNoCompetitorWhereNoneIs) {
    for (const double queue_share : {0.5, 2.0, 8.0}) {
        BottleneckOptions options;
        options.cubic_from_ns = BottleneckOptions::kNever;
        options.queue_share = queue_share;
        Bottleneck bottleneck(options);
        for (uint64_t second = 1; second < 30; second++) {
            bottleneck.run_until(second * kSecondNs);
            ASSERT_FALSE(bottleneck.congestion().is_competing()) << queue_share << " " << second;
        }
    }
}

TEST(Bottleneck, FillsAPathThatHasBecomeLonger) {
    BottleneckOptions options;
    options.cubic_from_ns = BottleneckOptions::kNever;
    options.loss = 0.01;
    Bottleneck bottleneck(options);
    bottleneck.run_until(10 * kSecondNs);
    bottleneck.lengthen(20'000'000);  // three times as long
    bottleneck.run_until(60 * kSecondNs);
    EXPECT_FALSE(bottleneck.congestion().is_competing());
    const Bottleneck::Packets packets = bottleneck.run_until(80 * kSecondNs);
    EXPECT_GT(used_share(options, packets, 20 * kSecondNs), 0.85);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
