// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What 32 bits say of a packet, and where it lands.
#include <gtest/gtest.h>

#include <random>

#include "rdma_blk/sdr/uc/landing_layout.h"

namespace tiffin::rdma_blk::sdr {
namespace {

TEST(UcImmediateTest, BitsAreWhereTheTableHasThem) {
    EXPECT_EQ(encode_immediate({1, 0, 0, false, false}), 1U << 22);
    EXPECT_EQ(encode_immediate({0, 1, 0, false, false}), 1U << 4);
    EXPECT_EQ(encode_immediate({0, 0, 1, false, false}), 1U << 2);
    EXPECT_EQ(encode_immediate({0, 0, 0, true, false}), 1U << 1);
    EXPECT_EQ(encode_immediate({0, 0, 0, false, true}), 1U);
}

TEST(UcImmediateTest, TheLargestOfEachFits) {
    const UcImmediate largest{kMaxUcMessages - 1, kMaxUcPackets - 1, 3, true, true};
    EXPECT_EQ(encode_immediate(largest), ~uint32_t{0});
    EXPECT_EQ(decode_immediate(~uint32_t{0}), largest);
    EXPECT_EQ(kMaxUcMessages, kMaxMessages);  // none that a queue pair may have is missing
}

TEST(UcImmediateTest, AnyComesBackAsItWas) {
    std::mt19937 random(7);
    for (int round = 0; round < 10'000; round++) {
        const auto bits = static_cast<uint32_t>(random());
        EXPECT_EQ(encode_immediate(decode_immediate(bits)), bits);
    }
}

QueuePairAttributes attributes_of(uint64_t message_bytes) {
    QueuePairAttributes attributes;
    attributes.packet_bytes = 1024;
    attributes.packets_per_chunk_log2 = 1;
    attributes.max_messages = 16;
    attributes.max_message_bytes = message_bytes;
    return attributes;
}

TEST(LandingLayoutTest, EachPacketHasACellOfItsOwn) {
    const LandingLayout layout =
        landing_layout(attributes_of(20'000), {SchemeKind::erasure_mds, 4, 2}).release_value();
    EXPECT_EQ(layout.data_packets, 20U);
    EXPECT_EQ(layout.parity_packets, 3U * 2 * 2);  // 10 chunks are 3 groups of 2 chunks of parity
    uint64_t expected = 0;
    for (uint16_t id = 0; id < 16; id++) {
        for (uint32_t packet = 0; packet < layout.data_packets; packet++, expected += 1024) {
            ASSERT_EQ(layout.offset_bytes(id, false, packet), expected);
        }
        for (uint32_t packet = 0; packet < layout.parity_packets; packet++, expected += 1024) {
            ASSERT_EQ(layout.offset_bytes(id, true, packet), expected);
        }
    }
    EXPECT_EQ(layout.arena_bytes(), expected);
    EXPECT_TRUE(layout.has_cells(false, 19, 1));
    EXPECT_FALSE(layout.has_cells(false, 19, 2));
    EXPECT_TRUE(layout.has_cells(true, 0, 12));
    EXPECT_FALSE(layout.has_cells(true, 12, 1));
    EXPECT_FALSE(layout.has_cells(true, ~uint32_t{0}, 64));
}

TEST(LandingLayoutTest, MessagesOfOneIdAreOfDifferentGenerations) {
    const LandingLayout layout = landing_layout(attributes_of(20'000), {}).release_value();
    EXPECT_EQ(layout.parity_packets, 0U);
    EXPECT_EQ(layout.generation(15), 0U);
    EXPECT_EQ(layout.generation(16), 1U);
    EXPECT_EQ(layout.message_id(35), 3);
}

TEST(LandingLayoutTest, WhatAnImmediateCannotNameIsRefused) {
    EXPECT_TRUE(landing_layout(attributes_of(uint64_t{kMaxUcPackets} * 1024 / 4), {}).ok());
    QueuePairAttributes attributes = attributes_of(uint64_t{kMaxUcPackets} * 1024);
    attributes.max_messages = 1;
    EXPECT_TRUE(landing_layout(attributes, {}).ok());
    attributes.max_message_bytes++;
    EXPECT_EQ(landing_layout(attributes, {}).error(), Error::e2big);
    // Nor more memory than a device should hold.
    EXPECT_EQ(landing_layout(attributes_of(uint64_t{kMaxUcPackets} * 1024), {}).error(),
              Error::e2big);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
