// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a repair that is interrupted leaves is never taken for older than it is: a mount would hand out blocks that are in use.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fuse/check/check.h"
#include "fuse/check/superblocks.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using test::CrashOutcome;
using test::TestVolume;
using tiffinfs::BitmapBlock;
using tiffinfs::kBlockBytes;

// One group whose newest bitmap is in this slot, and has more blocks in use than the other one.
void make_with_newest_in(CrashDevice& device, uint64_t slot) {
    make_populated(device, 100);
    for (int i = 0;; ++i) {
        ImageEditor editor(device);
        if (editor.bitmap_slot_block(0) == tiffinfs::bitmap_block(0, slot)) {
            return;
        }
        ASSERT_LT(i, 10);
        TestVolume volume(device);
        ASSERT_TRUE(volume.mount().ok());
        ASSERT_TRUE(
            volume.write("/more-" + std::to_string(i), 0, test::test_content(7, 1 << 20)).ok());
        ASSERT_TRUE(volume.unmount().ok());
    }
}

class InterruptedRepair : public testing::TestWithParam<uint64_t> {};

TEST_P(InterruptedRepair, ADamagedBitmapStaysDamagedUntilItIsRight) {
    for (const uint32_t byte : {8U, 2000U}) {  // of its header, and behind it
        CrashDevice device(kDeviceBytes);
        make_with_newest_in(device, GetParam());
        ImageEditor(device).flip_bit(tiffinfs::bitmap_block(0, GetParam()), byte, 3);
        ASSERT_TRUE(run_check(device).has(Code::bitmap_invalid));
        const size_t writes = interrupt_repair(device, [](CrashDevice& after, size_t position) {
            const Report report = run_check(after);
            EXPECT_FALSE(report.has(Code::bitmap_wrong)) << position << "\n" << text_of(report);
            EXPECT_EQ(report.damage, 0U) << position << "\n" << text_of(report);
        });
        EXPECT_GT(writes, 3U);
    }
}

INSTANTIATE_TEST_SUITE_P(NewestInSlot, InterruptedRepair, testing::Values(0, 1));

// As generations are counted on, the bitmaps of such a repair must not come to count: a mount that recovers a volume sees to
// that, one of a clean volume does not.
TEST(InterruptedRepairOfACleanVolume, LeavesNoBitmapForLater) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 300);
    ImageEditor editor(device);
    editor.change_inode(editor.node_of("/many/file-9"), [](auto& inode) { inode.link_count = 9; });
    const size_t writes = interrupt_repair(device, [](CrashDevice& after, size_t position) {
        const SuperblockCopies copies = read_superblock_copies(after);
        ASSERT_FALSE(copies.generations.empty());
        const tiffinfs::Superblock& newest = copies.generations.front();
        for (const uint64_t slot : {0, 1}) {
            Block page;
            ASSERT_TRUE(read_block(after, tiffinfs::bitmap_block(0, slot), page));
            BitmapBlock bitmap;
            std::memcpy(&bitmap, page.bytes, sizeof bitmap);
            EXPECT_TRUE(bitmap.generation <= newest.generation ||
                        (newest.state & tiffinfs::superblock_state::clean) == 0)
                << position;
        }
    });
    EXPECT_GT(writes, 3U);
}

// Both trees are damaged, and the older one has more: a repair that cannot be written leaves both, so that a mount goes on being
// read-only.
TEST(InterruptedRepairOfTwoTrees, LeavesBoth) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 500);
    ImageEditor editor(device);
    const tiffinfs::Superblock newest = editor.superblock();
    editor.flip_bit(newest.root_block, 3000, 2);
    CheckOptions options{.repair = true};
    device.fail_write(3);  // of a tree node
    const Report report = run_check(device, options);
    ASSERT_TRUE(report.has(Code::superblock_older)) << text_of(report);
    EXPECT_TRUE(report.has(Code::repair_failed)) << text_of(report);
    EXPECT_EQ(read_superblock_copies(device).generations.size(), 2U);
}

}  // namespace
}  // namespace tiffin::check
