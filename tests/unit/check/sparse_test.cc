// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Volumes that say they are large and hold next to nothing: the work follows from what is there.
#include <gtest/gtest.h>

#include "fuse/check/check.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;

// More than the groups after which a check gives up; few enough for a device in memory.
constexpr uint64_t kDeviceGroups = 3000;
constexpr uint64_t kHugeBytes =
    kDeviceGroups * tiffinfs::kBlocksPerGroup * tiffinfs::kBlockBytes;  // 188 GiB

// A superblock that promises a bitmap for each group, with a good checksum.
void promise_bitmaps(CrashDevice& device, uint32_t state) {
    ImageEditor editor(device);
    tiffinfs::Superblock superblock = editor.superblock();
    ASSERT_LT(superblock.initialized_groups, 10U);
    superblock.initialized_groups = kDeviceGroups;
    superblock.state = state;
    editor.write_superblock(superblock);
}

TEST(Sparse, PromisedBitmapsAreNotAllWritten) {
    CrashDevice device(kHugeBytes);
    make_populated(device, 20);
    promise_bitmaps(device, tiffinfs::superblock_state::clean);
    device.reset_counts();
    const Report report = run_check(device, {.repair = true});
    EXPECT_TRUE(report.has(Code::bitmap_invalid)) << report.findings.size();
    EXPECT_EQ(report.not_repaired, 0U);
    EXPECT_LE(device.counts().writes, 50U);
    EXPECT_LE(device.counts().reads, 5000U);
    EXPECT_LT(ImageEditor(device).superblock().initialized_groups, 10U);
    (void)repair_completely(device);
    EXPECT_GT(see(device).size(), 20U);
}

// As above when the places for timelines are used up, which needs a look at all bitmaps.
TEST(Sparse, TimelinesStartOverWithoutAllBitmaps) {
    CrashDevice device(kHugeBytes);
    make_populated(device, 20);
    tiffinfs::Superblock superblock = ImageEditor(device).superblock();
    tiffinfs::BitmapTimelines timelines = MUST(tiffinfs::Layout::from(superblock)).timelines;
    superblock.generation +=
        2 * tiffinfs::BitmapTimelines::kCapacity;  // each begins with another one
    for (uint64_t i = timelines.size(); i < tiffinfs::BitmapTimelines::kCapacity; ++i) {
        ASSERT_TRUE(
            timelines.add(superblock.generation - tiffinfs::BitmapTimelines::kCapacity + i, i + 1));
    }
    timelines.store(superblock);
    ImageEditor(device).write_superblock(superblock);
    promise_bitmaps(device, 0);
    device.reset_counts();
    const Report report = run_check(device, {.repair = true});
    EXPECT_TRUE(report.changed);
    EXPECT_LE(device.counts().writes, 50U);
    EXPECT_LE(device.counts().reads, 5000U);
    (void)repair_completely(device);
}

TEST(Sparse, WritingBitmapsCanBeCancelled) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 20);
    ImageEditor(device).change_inode(ImageEditor(device).node_of("/tiny"),
                                     [](auto& inode) { inode.link_count = 9; });
    bool repairing = false;
    CheckOptions options;
    options.repair = true;
    options.on_progress = [&](const Progress& progress) {
        repairing = progress.phase == Phase::repair && progress.fraction >= 0.7;
    };
    options.is_cancelled = [&] { return repairing; };
    const Report report = check_file_system(device, options);
    EXPECT_TRUE(report.cancelled);
    EXPECT_FALSE(report.has(Code::repair_failed)) << text_of(report);
    EXPECT_EQ(report.not_repaired, 1U) << text_of(report);
    EXPECT_TRUE(run_check(device).has(Code::link_count));
    (void)repair_completely(device);
}

}  // namespace
}  // namespace tiffin::check
