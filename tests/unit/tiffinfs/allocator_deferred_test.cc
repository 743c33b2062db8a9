// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Freed blocks that wait for their time.
#include <gtest/gtest.h>

#include <vector>

#include "fs/tiffinfs/space/allocator.h"
#include "tests/unit/tiffinfs/allocator_fixture.h"

namespace tiffin::tiffinfs {
namespace {

TEST_F(AllocatorTest, FreedDataWaitsForItsTicket) {
    BlockRange a = *volume.map(10);
    BlockRange b = *volume.map(20);
    const uint64_t free_before = allocator().free_blocks();
    const uint64_t used_before = allocator().used_blocks();
    allocator().mark_data_free(a, 5);
    allocator().mark_data_free(b, 6);
    EXPECT_EQ(allocator().used_blocks(), used_before - 30);
    EXPECT_EQ(allocator().free_blocks(), free_before);
    EXPECT_EQ(allocator().deferred_blocks(), 30U);
    allocator().release_data_frees(4, false);
    EXPECT_EQ(allocator().deferred_blocks(), 30U);
    allocator().release_data_frees(5, false);
    EXPECT_EQ(allocator().free_blocks(), free_before + 10);
    EXPECT_EQ(allocator().deferred_blocks(), 20U);
    allocator().release_data_frees(6, true);
    EXPECT_EQ(allocator().free_blocks(), free_before + 30);
    EXPECT_EQ(allocator().deferred_blocks(), 0U);
}

TEST_F(AllocatorTest, FreedDataWaitsForReadersWhoWereInside) {
    BlockRange a = *volume.map(10);
    const uint64_t free_before = allocator().free_blocks();
    const uint32_t reader = volume.readers.enter();
    allocator().mark_data_free(a, 1);
    allocator().release_data_frees(1, false);
    EXPECT_EQ(allocator().free_blocks(), free_before);
    // One who comes later does not hold it up, though there is always somebody inside.
    const uint32_t late_reader = volume.readers.enter();
    volume.readers.leave(reader);
    allocator().release_data_frees(1, false);
    const uint32_t later_reader = volume.readers.enter();
    volume.readers.leave(late_reader);
    allocator().release_data_frees(1, false);
    EXPECT_EQ(allocator().free_blocks(), free_before + 10);
    volume.readers.leave(later_reader);
}

TEST_F(AllocatorTest, FreedNodesWaitForTheNextGenerationsSuperblock) {
    BlockRange nodes = *volume.map(3);
    ASSERT_TRUE(volume.checkpoint(2));
    const uint64_t free_before = allocator().free_blocks();
    allocator().mark_node_free(nodes.first_block, 3);
    // Freed while generation 3 is written.
    ASSERT_TRUE(allocator().seal(3).ok());
    allocator().mark_node_free(nodes.first_block + 1, 4);
    ASSERT_TRUE(allocator().write_sealed().ok());
    allocator().release_node_frees(3);
    EXPECT_EQ(allocator().free_blocks(), free_before);
    EXPECT_EQ(allocator().deferred_blocks(), 2U);
    ASSERT_TRUE(allocator().seal(4).ok());
    allocator().mark_node_free(nodes.first_block + 2, 5);
    ASSERT_TRUE(allocator().write_sealed().ok());
    EXPECT_EQ(allocator().deferred_blocks(), 3U);
    allocator().release_node_frees(4);
    EXPECT_EQ(allocator().free_blocks(), free_before + 1);
    allocator().release_node_frees(5);
    EXPECT_EQ(allocator().free_blocks(), free_before + 2);
    allocator().release_node_frees(6);
    EXPECT_EQ(allocator().free_blocks(), free_before + 3);
    EXPECT_EQ(allocator().deferred_blocks(), 0U);
}

TEST_F(AllocatorTest, NodesThatMissedTheirCheckpointsWaitWithLaterOnes) {
    BlockRange nodes = *volume.map(4);
    const uint64_t free_before = allocator().free_blocks();
    for (uint64_t i = 0; i < 4; ++i) {
        allocator().mark_node_free(nodes.first_block + i, 10 + i);
    }
    // 10 and 13 share a set.
    allocator().release_node_frees(13);
    EXPECT_EQ(allocator().free_blocks(), free_before + 2);
    allocator().release_node_frees(14);
    EXPECT_EQ(allocator().free_blocks(), free_before + 4);
}

// More ranges than the queue of a group holds: every second block, each with its own ticket.
TEST_F(AllocatorTest, ManyScatteredFreesAreAllReleasedInTheEnd) {
    constexpr uint64_t kCount = 4000;
    BlockRange range = *volume.map(2 * kCount);
    ASSERT_EQ(range.block_count, 2 * kCount);
    const uint64_t free_before = allocator().free_blocks();
    for (uint64_t i = 0; i < kCount; ++i) {
        allocator().mark_data_free({range.first_block + 2 * i, 1}, i + 1);
    }
    EXPECT_EQ(allocator().deferred_blocks(), kCount);
    // Never before its ticket is durable: at most `durable` blocks are free.
    for (uint64_t durable = 0; durable < kCount; durable += 100) {
        allocator().release_data_frees(durable, false);
        EXPECT_LE(allocator().free_blocks(), free_before + durable);
    }
    allocator().release_data_frees(kCount, false);
    EXPECT_EQ(allocator().free_blocks(), free_before + kCount);
    EXPECT_EQ(allocator().deferred_blocks(), 0U);
}

// Frees that never stop must not keep earlier ones from being released.
TEST_F(AllocatorTest, AStreamOfFreesDoesNotHoldUpEarlierOnes) {
    constexpr uint64_t kRound = 500;
    BlockRange range = *volume.map(2 * kRound * 10);
    ASSERT_EQ(range.block_count, 2 * kRound * 10);
    const uint64_t free_before = allocator().free_blocks();
    uint64_t ticket = 0;
    uint64_t block = range.first_block;
    for (uint64_t round = 1; round <= 10; ++round) {
        for (uint64_t i = 0; i < kRound; ++i, block += 2) {
            allocator().mark_data_free({block, 1}, ++ticket);
        }
        // The last few of every round are not durable yet.
        allocator().release_data_frees(ticket - 3, false);
        if (round >= 3) {
            EXPECT_GE(allocator().free_blocks(), free_before + (round - 2) * kRound);
        }
    }
}

// What is freed before a seal is free once that generation's journal is durable, whatever is freed
// afterwards: make_room() counts on it.
TEST_F(AllocatorTest, ASealSeparatesEarlierFreesFromLaterOnes) {
    constexpr uint64_t kCount = 400;
    BlockRange range = *volume.map(4 * kCount);
    const uint64_t free_before = allocator().free_blocks();
    for (uint64_t i = 0; i < kCount; ++i) {
        allocator().mark_data_free({range.first_block + 2 * i, 1}, 10);
    }
    ASSERT_TRUE(allocator().seal(2).ok());
    for (uint64_t i = kCount; i < 2 * kCount; ++i) {
        allocator().mark_data_free({range.first_block + 2 * i, 1}, 20);
    }
    ASSERT_TRUE(allocator().write_sealed().ok());
    allocator().release_data_frees(10, true);
    EXPECT_EQ(allocator().free_blocks(), free_before + kCount);
}

TEST_F(AllocatorTest, FreedBlocksAreNotHandedOutBeforeTheirTime) {
    std::vector<BlockRange> all = volume.drain(64);
    for (const BlockRange& range : all) {
        allocator().mark_data_free(range, 7);
    }
    EXPECT_FALSE(volume.map(1));
    allocator().release_data_frees(6, true);
    EXPECT_FALSE(volume.map(1));
    allocator().release_data_frees(7, true);
    EXPECT_EQ(total_of(volume.drain()), total_of(all));
}

}  // namespace
}  // namespace tiffin::tiffinfs
