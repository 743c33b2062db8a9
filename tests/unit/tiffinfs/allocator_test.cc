// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Handing out space and taking it back.
#include "fs/tiffinfs/space/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/unit/tiffinfs/allocator_fixture.h"

namespace tiffin::tiffinfs {
namespace {

using test::CrashDevice;

TEST_F(AllocatorTest, CountsFixedBlocksOfAllGroupsAsUsed) {
    // Superblocks and their copies, three pairs of bitmap slots, the journal.
    EXPECT_EQ(allocator().used_blocks(), 2 + 2 + 3 * 2 + kTestJournalBlocks);
    EXPECT_EQ(allocator().free_blocks(), kThreeGroups - allocator().used_blocks());
    EXPECT_EQ(allocator().deferred_blocks(), 0U);
    EXPECT_EQ(allocator().sealed_used_blocks(), allocator().used_blocks());
    EXPECT_EQ(allocator().sealed_initialized_groups(), 1U);
}

TEST_F(AllocatorTest, AllocatesToTheLastBlockAndNothingTwice) {
    ShadowMap shadow(volume.layout());
    uint64_t total = 0;
    for (;;) {
        Result<BlockRange> range = allocator().allocate(0, 37, SpacePriority::privileged);
        if (!range.ok()) {
            EXPECT_EQ(range.error(), Error::enospc);
            break;
        }
        ASSERT_GE(range->block_count, 1U);
        ASSERT_LE(range->block_count, 37U);
        ASSERT_EQ(group_of(range->first_block),
                  group_of(range->first_block + range->block_count - 1));
        ASSERT_TRUE(shadow.take(*range));
        total += range->block_count;
    }
    EXPECT_EQ(total, kThreeGroups - volume.fixed_blocks());
    EXPECT_EQ(allocator().free_blocks(), 0U);
}

// As on a volume that has been nearly full for long.
TEST_F(AllocatorTest, FindsALongPieceBehindManyShortOnes) {
    std::vector<uint64_t> blocks;
    while (true) {
        Result<BlockRange> block = allocator().allocate(0, 1, SpacePriority::privileged);
        if (!block.ok()) {
            break;
        }
        blocks.push_back(block->first_block);
    }
    std::sort(blocks.begin(), blocks.end());
    for (size_t i = 0; i < 4000; i += 2) {
        allocator().cancel({blocks[i], 1});
    }
    constexpr uint64_t kLong = 256;  // an extent of 1 MiB
    for (size_t i = 0; i < kLong; ++i) {
        allocator().cancel({blocks[6000 + i], 1});
    }
    Result<BlockRange> found = allocator().allocate(0, kLong, SpacePriority::privileged);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->block_count, kLong);
}

TEST_F(AllocatorTest, KeepsTheReserveForPrivilegedCallers) {
    EXPECT_EQ(allocator().reserve_blocks(), kThreeGroups / 64);
    uint64_t taken = 0;
    for (;;) {
        Result<BlockRange> range = allocator().allocate(0, 1000, SpacePriority::normal);
        if (!range.ok()) {
            EXPECT_EQ(range.error(), Error::enospc);
            break;
        }
        taken += range->block_count;
    }
    EXPECT_EQ(allocator().free_blocks(), allocator().kept_blocks(SpacePriority::normal));
    EXPECT_EQ(taken, kThreeGroups - volume.fixed_blocks() -
                         allocator().kept_blocks(SpacePriority::normal));
    EXPECT_EQ(total_of(volume.drain()), allocator().kept_blocks(SpacePriority::normal));
}

TEST_F(AllocatorTest, KeepsHalfOfTheReserveForThoseWhoFreeSpace) {
    const auto take_all = [&](SpacePriority priority) {
        while (allocator().allocate(0, 1000, priority).ok()) {
        }
        return allocator().free_blocks();
    };
    EXPECT_EQ(take_all(SpacePriority::normal),
              allocator().reserve_blocks() + allocator().write_back_reserve_blocks());
    EXPECT_EQ(take_all(SpacePriority::write_back), allocator().reserve_blocks());
    EXPECT_EQ(take_all(SpacePriority::overwriting), allocator().reserve_blocks() / 2);
    EXPECT_EQ(take_all(SpacePriority::privileged), 0U);
}

TEST_F(AllocatorTest, OpensGroupsOnlyWhenTheLowerOnesAreFull) {
    const uint64_t free_in_first = kBlocksPerGroup - volume.layout().fixed_blocks(0, 1);
    uint64_t taken = 0;
    while (taken < free_in_first) {
        std::optional<BlockRange> range =
            volume.map(std::min<uint64_t>(512, free_in_first - taken));
        ASSERT_TRUE(range);
        ASSERT_EQ(group_of(range->first_block), 0U);
        taken += range->block_count;
    }
    ASSERT_TRUE(volume.checkpoint());
    EXPECT_EQ(volume.superblock.initialized_groups, 1U);
    ASSERT_TRUE(volume.map(1));
    ASSERT_TRUE(volume.checkpoint());
    EXPECT_EQ(volume.superblock.initialized_groups, 2U);
}

TEST_F(AllocatorTest, ContinuesAtTheGoal) {
    BlockRange first = *volume.map(10);
    ASSERT_TRUE(volume.map(1, 5000));
    std::optional<BlockRange> next = volume.map(20, first.first_block + 10);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->first_block, first.first_block + 10);
    EXPECT_EQ(next->block_count, 20U);
    // A goal that is taken: behind it.
    next = volume.map(5, first.first_block);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->first_block, first.first_block + 30);
    // Goals beyond the end, or in a group that is not open, are ignored.
    EXPECT_TRUE(volume.map(5, kThreeGroups));
    EXPECT_TRUE(volume.map(5, ~uint64_t{0}));
    EXPECT_TRUE(volume.map(5, 2 * kBlocksPerGroup + 500));
}

TEST_F(AllocatorTest, PrefersRunsOfFullLengthAndFallsBackToTheLongest) {
    std::vector<BlockRange> all = volume.drain();
    ASSERT_FALSE(all.empty());
    // Holes of 3, 8 and 5 blocks.
    const uint64_t base = all[0].first_block + 100;
    allocator().mark_data_free({base, 3}, 1);
    allocator().mark_data_free({base + 50, 8}, 1);
    allocator().mark_data_free({base + 100, 5}, 1);
    allocator().release_data_frees(1, true);
    std::optional<BlockRange> range = volume.map(4);
    ASSERT_TRUE(range);
    EXPECT_EQ(range->block_count, 4U);
    range = volume.map(100);
    ASSERT_TRUE(range);
    EXPECT_EQ(range->block_count, 5U);
    EXPECT_EQ(range->first_block, base + 100);
    EXPECT_EQ(volume.map(100)->block_count, 4U);
    EXPECT_EQ(volume.map(100)->block_count, 3U);
    EXPECT_FALSE(volume.map(1));
}

TEST_F(AllocatorTest, CancelledBlocksAreFreeAtOnce) {
    const uint64_t free_before = allocator().free_blocks();
    Result<BlockRange> range = allocator().allocate(0, 100, SpacePriority::normal);
    ASSERT_TRUE(range.ok());
    EXPECT_EQ(allocator().free_blocks(), free_before - 100);
    allocator().cancel({range->first_block, 60});
    EXPECT_EQ(allocator().free_blocks(), free_before - 40);
    allocator().cancel({range->first_block + 60, 40});
    EXPECT_EQ(allocator().free_blocks(), free_before);
    EXPECT_EQ(allocator().used_blocks(), volume.fixed_blocks());
}

// ---- Replay -----------------------------------------------------------------------------------

TEST_F(AllocatorTest, ProtectedBlocksAreKeptForReplay) {
    BlockRange data{100 + kTestJournalBlocks, 50};
    ASSERT_TRUE(allocator().protect_for_replay(data).ok());
    ASSERT_TRUE(allocator().protect_for_replay({data.first_block + 40, 30}).ok());
    EXPECT_EQ(allocator().free_blocks(), kThreeGroups - volume.fixed_blocks() - 70);
    ShadowMap shadow(volume.layout());
    ASSERT_TRUE(shadow.take({data.first_block, 70}));
    // A tree node, then the journal's own extents.
    BlockRange node = *volume.map(1, data.first_block);
    EXPECT_TRUE(shadow.take(node));
    allocator().mark_used({data.first_block, 20});
    allocator().mark_data_free({data.first_block, 10}, 0);
    allocator().release_data_frees(0, false);
    // Mapped, freed, and mapped again by a later record.
    allocator().mark_data_free({data.first_block + 10, 10}, 0);
    allocator().mark_used({data.first_block + 5, 10});
    EXPECT_EQ(allocator().damaged_blocks(), 0U);
    EXPECT_EQ(allocator().used_blocks(), volume.fixed_blocks() + 11);
    for (const BlockRange& range : volume.drain()) {
        ASSERT_TRUE(shadow.take(range));
    }
    allocator().end_replay();
    allocator().release_data_frees(0, false);
    EXPECT_EQ(allocator().deferred_blocks(), 0U);
    EXPECT_EQ(allocator().free_blocks(), 60U);
    EXPECT_EQ(total_of(volume.drain()), 60U);
}

TEST_F(AllocatorTest, ReplayOpensTheGroupsThatACrashForgot) {
    ASSERT_TRUE(allocator().protect_for_replay({2 * kBlocksPerGroup + 10, 5}).ok());
    allocator().mark_used({2 * kBlocksPerGroup + 10, 5});
    allocator().end_replay();
    ASSERT_TRUE(volume.checkpoint());
    EXPECT_EQ(volume.superblock.initialized_groups, 3U);
    volume.mount();
    ASSERT_TRUE(allocator().load({2 * kBlocksPerGroup + 10, 5}).ok());
    EXPECT_EQ(total_of(volume.drain()), kThreeGroups - volume.fixed_blocks() - 5);
}

TEST_F(AllocatorTest, RangesThatCannotBeDataAreRefused) {
    fuse::CapturedLog log;
    const uint64_t total = kThreeGroups;
    for (BlockRange range :
         {BlockRange{0, 1}, BlockRange{3, 2}, BlockRange{4, 1}, BlockRange{kTestJournalBlocks, 5},
          BlockRange{kBlocksPerGroup, 1}, BlockRange{kBlocksPerGroup - 1, 2},
          BlockRange{kBlocksPerGroup + 1, 5}, BlockRange{total - 2, 1}, BlockRange{total - 1, 1},
          BlockRange{total - 10, 9}, BlockRange{total - 3, 4}, BlockRange{total, 1},
          BlockRange{~uint64_t{0}, 1}, BlockRange{100, ~uint64_t{0}}}) {
        EXPECT_EQ(allocator().load(range).error(), Error::euclean) << range.first_block;
        EXPECT_EQ(allocator().protect_for_replay(range).error(), Error::euclean)
            << range.first_block;
    }
    EXPECT_TRUE(allocator().load({total - 3, 1}).ok());
    EXPECT_TRUE(allocator().load({kBlocksPerGroup + 2, kBlocksPerGroup - 2}).ok());
    EXPECT_TRUE(allocator().load({kTestJournalBlocks + 4, 1}).ok());
    EXPECT_TRUE(allocator().load({0, 0}).ok());
}

// A damaged volume may name one block in two places.
TEST_F(AllocatorTest, BlocksWithTwoOwnersAreReportedAndLeftAlone) {
    fuse::CapturedLog log;
    BlockRange range = *volume.map(10);
    allocator().mark_data_free(range, 1);
    EXPECT_EQ(allocator().damaged_blocks(), 0U);
    allocator().mark_data_free({range.first_block + 5, 10}, 2);
    EXPECT_EQ(allocator().damaged_blocks(), 10U);
    EXPECT_TRUE(log.contains("fsck.tiffin"));
    allocator().mark_node_free(range.first_block, 2);
    EXPECT_EQ(allocator().damaged_blocks(), 11U);
    // Fixed structures above all.
    allocator().mark_node_free(kBlocksPerGroup - kBlocksPerGroup, 2);
    allocator().mark_data_free({2, 2}, 2);
    EXPECT_EQ(allocator().damaged_blocks(), 14U);
    EXPECT_EQ(allocator().deferred_blocks(), 10U);
    EXPECT_EQ(allocator().used_blocks(), volume.fixed_blocks());
    allocator().release_data_frees(2, true);
    EXPECT_EQ(total_of(volume.drain()), kThreeGroups - volume.fixed_blocks());
    // Mapped twice: only replay can find that without having lost its mind.
    BlockRange other{range.first_block, 4};
    ASSERT_TRUE(allocator().protect_for_replay(other).ok());
    allocator().mark_used(other);
    EXPECT_EQ(allocator().damaged_blocks(), 18U);
    EXPECT_EQ(allocator().used_blocks(), kThreeGroups);
}

using AllocatorDeathTest = AllocatorTest;
TEST_F(AllocatorDeathTest, MappingAUsedBlockStopsEverything) {
    BlockRange range = *volume.map(4);
    EXPECT_DEATH(allocator().mark_used(range), "assertion failed");
    EXPECT_DEATH(allocator().cancel(range), "assertion failed");
}

// ---- Trim -------------------------------------------------------------------------------------

TEST_F(AllocatorTest, TrimDiscardsFreeRunsOnly) {
    std::vector<BlockRange> all = volume.drain();
    const uint64_t base = all[0].first_block + 10;
    // Room above the reserve: trim takes nothing from it.
    allocator().mark_data_free(all[1], 1);
    allocator().mark_data_free({base, 8}, 1);
    allocator().mark_data_free({base + 100, 4}, 1);
    allocator().release_data_frees(1, true);
    const unsigned char pattern[16] = {1, 2, 3};
    for (uint64_t block : {base - 1, base, base + 7, base + 8, base + 100, base + 104}) {
        device.overwrite(block * kBlockBytes, pattern, sizeof pattern);
    }
    const uint64_t free_before = allocator().free_blocks();
    Result<uint64_t> discarded = allocator().trim({0, kBlocksPerGroup}, 5);
    ASSERT_TRUE(discarded.ok());
    EXPECT_EQ(*discarded, 8U);
    EXPECT_EQ(allocator().free_blocks(), free_before);
    auto is_discarded = [&](uint64_t block) {
        unsigned char bytes[kBlockBytes];
        EXPECT_TRUE(device.read(block * kBlockBytes, bytes, sizeof bytes).ok());
        return bytes[0] == CrashDevice::kDiscardPattern;
    };
    EXPECT_FALSE(is_discarded(base - 1));
    EXPECT_TRUE(is_discarded(base));
    EXPECT_TRUE(is_discarded(base + 7));
    EXPECT_FALSE(is_discarded(base + 8));
    EXPECT_FALSE(is_discarded(base + 100));
    EXPECT_EQ(*allocator().trim({0, ~uint64_t{0}}, 0), 12 + all[1].block_count);
    EXPECT_TRUE(is_discarded(base + 103));
    EXPECT_FALSE(is_discarded(base + 104));
    EXPECT_EQ(*allocator().trim({base, 8}, 9), 0U);
    EXPECT_EQ(*allocator().trim({base + 2, 3}, 1), 3U);
    EXPECT_EQ(*allocator().trim({kThreeGroups + 5, 3}, 1), 0U);
    EXPECT_EQ(*allocator().trim({0, kThreeGroups}, ~uint64_t{0}), 0U);
    EXPECT_EQ(allocator().free_blocks(), free_before);
}

// What an earlier user left on the device goes too, and nothing is opened for that.
TEST_F(AllocatorTest, TrimDiscardsGroupsThatWereNeverOpened) {
    const uint64_t free_blocks = allocator().free_blocks();
    const uint64_t open_groups = allocator().sealed_initialized_groups();
    ASSERT_EQ(open_groups, 1U);
    const unsigned char pattern[16] = {1, 2, 3};
    device.overwrite((2 * kBlocksPerGroup + 500) * kBlockBytes, pattern, sizeof pattern);
    EXPECT_EQ(*allocator().trim({0, ~uint64_t{0}}, 1), free_blocks);
    EXPECT_EQ(allocator().free_blocks(), free_blocks);
    unsigned char bytes[kBlockBytes];
    ASSERT_TRUE(device.read((2 * kBlocksPerGroup + 500) * kBlockBytes, bytes, sizeof bytes).ok());
    EXPECT_EQ(bytes[0], CrashDevice::kDiscardPattern);

    // Fixed blocks stay what they are: the volume works as before.
    EXPECT_EQ(*allocator().trim({2 * kBlocksPerGroup + 500, 100}, 100), 100U);
    EXPECT_EQ(*allocator().trim({2 * kBlocksPerGroup + 500, 100}, 101), 0U);
    EXPECT_EQ(total_of(volume.drain()), free_blocks);
    EXPECT_EQ(*allocator().trim({0, ~uint64_t{0}}, 1), 0U);
}

TEST(AllocatorTrim, NeedsADeviceThatDiscards) {
    vfs::DeviceGeometry geometry;
    geometry.size_bytes = kMinimumBlocks * kBlockBytes;
    CrashDevice device(geometry);
    AllocatorVolume volume(device, kMinimumBlocks);
    volume.format();
    EXPECT_EQ(volume.allocator->trim({0, 100}, 1).error(), Error::eopnotsupp);
}

}  // namespace
}  // namespace tiffin::tiffinfs
