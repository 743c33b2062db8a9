// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/time_units.h"

#include <gtest/gtest.h>

namespace tiffin::rdma_blk {
namespace {

TEST(TimeUnits, WhatCameAfterTheClockWasReadIsNotLongAgo) {
    EXPECT_EQ(elapsed_ns(5 * kSecondNs, 3 * kSecondNs), 2 * kSecondNs);
    EXPECT_EQ(elapsed_ns(5 * kSecondNs, 5 * kSecondNs), 0U);
    EXPECT_EQ(elapsed_ns(5 * kSecondNs, 5 * kSecondNs + 1), 0U);
}

}  // namespace
}  // namespace tiffin::rdma_blk
