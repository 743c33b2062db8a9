// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/wake_cost.h"

#include <gtest/gtest.h>

namespace tiffin::fuse {
namespace {

TEST(WakeCost, IsLookedForTwiceAsLongWithinBounds) {
    EXPECT_EQ(busy_poll_us_for(0), kLeastDefaultBusyPollUs);  // not measured
    EXPECT_EQ(busy_poll_us_for(12'000), kLeastDefaultBusyPollUs);
    EXPECT_EQ(busy_poll_us_for(40'000), 80U);
    EXPECT_EQ(busy_poll_us_for(110'000), kMostDefaultBusyPollUs);
    EXPECT_EQ(busy_poll_us_for(UINT64_MAX / 2), kMostDefaultBusyPollUs);
}

TEST(WakeCost, IsMeasuredOnce) {
    const uint32_t limit_us = default_busy_poll_us();
    EXPECT_GE(limit_us, kLeastDefaultBusyPollUs);
    EXPECT_LE(limit_us, kMostDefaultBusyPollUs);
    EXPECT_EQ(default_busy_poll_us(), limit_us);
}

}  // namespace
}  // namespace tiffin::fuse
