// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Bitmaps on the device: sealing, writing, reading back, damage, and what power failures leave.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/tiffinfs/space/bitmap_timelines.h"
#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/unit/tiffinfs/allocator_fixture.h"

namespace tiffin::tiffinfs {
namespace {

using test::CrashDevice;
using test::CrashOutcome;

constexpr uint64_t kTwoGroups = kBlocksPerGroup + 4000;

class AllocatorCheckpoint : public testing::Test {
  protected:
    AllocatorCheckpoint() : device(kTwoGroups * kBlockBytes), volume(device, kTwoGroups) {}
    void SetUp() override { volume.format(); }

    Allocator& allocator() { return *volume.allocator; }

    BitmapBlock read_slot(uint64_t group, uint64_t slot) {
        BitmapBlock block;
        EXPECT_TRUE(
            device.read(bitmap_block(group, slot) * kBlockBytes, &block, sizeof block).ok());
        return block;
    }
    uint64_t slot_generation(uint64_t group, uint64_t slot) {
        return read_slot(group, slot).generation;
    }
    // Reads the bitmap that counts for `generation`; the error when there is none.
    std::optional<Error> read_bitmap(uint64_t group, uint64_t generation, BitmapBlock& block) {
        Result<void> result =
            Allocator::read_bitmap(device, volume.superblock, group, generation, block);
        return result.ok() ? std::nullopt : std::optional<Error>(result.error());
    }
    static bool is_used(const BitmapBlock& block, uint64_t number) {
        const uint64_t bit = number % kBlocksPerGroup;
        return (block.bits[bit / 8] >> bit % 8 & 1) != 0;
    }

    CrashDevice device;
    AllocatorVolume volume;
};

TEST_F(AllocatorCheckpoint, WhatIsUsedSurvivesAndNothingElse) {
    BlockRange kept = *volume.map(100);
    BlockRange freed = *volume.map(50);
    Result<BlockRange> held = allocator().allocate(0, 30, SpacePriority::normal);
    ASSERT_TRUE(held.ok());
    allocator().mark_data_free(freed, 9);
    ASSERT_TRUE(volume.checkpoint());
    EXPECT_EQ(volume.superblock.used_blocks, volume.fixed_blocks() + 100);
    BlockRange later = *volume.map(20);  // not in the checkpoint

    volume.mount();
    EXPECT_EQ(allocator().used_blocks(), volume.fixed_blocks() + 100);
    EXPECT_EQ(allocator().free_blocks(), kTwoGroups - volume.fixed_blocks() - 100);
    ShadowMap shadow(volume.layout());
    ASSERT_TRUE(shadow.take(kept));
    uint64_t found = 0;
    for (const BlockRange& range : volume.drain()) {
        ASSERT_TRUE(shadow.take(range));
        found += range.block_count;
    }
    EXPECT_EQ(found, kTwoGroups - volume.fixed_blocks() - 100);
    EXPECT_TRUE(shadow.is_taken(later.first_block));
}

TEST_F(AllocatorCheckpoint, OnlyChangedGroupsAreWritten) {
    volume.drain();
    ASSERT_TRUE(volume.checkpoint());
    device.reset_counts();
    ASSERT_TRUE(volume.checkpoint());
    EXPECT_EQ(device.counts().writes, 0U);
    allocator().mark_data_free({kBlocksPerGroup + 100, 1}, 1);
    EXPECT_EQ(allocator().dirty_groups(), 1U);
    ASSERT_TRUE(volume.checkpoint());
    EXPECT_EQ(allocator().dirty_groups(), 0U);
    EXPECT_EQ(device.counts().writes, 1U);
    EXPECT_EQ(device.counts().bytes_written, kBlockBytes);
    EXPECT_EQ(device.counts().reads, 0U);
}

TEST_F(AllocatorCheckpoint, MountingReadsOnlyTheGroupsThatAreNeeded) {
    volume.drain();
    ASSERT_TRUE(volume.checkpoint());
    device.reset_counts();
    volume.mount();
    EXPECT_EQ(device.counts().reads, 0U);
    ASSERT_TRUE(allocator().load({kBlocksPerGroup + 100, 10}).ok());
    ASSERT_TRUE(allocator().load({kBlocksPerGroup + 200, 10}).ok());
    EXPECT_EQ(device.counts().reads, 1U);
}

TEST_F(AllocatorCheckpoint, TheTwoNewestGenerationsAreKept) {
    // The first time a group is written, both slots are.
    EXPECT_EQ(slot_generation(0, 0), 1U);
    EXPECT_EQ(slot_generation(0, 1), 1U);
    for (uint64_t generation = 2; generation < 8; ++generation) {
        ASSERT_TRUE(volume.map(1));
        ASSERT_TRUE(volume.checkpoint(generation));
        EXPECT_EQ(std::max(slot_generation(0, 0), slot_generation(0, 1)), generation);
        EXPECT_EQ(std::min(slot_generation(0, 0), slot_generation(0, 1)), generation - 1);
        BitmapBlock now;
        BitmapBlock before;
        ASSERT_FALSE(read_bitmap(0, generation, now));
        ASSERT_FALSE(read_bitmap(0, generation - 1, before));
        EXPECT_EQ(now.generation, generation);
        EXPECT_EQ(before.generation, generation - 1);
        EXPECT_EQ(now.used_blocks, before.used_blocks + 1);
        EXPECT_EQ(read_bitmap(0, generation - 2, before), Error::euclean);
    }
    volume.mount();
    ASSERT_TRUE(volume.map(1));
    ASSERT_TRUE(volume.checkpoint(8));
    EXPECT_EQ(std::min(slot_generation(0, 0), slot_generation(0, 1)), 7U);
}

TEST_F(AllocatorCheckpoint, ADamagedNewestSlotIsNeverReplacedByTheOlderOne) {
    fuse::CapturedLog log;
    BlockRange first = *volume.map(10);
    ASSERT_TRUE(volume.checkpoint(2));
    BlockRange second = *volume.map(10);
    ASSERT_TRUE(volume.checkpoint(3));
    const uint64_t newest = slot_generation(0, 0) == 3 ? 0 : 1;
    device.flip_bit(bitmap_block(0, newest) * kBlockBytes + 100, 3);
    BitmapBlock block;
    EXPECT_EQ(read_bitmap(0, 3, block), Error::euclean);
    // Asked for the generation before, there is nothing wrong with it.
    ASSERT_FALSE(read_bitmap(0, 2, block));
    EXPECT_TRUE(is_used(block, first.first_block));
    EXPECT_FALSE(is_used(block, second.first_block));
    volume.mount();
    // What is freed in that group is not handed out again.
    ASSERT_TRUE(allocator().load({first.first_block, 1}).ok());
    const uint64_t used_blocks = allocator().used_blocks();
    allocator().mark_data_free(first, 1);
    allocator().release_data_frees(1, true);
    EXPECT_EQ(allocator().used_blocks(), used_blocks);
    EXPECT_EQ(
        group_of(allocator().allocate(first.first_block, 1, SpacePriority::normal)->first_block),
        1U);
    EXPECT_TRUE(log.contains("bitmap of group 0 is damaged"));
    EXPECT_TRUE(log.contains("fsck.tiffin"));
    // The superblock before falls back to the older slot.
    volume.superblock = volume.previous;
    volume.mount();
    ASSERT_TRUE(allocator().load({first.first_block, 1}).ok());
    EXPECT_EQ(allocator().used_blocks(), volume.fixed_blocks() + 10);
}

// The first time a group is written its slots are copies of each other.
TEST_F(AllocatorCheckpoint, ACopyOfTheSameGenerationStandsIn) {
    BitmapBlock good;
    ASSERT_FALSE(read_bitmap(0, 1, good));
    for (uint64_t slot = 0; slot < 2; ++slot) {
        const uint64_t offset = bitmap_block(0, slot) * kBlockBytes + 1000;
        device.flip_bit(offset, 1);
        BitmapBlock block;
        ASSERT_FALSE(read_bitmap(0, 1, block));
        EXPECT_EQ(memcmp(&block, &good, sizeof block), 0);
        device.flip_bit(offset, 1);
    }
}

TEST_F(AllocatorCheckpoint, OtherGroupsServeWhenOneIsDamaged) {
    fuse::CapturedLog log;
    volume.drain();
    allocator().mark_data_free({5000, 100}, 1);
    allocator().mark_data_free({kBlocksPerGroup + 1000, 70}, 1);
    ASSERT_TRUE(volume.checkpoint());
    for (uint64_t slot = 0; slot < 2; ++slot) {
        device.flip_bit(bitmap_block(0, slot) * kBlockBytes + 3000, 0);
    }
    volume.mount();
    std::vector<BlockRange> ranges;
    for (;;) {
        Result<BlockRange> range = allocator().allocate(0, 20, SpacePriority::privileged);
        if (!range.ok()) {
            break;
        }
        EXPECT_EQ(group_of(range->first_block), 1U);
        ranges.push_back(*range);
    }
    EXPECT_EQ(total_of(ranges), 70U);
    EXPECT_EQ(log.lines().size(), 1U) << "once for each group";
}

// Whichever bit rots in whichever slot: the bitmap is the right one or it is refused.
TEST_F(AllocatorCheckpoint, NoFlippedBitGoesUnnoticed) {
    ASSERT_TRUE(volume.map(10));
    ASSERT_TRUE(volume.checkpoint(2));
    ASSERT_TRUE(volume.map(10));
    ASSERT_TRUE(volume.checkpoint(3));
    BitmapBlock good;
    ASSERT_FALSE(read_bitmap(0, 3, good));
    for (uint64_t slot = 0; slot < 2; ++slot) {
        const uint64_t offset = bitmap_block(0, slot) * kBlockBytes;
        for (uint64_t byte = 0; byte < kBlockBytes; byte += byte < 64 ? 1 : 31) {
            for (unsigned bit = 0; bit < 8; ++bit) {
                device.flip_bit(offset + byte, bit);
                BitmapBlock block;
                std::optional<Error> error = read_bitmap(0, 3, block);
                if (error) {
                    ASSERT_EQ(*error, Error::euclean);
                } else {
                    ASSERT_EQ(memcmp(&block, &good, sizeof block), 0)
                        << "slot " << slot << " byte " << byte << " bit " << bit;
                }
                device.flip_bit(offset + byte, bit);
            }
        }
    }
}

TEST_F(AllocatorCheckpoint, BitmapsThatContradictThemselvesAreRefused) {
    const Layout layout = volume.layout();
    auto try_bitmap = [&](uint64_t group, auto&& change) {
        auto block = std::make_unique<BitmapBlock>();
        std::vector<uint64_t> words(kBitmapWords);
        layout.set_fixed_bits(group, words.data());
        make_bitmap_block(layout, group, 1, words.data(), *block);
        change(*block);
        finish_bitmap_block(*block);
        for (uint64_t slot = 0; slot < 2; ++slot) {
            device.overwrite(bitmap_block(group, slot) * kBlockBytes, block.get(), sizeof *block);
        }
        BitmapBlock read;
        return read_bitmap(group, 1, read);
    };
    EXPECT_EQ(try_bitmap(0, [](BitmapBlock&) {}), std::nullopt);
    EXPECT_EQ(try_bitmap(1, [](BitmapBlock&) {}), std::nullopt);
    EXPECT_EQ(try_bitmap(0, [](BitmapBlock& b) { b.used_blocks++; }), Error::euclean);
    EXPECT_EQ(try_bitmap(1, [](BitmapBlock& b) { b.group = 0; }), Error::euclean);
    EXPECT_EQ(try_bitmap(0, [](BitmapBlock& b) { b.volume_nonce++; }), Error::euclean);
    EXPECT_EQ(try_bitmap(0, [](BitmapBlock& b) { b.generation = 2; }), Error::euclean);
    EXPECT_EQ(try_bitmap(0, [](BitmapBlock& b) { b.magic = 0; }), Error::euclean);
    auto clear = [](uint64_t bit) {
        return [bit](BitmapBlock& b) {
            b.bits[bit / 8] &= static_cast<uint8_t>(~(1U << bit % 8));
            b.used_blocks--;
        };
    };
    // The superblock, a bitmap slot, the journal, a superblock copy, beyond the end.
    EXPECT_EQ(try_bitmap(0, clear(0)), Error::euclean);
    EXPECT_EQ(try_bitmap(0, clear(3)), Error::euclean);
    EXPECT_EQ(try_bitmap(0, clear(10)), Error::euclean);
    EXPECT_EQ(try_bitmap(1, clear(1)), Error::euclean);
    EXPECT_EQ(try_bitmap(1, clear(kTwoGroups - kBlocksPerGroup - 1)), Error::euclean);
    EXPECT_EQ(try_bitmap(1, [&](BitmapBlock& b) { clear(kBlocksPerGroup - 1)(b); }),
              Error::euclean);
}

// ---- Failing devices --------------------------------------------------------------------------

TEST_F(AllocatorCheckpoint, AFailedWriteCountsTheGroupsAsChangedAgain) {
    volume.drain();
    ASSERT_TRUE(volume.checkpoint(2));
    allocator().mark_data_free({1000, 1}, 1);
    allocator().mark_data_free({kBlocksPerGroup + 1000, 1}, 1);
    for (uint64_t number = 1; number <= 2; ++number) {
        ASSERT_TRUE(allocator().seal(3).ok());
        device.fail_write(number);
        EXPECT_EQ(allocator().write_sealed().error(), Error::eio);
        EXPECT_EQ(allocator().dirty_groups(), 2U);
        // What the durable superblock needs has not been touched.
        BitmapBlock block;
        ASSERT_FALSE(read_bitmap(0, 2, block));
        EXPECT_EQ(block.generation, 2U);
        ASSERT_FALSE(read_bitmap(1, 2, block));
        EXPECT_EQ(block.generation, 2U);
    }
    ASSERT_TRUE(volume.checkpoint(3));
    volume.mount();
    EXPECT_EQ(allocator().used_blocks(), kTwoGroups - 2);
    EXPECT_EQ(total_of(volume.drain()), 2U);
}

TEST_F(AllocatorCheckpoint, ASuperblockThatWasNotWrittenLeavesItsPredecessorWhole) {
    BlockRange first = *volume.map(10);
    ASSERT_TRUE(volume.checkpoint(2));
    // Bitmaps of generation 3 are written several times, its superblock never is.
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(volume.map(10));
        ASSERT_TRUE(allocator().seal(3).ok());
        ASSERT_TRUE(allocator().write_sealed().ok());
    }
    BitmapBlock block;
    ASSERT_FALSE(read_bitmap(0, 2, block));
    EXPECT_EQ(block.generation, 2U);
    EXPECT_TRUE(is_used(block, first.first_block));
    EXPECT_EQ(block.used_blocks, volume.layout().fixed_blocks(0, 1) + 10);
}

TEST_F(AllocatorCheckpoint, SealedCopiesThatWereNotWrittenAreDropped) {
    ASSERT_TRUE(volume.map(10));
    ASSERT_TRUE(allocator().seal(2).ok());
    EXPECT_EQ(allocator().dirty_groups(), 0U);
    ASSERT_TRUE(volume.map(10));
    ASSERT_TRUE(volume.checkpoint(2));
    volume.mount();
    EXPECT_EQ(allocator().used_blocks(), volume.fixed_blocks() + 20);
    EXPECT_EQ(total_of(volume.drain()), kTwoGroups - volume.fixed_blocks() - 20);
}

TEST_F(AllocatorCheckpoint, ADeviceThatCannotBeReadIsAnErrorAndASectorIsDamage) {
    fuse::CapturedLog log;
    volume.map(10);
    ASSERT_TRUE(volume.checkpoint());
    volume.mount();
    device.fail_read(1);
    EXPECT_TRUE(allocator().load({1000, 1}).ok()) << "it has passed";
    EXPECT_FALSE(log.contains("bitmap of group 0"));
    volume.mount();
    device.fail_reads_at(bitmap_block(0, 1) * kBlockBytes);
    EXPECT_TRUE(allocator().load({1000, 1}).ok()) << "of no use for space, and no error otherwise";
    EXPECT_TRUE(log.contains("bitmap of group 0 is damaged: it cannot be read"));
    device.fail_reads_at(CrashDevice::kNowhere);
    volume.mount();
    device.stop();
    EXPECT_EQ(allocator().load({1000, 1}).error(), Error::eio);
    EXPECT_TRUE(log.contains("bitmap of group 0 cannot be read"));
}

// At whichever write the power fails, and whatever it leaves: the bitmaps of the last superblock
// are there, and those of the one before as long as no new ones were written.
TEST(AllocatorCrash, APowerFailureLeavesTheBitmapsOfTheLastSuperblock) {
    constexpr CrashOutcome kOutcomes[] = {CrashOutcome::keep_random_units,
                                          CrashOutcome::drop_unflushed,
                                          CrashOutcome::keep_completed};
    for (uint64_t round = 0; round < 60; ++round) {
        SCOPED_TRACE(round);
        CrashDevice device(kTwoGroups * kBlockBytes);
        AllocatorVolume volume(device, kTwoGroups);
        volume.format();
        // Leaves free blocks here and there in both groups.
        for (const BlockRange& range : volume.drain(100)) {
            volume.allocator->mark_data_free({range.first_block, range.block_count / 2}, 1);
        }
        volume.allocator->release_data_frees(1, true);
        for (uint64_t i = 0; i <= round % 3; ++i) {
            ASSERT_TRUE(volume.checkpoint());
            ASSERT_TRUE(volume.map(3, 1000));
            ASSERT_TRUE(volume.map(3, kBlocksPerGroup + 1000));
        }
        device.stop_after_writes(round % 2);
        EXPECT_FALSE(volume.checkpoint());
        auto after = device.after_crash(kOutcomes[round % 3], round);
        AllocatorVolume recovered(*after, kTwoGroups);
        recovered.superblock = volume.superblock;
        for (uint32_t mounts = 0; mounts < 3; ++mounts) {
            recovered.mount();
            uint64_t used = 0;
            for (uint64_t group = 0; group < 2; ++group) {
                BitmapBlock block;
                ASSERT_TRUE(Allocator::read_bitmap(*after, recovered.superblock, group,
                                                   recovered.superblock.generation, block)
                                .ok());
                used += block.used_blocks;
            }
            EXPECT_EQ(used, recovered.superblock.used_blocks);
            ASSERT_TRUE(recovered.map(2, mounts % 2 * kBlocksPerGroup + 1000));
            ASSERT_TRUE(recovered.checkpoint());
        }
    }
}

// ---- Timelines --------------------------------------------------------------------------------

// A checkpoint that never got its superblock leaves bitmaps of a generation that the next mount
// will use again, for other things.
TEST_F(AllocatorCheckpoint, BitmapsOfALostCheckpointNeverComeBack) {
    fuse::CapturedLog log;
    volume.drain();
    allocator().mark_data_free({1000, 100}, 1);
    allocator().mark_data_free({kBlocksPerGroup + 1000, 100}, 1);
    allocator().release_data_frees(1, true);
    ASSERT_TRUE(volume.checkpoint(2));
    // Lost: group 1 changes, power fails before superblock 3.
    ASSERT_TRUE(volume.map(10, kBlocksPerGroup + 1000));
    ASSERT_TRUE(allocator().seal(3).ok());
    ASSERT_TRUE(allocator().write_sealed().ok());
    // The next mount changes only group 0, in a generation of the same number, and does not even
    // load group 1.
    volume.mount();
    ASSERT_TRUE(volume.map(10, 1000));
    ASSERT_TRUE(volume.checkpoint(3));
    volume.mount();
    EXPECT_EQ(allocator().used_blocks(), kTwoGroups - 190);
    EXPECT_EQ(total_of(volume.drain()), 190U);
    // Not even after many more mounts, each of which loses a checkpoint, with and without one that
    // succeeds.
    for (uint64_t generation = 4; generation < 40; ++generation) {
        volume.mount();
        ASSERT_TRUE(volume.map(1, 1000));
        ASSERT_TRUE(allocator().seal(generation).ok());
        ASSERT_TRUE(allocator().write_sealed().ok());
        volume.mount();
        ASSERT_TRUE(volume.map(1, kBlocksPerGroup + 1000));
        ASSERT_TRUE(volume.checkpoint(generation));
        uint64_t used = 0;
        for (uint64_t group = 0; group < 2; ++group) {
            BitmapBlock block;
            ASSERT_FALSE(read_bitmap(group, generation, block)) << generation;
            used += block.used_blocks;
        }
        ASSERT_EQ(used, volume.superblock.used_blocks);
    }
    EXPECT_LE(volume.layout().timelines.size(), BitmapTimelines::kCapacity);
    EXPECT_TRUE(log.contains("looking through all bitmaps"));
}

TEST_F(AllocatorCheckpoint, AFallBackToTheSuperblockBeforeStartsANewHistory) {
    volume.drain();
    allocator().mark_data_free({1000, 100}, 1);
    allocator().release_data_frees(1, true);
    ASSERT_TRUE(volume.checkpoint(2));
    ASSERT_TRUE(volume.map(10, 1000));
    ASSERT_TRUE(volume.checkpoint(3));
    volume.superblock = volume.previous;
    volume.mount();
    EXPECT_EQ(allocator().used_blocks(), kTwoGroups - 100);
    ASSERT_TRUE(volume.checkpoint(4));
    volume.mount();
    EXPECT_EQ(total_of(volume.drain()), 100U);
}

TEST_F(AllocatorCheckpoint, ACleanMountKeepsItsTimeline) {
    ASSERT_TRUE(volume.checkpoint());
    volume.mount();
    EXPECT_EQ(volume.layout().timelines.size(), 1U);
    ASSERT_TRUE(volume.checkpoint());
    volume.superblock.state = superblock_state::clean;
    const Superblock before = volume.superblock;
    volume.mount();
    EXPECT_EQ(memcmp(&before, &volume.superblock, sizeof before), 0);
}

TEST(BitmapTimelines, TellWhichStampCountsInWhichGeneration) {
    BitmapTimelines timelines;
    EXPECT_TRUE(timelines.contains(5, 77));
    EXPECT_EQ(timelines.current_stamp(), 0U);
    ASSERT_TRUE(timelines.add(10, 1));
    ASSERT_TRUE(timelines.add(20, 2));
    EXPECT_TRUE(timelines.contains(9, 77));
    EXPECT_TRUE(timelines.contains(10, 1));
    EXPECT_FALSE(timelines.contains(10, 2));
    EXPECT_TRUE(timelines.contains(19, 1));
    EXPECT_FALSE(timelines.contains(20, 1));
    EXPECT_TRUE(timelines.contains(21, 2));
    EXPECT_EQ(timelines.current_stamp(), 2U);
    // One that begins at or before others takes their place.
    ASSERT_TRUE(timelines.add(15, 3));
    EXPECT_EQ(timelines.size(), 2U);
    EXPECT_TRUE(timelines.contains(14, 1));
    EXPECT_TRUE(timelines.contains(20, 3));
    for (uint64_t i = 0; i < BitmapTimelines::kCapacity - 2; ++i) {
        ASSERT_TRUE(timelines.add(30 + i, 4 + i));
    }
    EXPECT_FALSE(timelines.add(100, 99));
    Superblock superblock{};
    timelines.store(superblock);
    const BitmapTimelines read = BitmapTimelines::from(superblock);
    EXPECT_EQ(read.size(), BitmapTimelines::kCapacity);
    EXPECT_EQ(read.current_stamp(), timelines.current_stamp());
    EXPECT_TRUE(read.contains(14, 1));
    timelines.clear();
    timelines.store(superblock);
    EXPECT_EQ(BitmapTimelines::from(superblock).size(), 0U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
