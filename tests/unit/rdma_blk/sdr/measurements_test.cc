// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/reliability/measurements.h"

#include <gtest/gtest.h>

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint32_t kPercent = 150;

RoundTrip measured(uint32_t sample_us) {
    RoundTrip round_trip(1000);
    for (int i = 0; i < 100; i++) {
        round_trip.add(sample_us);
    }
    return round_trip;
}

// A peer that stood still for two seconds: its answer says nothing of the path.
TEST(RoundTrip, OneLateSampleDoesNotMakeRepetitionsLate) {
    for (const uint32_t usual_us : {50U, 1000U, 20'000U}) {
        RoundTrip round_trip = measured(usual_us);
        const uint64_t before_ns = round_trip.timeout_ns(kPercent);
        round_trip.add(2'000'000);
        EXPECT_LE(round_trip.timeout_ns(kPercent), 5 * before_ns) << usual_us;
        for (int i = 0; i < 20; i++) {
            round_trip.add(usual_us);
        }
        round_trip.add(2'000'000);
        EXPECT_LE(round_trip.timeout_ns(kPercent), 5 * before_ns) << usual_us;
    }
}

TEST(RoundTrip, APathThatHasBecomeLongerIsFollowed) {
    RoundTrip round_trip = measured(1000);
    for (int i = 0; i < 50; i++) {
        round_trip.add(50'000);
    }
    EXPECT_GT(round_trip.smoothed_us(), 45'000U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
