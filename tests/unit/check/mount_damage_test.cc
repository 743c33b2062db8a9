// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a mount does with damage that it meets: it goes back to the older generation, or applies the
// errors policy and leaves a mark for the checker.
#include <gtest/gtest.h>

#include <string>

#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/check.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using test::CrashOutcome;
using test::TestVolume;
using tiffinfs::Kind;
using tiffinfs::make_key;

// Damages the leaf with the inodes of files that have tiny contents.
void damage_leaf_of(CrashDevice& device, const std::string& path) {
    ImageEditor editor(device);
    const uint64_t block = editor.leaf_block(make_key(editor.node_of(path), Kind::inode, 0));
    ASSERT_NE(block, editor.superblock().root_block);
    editor.flip_bit(block, 3000, 2);
}

TEST(MountDamage, DamagedRootLeadsToTheOlderGeneration) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 500);
    auto sound = device.after_crash(CrashOutcome::drop_unflushed, 0);
    ImageEditor editor(device);
    const uint64_t damaged_generation = editor.superblock().generation;
    editor.flip_bit(editor.superblock().root_block, 200, 0);

    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    // The new superblock took the slot of the damaged generation: the one that was good is there.
    tiffinfs::SuperblockSet set;
    ASSERT_TRUE(tiffinfs::read_superblocks(device, set).ok());
    ASSERT_EQ(set.count, 4U);
    EXPECT_EQ(set.found[0].generation, damaged_generation + 2);
    EXPECT_EQ(set.found[2].generation, damaged_generation - 1);
    ASSERT_TRUE(volume.create("/later").ok());
    ASSERT_TRUE(volume.unlink("/later").ok());
    ASSERT_TRUE(volume.unmount().ok());
    EXPECT_EQ(difference(see(device), see(*sound)), "");
    const Report report = run_check(device);
    EXPECT_TRUE(report.clean()) << text_of(report);
}

// Expects that the volume asks to be checked.
void expect_marked(CrashDevice& device) {
    tiffinfs::Superblock superblock;
    EXPECT_FALSE(is_marked_clean(device, superblock));
    ImageEditor editor(device);
    EXPECT_NE(editor.superblock().state & tiffinfs::superblock_state::errors, 0U);
}

TEST(MountDamage, DamagedLeafMakesTheVolumeReadOnly) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 500);
    damage_leaf_of(device, "/many/file-250");
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(volume.create("/before").ok());
    EXPECT_EQ(errno_value(volume.attributes("/many/file-250").error()),
              errno_value(Error::euclean));
    EXPECT_EQ(errno_value(volume.create("/after").error()), errno_value(Error::erofs));
    EXPECT_TRUE(volume.find("/before").ok());
    (void)volume.unmount().ok();
    expect_marked(device);
}

TEST(MountDamage, DamagedLeafIsNoReasonToStopWhenAskedToContinue) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 500);
    damage_leaf_of(device, "/many/file-250");
    TestVolume volume(device);
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.errors = tiffinfs::ErrorsPolicy::continue_running;
    ASSERT_TRUE(volume.mount(options).ok());
    EXPECT_EQ(errno_value(volume.attributes("/many/file-250").error()),
              errno_value(Error::euclean));
    EXPECT_TRUE(volume.create("/after").ok());
    ASSERT_TRUE(volume.unmount().ok());
    expect_marked(device);
}

// A read-only mount writes nothing, not even a mark.
TEST(MountDamage, ReadOnlyMountLeavesNoMark) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 500);
    damage_leaf_of(device, "/many/file-250");
    const uint64_t generation = ImageEditor(device).superblock().generation;
    TestVolume volume(device);
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.read_only = true;
    ASSERT_TRUE(volume.mount(options).ok());
    EXPECT_EQ(errno_value(volume.attributes("/many/file-250").error()),
              errno_value(Error::euclean));
    (void)volume.unmount().ok();
    ImageEditor editor(device);
    EXPECT_EQ(editor.superblock().generation, generation);
    EXPECT_EQ(editor.superblock().state, tiffinfs::superblock_state::clean);
}

}  // namespace
}  // namespace tiffin::check
