// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/stream_probe.h"

#include <gtest/gtest.h>

namespace tiffin::rdma_blk {
namespace {

using Acknowledged = StreamProbe::Acknowledged;
constexpr uint64_t kBytes = StreamProbe::kBytes;

// After so many bytes, all of which the socket has taken.
void send(StreamProbe& probe, uint64_t id, uint64_t begin_bytes) {
    probe.sent(id, id, 1000 + id);
    probe.taken(id, begin_bytes + kBytes);
}

TEST(StreamProbeTest, ItsOwnAcknowledgementIsNotThatOfOthers) {
    StreamProbe probe;
    EXPECT_EQ(probe.acknowledged(500), Acknowledged::others);
    send(probe, 1, 500);
    EXPECT_FALSE(probe.may_send());
    EXPECT_EQ(probe.acknowledged(500), Acknowledged::nothing);
    EXPECT_EQ(probe.acknowledged(500 + kBytes), Acknowledged::probes);
    // Nor is that of a further one.
    EXPECT_TRUE(probe.may_send());
    send(probe, 2, 500 + kBytes);
    EXPECT_EQ(probe.acknowledged(500 + 2 * kBytes), Acknowledged::probes);
    EXPECT_FALSE(probe.answered(2));
    EXPECT_TRUE(probe.answered(1));
    EXPECT_FALSE(probe.is_unanswered());
    EXPECT_EQ(probe.acknowledged(2000), Acknowledged::others);
}

TEST(StreamProbeTest, WhatGoesBeforeItIsAcknowledgedSlowly) {
    StreamProbe probe;
    EXPECT_EQ(probe.acknowledged(100), Acknowledged::others);
    send(probe, 1, 1000);
    EXPECT_EQ(probe.acknowledged(600), Acknowledged::others);
    EXPECT_FALSE(probe.may_send());
    EXPECT_EQ(probe.acknowledged(1000 + kBytes), Acknowledged::others);
    EXPECT_TRUE(probe.may_send());
    EXPECT_EQ(probe.acknowledged(1000 + 2 * kBytes), Acknowledged::probes);
}

TEST(StreamProbeTest, TheSocketMayTakeItLater) {
    StreamProbe probe;
    EXPECT_EQ(probe.acknowledged(100), Acknowledged::others);
    probe.sent(1, 7, 1000);
    probe.taken(6, 5000);
    EXPECT_EQ(probe.acknowledged(5000), Acknowledged::others);
    EXPECT_FALSE(probe.may_send());
    probe.taken(7, 5000 + kBytes);
    probe.taken(9, 9000);
    EXPECT_EQ(probe.acknowledged(5000 + kBytes), Acknowledged::probes);
    EXPECT_TRUE(probe.may_send());
}

}  // namespace
}  // namespace tiffin::rdma_blk
