// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What `auto` takes for the rate of a path must not go by what happens to be sent.
#include "rdma_blk/sdr/udp/delivery_rate.h"

#include <gtest/gtest.h>

#include <vector>

#include "rdma_blk/sdr/udp/congestion.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;
constexpr uint64_t kPacketBytes = 1000;

// Rounds of 10 ms in which 100 packets are sent, and those of the round before come.
class DeliveryRateTest : public testing::Test {
  protected:
    void round(uint64_t packet_bytes, bool is_filled = true, bool paused = false,
               uint64_t came = 100) {
        now_ns_ += 10 * kMillisecondNs;
        for (int packet = 0; packet < 100; packet++) {
            rate_.on_sent(packet_bytes, paused && packet == 0);
        }
        rate_.end_round(now_ns_, came, 100, is_filled);
    }

    DeliveryRate rate_{kPacketBytes};
    uint64_t now_ns_ = kMillisecondNs;
};

TEST_F(DeliveryRateTest, IsWhatCameInARoundThatWasFilled) {
    round(kPacketBytes);
    EXPECT_EQ(rate_.bytes_per_s(), 0U);  // what came was sent before
    round(kPacketBytes);
    EXPECT_EQ(rate_.bytes_per_s(), 10'000'000U);
    round(kPacketBytes, true, false, 80);  // some are lost; it is forgotten slowly
    EXPECT_EQ(rate_.bytes_per_s(), 10'000'000U - 10'000'000U / kRateMemoryRounds);
    for (int more = 0; more < 50; more++) {
        round(kPacketBytes, true, false, 80);
    }
    EXPECT_EQ(rate_.bytes_per_s(), 8'000'000U);
}

TEST_F(DeliveryRateTest, RoundsThatDoNotFillThePathOnlyRaiseIt) {
    for (int more = 0; more < 5; more++) {
        round(kPacketBytes, false);
        EXPECT_EQ(rate_.bytes_per_s(), 0U);
    }
    round(kPacketBytes);
    round(kPacketBytes, false);
    EXPECT_EQ(rate_.bytes_per_s(), 10'000'000U);
    for (int more = 0; more < 5; more++) {
        round(kPacketBytes, false, false, 10);
        EXPECT_EQ(rate_.bytes_per_s(), 10'000'000U);
    }
}

TEST_F(DeliveryRateTest, PacketsThatAreSmallFillNothing) {
    for (int more = 0; more < 5; more++) {
        round(kPacketBytes / 10);
        EXPECT_EQ(rate_.bytes_per_s(), 0U);
    }
}

TEST_F(DeliveryRateTest, LateFeedbackDoesNotMakeItFaster) {
    round(kPacketBytes);
    round(kPacketBytes, true, false, 200);
    EXPECT_EQ(rate_.bytes_per_s(), 10'000'000U);
}

TEST_F(DeliveryRateTest, PausesAreNotTheSlownessOfThePath) {
    for (int more = 0; more < 5; more++) {
        round(kPacketBytes, true, true);
        EXPECT_EQ(rate_.bytes_per_s(), 0U);
    }
    round(kPacketBytes);
    round(kPacketBytes);
    for (int more = 0; more < 50; more++) {
        now_ns_ += 1000 * kMillisecondNs;
        round(kPacketBytes, true, true, 50);
    }
    EXPECT_EQ(rate_.bytes_per_s(), 10'000'000U);
}

// A message now and then that fills most of the window, on a fast path of 20 ms that once lost much.
TEST(CongestionRate, OfSparseMessagesIsNotWhatIsAskedFor) {
    constexpr uint64_t kRoundTripNs = 20 * kMillisecondNs;
    Congestion congestion(kPacketBytes, 1 << 20);
    uint64_t now_ns = 1000 * kMillisecondNs;
    uint64_t sent = 0;
    uint64_t received = 0;
    for (int message = 0; message < 60; message++) {
        const uint64_t packets = congestion.room_bytes(now_ns) / kPacketBytes * 3 / 4;
        ASSERT_GT(packets, 0U);
        for (uint64_t packet = 0; packet < packets; packet++) {
            congestion.on_sent(now_ns, sent++, kPacketBytes);
        }
        received += message == 3 ? packets / 2 : packets;  // which ends the doubling
        now_ns += kRoundTripNs;
        congestion.on_feedback(now_ns, sent - 1, received, kRoundTripNs);
        now_ns += 1000 * kMillisecondNs;
        const uint64_t rate = congestion.rate_bytes_per_s();
        EXPECT_TRUE(rate == 0 || rate >= packets * kPacketBytes * 40) << message << " " << rate;
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
