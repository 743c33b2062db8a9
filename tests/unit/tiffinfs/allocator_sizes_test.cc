// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Small, huge and impossible volumes, and want of memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "fs/tiffinfs/space/allocator.h"
#include "fuse/host/allocation_hooks.h"
#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/unit/tiffinfs/allocator_fixture.h"

namespace tiffin::tiffinfs {
namespace {

using test::CrashDevice;

TEST(AllocatorSizes, ImpossibleLayoutsAreRefused) {
    fuse::CapturedLog log;
    CrashDevice device(1 << 20);
    ReaderEpochs readers;
    auto start = [&](auto&& change) {
        Superblock superblock = make_test_superblock(kThreeGroups);
        superblock.used_blocks = 100;
        superblock.initialized_groups = 1;
        change(superblock);
        Allocator allocator(device, readers);
        Result<void> result = allocator.start(superblock);
        return result.ok() ? 0 : errno_value(result.error());
    };
    const int euclean = errno_value(Error::euclean);
    EXPECT_EQ(start([](Superblock&) {}), 0);
    EXPECT_EQ(start([](Superblock& s) { s.total_blocks = 0; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.total_blocks = kMinimumBlocks - 1; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.total_blocks = kMaximumBlocks + 1; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.total_blocks = ~uint64_t{0}; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.total_blocks = kBlocksPerGroup + 3; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.used_blocks = s.total_blocks + 1; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.initialized_groups = 4; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.journal_first_block = 3; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.journal_first_block = ~uint64_t{0}; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.journal_block_count = kBlocksPerGroup - 3; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.journal_block_count = ~uint64_t{0}; }), euclean);
    EXPECT_EQ(start([](Superblock& s) { s.journal_block_count = kBlocksPerGroup - 4; }), 0);
}

TEST(AllocatorSizes, RoundedVolumesAlwaysHaveRoomForTheirStructures) {
    for (uint64_t blocks = kMinimumBlocks; blocks < 2 * kBlocksPerGroup + 20; ++blocks) {
        const uint64_t rounded = round_total_blocks(blocks);
        ASSERT_LE(rounded, blocks);
        ASSERT_GT(rounded + 8, blocks);
        ASSERT_TRUE(Layout::from(make_test_superblock(rounded)).ok()) << blocks;
    }
}

TEST(AllocatorSizes, TheSmallestVolumeCanBeFilled) {
    CrashDevice device(kMinimumBlocks * kBlockBytes);
    AllocatorVolume volume(device, kMinimumBlocks);
    volume.format();
    EXPECT_EQ(volume.allocator->reserve_blocks(), 128U);
    EXPECT_EQ(total_of(volume.drain()), kMinimumBlocks - volume.fixed_blocks());
    ASSERT_TRUE(volume.checkpoint());
    volume.mount();
    EXPECT_EQ(volume.allocator->free_blocks(), 0U);
    EXPECT_FALSE(volume.map(1));
}

// Keeps the blocks that were written; reads zeros elsewhere.
class EndlessDevice final : public vfs::BlockDevice {
  public:
    explicit EndlessDevice(uint64_t size_bytes) { geometry_.size_bytes = size_bytes; }
    const vfs::DeviceGeometry& geometry() const override { return geometry_; }
    void submit(vfs::IoRequest& request) override {
        uint64_t block = request.offset_bytes / kBlockBytes;
        for (size_t i = 0; i < request.buffer_count; ++i) {
            auto* bytes = static_cast<unsigned char*>(request.buffers[i].data);
            for (size_t at = 0; at < request.buffers[i].size_bytes; at += kBlockBytes, ++block) {
                if (request.operation == vfs::IoOperation::write) {
                    blocks_[block].assign(bytes + at, bytes + at + kBlockBytes);
                } else if (auto found = blocks_.find(block); found != blocks_.end()) {
                    std::copy(found->second.begin(), found->second.end(), bytes + at);
                } else {
                    std::fill(bytes + at, bytes + at + kBlockBytes, 0);
                }
            }
        }
        request.complete(request, {});
    }
    size_t written_blocks() const { return blocks_.size(); }

  private:
    vfs::DeviceGeometry geometry_;
    std::map<uint64_t, std::vector<unsigned char>> blocks_;
};

TEST(AllocatorSizes, AnExbibyteCostsNoMoreThanWhatIsUsed) {
    fuse::AllocationWatch watch;
    {
        EndlessDevice device(kMaximumBlocks * kBlockBytes);
        AllocatorVolume volume(device, kMaximumBlocks);
        volume.format();
        EXPECT_EQ(volume.allocator->free_blocks(), kMaximumBlocks - volume.fixed_blocks());
        EXPECT_EQ(volume.allocator->reserve_blocks(), 8192U);
        for (int i = 0; i < 50; ++i) {
            ASSERT_TRUE(volume.map(kBlocksPerGroup));
        }
        ASSERT_TRUE(volume.checkpoint());
        EXPECT_EQ(volume.superblock.initialized_groups, 50U);
        EXPECT_LT(device.written_blocks(), 200U);
        EXPECT_LT(watch.live_bytes(), 1 << 20);
        volume.mount();
        ASSERT_TRUE(volume.map(1));
    }
    EXPECT_EQ(watch.live_bytes(), 0);
}

TEST(AllocatorSizes, ACraftedRangeCannotOpenGroupsWithoutBound) {
    fuse::CapturedLog log;
    EndlessDevice device(kMaximumBlocks * kBlockBytes);
    AllocatorVolume volume(device, kMaximumBlocks);
    volume.format();
    EXPECT_EQ(volume.allocator->protect_for_replay({kMaximumBlocks / 2 + 100, 4}).error(),
              Error::euclean);
    EXPECT_EQ(volume.allocator->load({uint64_t{100000} * kBlocksPerGroup + 100, 4}).error(),
              Error::euclean);
    EXPECT_EQ(volume.allocator->dirty_groups(), 0U);
}

TEST(AllocatorSizes, OpenedGroupsAreBoundedBetweenCheckpoints) {
    EndlessDevice device(kMaximumBlocks * kBlockBytes);
    AllocatorVolume volume(device, kMaximumBlocks);
    volume.format();
    uint64_t groups = 0;
    while (volume.map(kBlocksPerGroup)) {
        ++groups;
        ASSERT_LE(groups, 5000U);
    }
    EXPECT_EQ(groups, 4097U);
    ASSERT_TRUE(volume.checkpoint());
    EXPECT_TRUE(volume.map(kBlocksPerGroup));
}

// A crafted superblock may claim that there are bitmaps where there is nothing at all.
TEST(AllocatorSizes, BitmapsThatWereNeverWrittenEndASearchInTime) {
    fuse::CapturedLog log;
    EndlessDevice device(kMaximumBlocks * kBlockBytes);
    ReaderEpochs readers;
    Superblock superblock = make_test_superblock(kMaximumBlocks);
    superblock.initialized_groups = group_count(kMaximumBlocks);
    superblock.used_blocks = 1000;
    Allocator allocator(device, readers);
    ASSERT_TRUE(allocator.start(superblock).ok());
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(allocator.allocate(0, 10, SpacePriority::normal).error(), Error::euclean);
    }
    EXPECT_LT(log.lines().size(), 300U);
}

TEST(AllocatorMemory, EveryFailedAllocationIsAnErrorAndNothingLeaks) {
    fuse::CapturedLog log;
    for (uint64_t number = 1;; ++number) {
        CrashDevice device(kThreeGroups * kBlockBytes);
        AllocatorVolume volume(device, kThreeGroups);
        volume.format();
        volume.map(100);
        ASSERT_TRUE(volume.checkpoint());
        fuse::AllocationWatch watch;
        bool failed = false;
        {
            Allocator allocator(device, volume.readers);
            auto run = [&]() -> Result<void> {
                TRY(allocator.start(volume.superblock));
                TRY(allocator.begin_timeline(volume.superblock));
                BlockRange range = TRY(allocator.allocate(0, 100, SpacePriority::normal));
                allocator.mark_used(range);
                TRY(allocator.protect_for_replay({kBlocksPerGroup + 500, 10}));
                allocator.mark_used({kBlocksPerGroup + 500, 10});
                allocator.mark_data_free({kBlocksPerGroup + 500, 10}, 1);
                allocator.end_replay();
                TRY(allocator.seal(3));
                TRY(allocator.write_sealed());
                return {};
            };
            watch.fail_allocation(number);
            Result<void> result = run();
            watch.stop_failing();
            failed = watch.failed_allocations() != 0;
            // A group that cannot be loaded for want of memory is no error while there is another.
            if (!result.ok()) {
                EXPECT_TRUE(failed);
                EXPECT_EQ(result.error(), Error::enomem) << "allocation " << number;
            }
        }
        EXPECT_EQ(watch.live_allocations(), 0) << "allocation " << number;
        if (!failed) {
            EXPECT_GT(number, 8U);
            break;
        }
    }
}

TEST(AllocatorMemory, NothingIsAllocatedWhenBlocksComeAndGo) {
    CrashDevice device(kThreeGroups * kBlockBytes);
    AllocatorVolume volume(device, kThreeGroups);
    volume.format();
    fuse::AllocationWatch watch;
    for (uint64_t ticket = 1; ticket < 2000; ++ticket) {
        BlockRange range = *volume.map(5);
        volume.allocator->mark_data_free({range.first_block, 1}, ticket);
        volume.allocator->mark_data_free({range.first_block + 2, 1}, ticket);
        volume.allocator->mark_node_free(range.first_block + 4, 2);
        volume.allocator->release_data_frees(ticket / 2, false);
    }
    EXPECT_EQ(watch.allocations(), 0U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
