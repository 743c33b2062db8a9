// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/segment_size.h"

#include <gtest/gtest.h>

namespace tiffin::rdma_blk {
namespace {

constexpr SegmentSize::Ending kSilent{true, false, 900, 700};
constexpr SegmentSize::Ending kSilentAfterMuch{true, false, 1 << 20, 1 << 20};
constexpr SegmentSize::Ending kBroken{false, false, 900, 700};

TEST(SegmentSize, TwoSilentConnectionsMakeItShorter) {
    SegmentSize size;
    EXPECT_EQ(size.next_bytes(1), 0);
    EXPECT_FALSE(size.ended(1, kSilent));
    EXPECT_EQ(size.next_bytes(2), 0);
    EXPECT_TRUE(size.ended(2, kSilent));
    EXPECT_EQ(size.next_bytes(3), 1200);
    EXPECT_TRUE(size.ended(3, kSilent));
    EXPECT_EQ(size.next_bytes(4), 500);
    // Not their length, then.
    EXPECT_FALSE(size.ended(4, kSilent));
    EXPECT_EQ(size.next_bytes(5), 0);
}

TEST(SegmentSize, OneThatHasCarriedMuchBothWaysIsNoSignOfIt) {
    SegmentSize size;
    EXPECT_FALSE(size.ended(1, kSilent));
    EXPECT_FALSE(size.ended(2, kSilentAfterMuch));
    EXPECT_FALSE(size.ended(3, kSilent));
    EXPECT_EQ(size.next_bytes(4), 0);
}

TEST(SegmentSize, OneDirectionThatCarriesNothingLargeIsEnough) {
    for (const SegmentSize::Ending& one : {SegmentSize::Ending{true, false, 1 << 20, 900},
                                           SegmentSize::Ending{true, false, 900, 1 << 20}}) {
        SegmentSize size;
        EXPECT_FALSE(size.ended(1, one));
        EXPECT_TRUE(size.ended(2, one));
    }
}

TEST(SegmentSize, AnOpeningThatDoesNotArriveIsEnough) {
    SegmentSize size;
    EXPECT_TRUE(size.ended(1, {true, true, 900, 700}));
    EXPECT_EQ(size.next_bytes(2), 1200);
}

TEST(SegmentSize, WhatBreaksSaysNothing) {
    SegmentSize size;
    for (uint64_t now_ns = 1; now_ns < 10; now_ns++) {
        EXPECT_FALSE(size.ended(now_ns, kBroken));
    }
    EXPECT_FALSE(size.ended(10, kSilent));
    EXPECT_FALSE(size.ended(11, kBroken));
    EXPECT_TRUE(size.ended(12, kSilent));
}

TEST(SegmentSize, StaysWhenConnectionsEndWell) {
    SegmentSize size;
    size.ended(1, kSilent);
    size.ended(2, kSilent);
    EXPECT_FALSE(size.ended(3, kSilentAfterMuch));
    EXPECT_EQ(size.next_bytes(4), 1200);
}

TEST(SegmentSize, LongerOnesAreTriedAgainAndOneFailureIsEnough) {
    SegmentSize size;
    for (uint64_t now_ns = 1; now_ns <= 3; now_ns++) {
        size.ended(now_ns, kSilent);
    }
    EXPECT_EQ(size.next_bytes(3), 500);
    size.ended(3, kSilentAfterMuch);
    EXPECT_EQ(size.next_bytes(2 + SegmentSize::kRaiseNs), 500);
    const uint64_t later_ns = 3 + SegmentSize::kRaiseNs;
    EXPECT_EQ(size.next_bytes(later_ns), 0);
    EXPECT_TRUE(size.ended(later_ns, kSilent));
    EXPECT_EQ(size.next_bytes(later_ns + 1), 500);
}

}  // namespace
}  // namespace tiffin::rdma_blk
