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

// Damages the leaf with the inodes of files that have tiny contents. In a volume that is settled both generations
// have that leaf; else a mount would go back to the older one.
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

// The superblock names the next unused inode number. What a mount writes must be a superblock that it takes itself.
TEST(MountDamage, ImpossibleNodesInTheJournalAreRefused) {
    for (const uint64_t node :
         {tiffinfs::kKeyOffsetMask, tiffinfs::kKeyOffsetMask + 1, ~uint64_t{0} - 1, ~uint64_t{0}}) {
        CrashDevice device(kDeviceBytes);
        make_populated(device, 20);
        auto sound = device.after_crash(CrashOutcome::drop_unflushed, 0);
        ImageEditor editor(device);
        const tiffinfs::Key tiny = make_key(editor.node_of("/tiny"), Kind::inode, 0);
        editor.append_frame(ImageEditor::record(tiffinfs::RecordType::put,
                                                make_key(node, Kind::inode, 0), editor.get(tiny)),
                            1);
        TestVolume volume(device);
        EXPECT_EQ(errno_value(volume.mount().error()), errno_value(Error::euclean)) << node;
        const Report found = run_check(device);
        EXPECT_TRUE(found.has(Code::journal_record)) << text_of(found);
        (void)repair_completely(device);
        EXPECT_EQ(difference(see(device), see(*sound)), "") << node;
    }
}

TEST(MountDamage, InodeNumbersRunOut) {
    CrashDevice device(kDeviceBytes);
    make_populated(device, 20);
    ImageEditor editor(device);
    tiffinfs::Superblock superblock = editor.superblock();
    superblock.next_node = tiffinfs::kKeyOffsetMask - 2;
    editor.write_superblock(superblock);
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    uint64_t created = 0;
    while (created < 50 && volume.create("/new-" + std::to_string(created)).ok()) {
        ++created;
    }
    EXPECT_EQ(created, 2U);
    (void)volume.unmount().ok();
    const Report report = run_check(device);
    EXPECT_TRUE(report.is_volume) << text_of(report);
    EXPECT_EQ(see(device).count("/new-1"), 1U);
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
    make_settled(device, 500);
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
    make_settled(device, 500);
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
    make_settled(device, 500);
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

// Where a leaf holds a key that its parent sends elsewhere, walking over keys and looking for one come to
// different places. Nobody must wait for them to agree.
TEST(MountDamage, MisplacedKeyIsDamageAndNoReasonToHang) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    ImageEditor editor(device);
    const uint64_t node = editor.node_of("/many/file-100");
    const uint64_t far_node = editor.node_of("/many/file-400");
    const tiffinfs::Key far_key = make_key(far_node, Kind::inode, 0);
    ASSERT_NE(editor.leaf_block(far_key), editor.leaf_block(make_key(node, Kind::inode, 0)));
    editor.put_into_leaf_of(make_key(node, Kind::inode, 0), far_key, editor.get(far_key));
    auto with_journal = device.after_crash(CrashOutcome::drop_unflushed, 0);

    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    EXPECT_EQ(errno_value(volume.attributes("/many/file-100").error()),
              errno_value(Error::euclean));
    EXPECT_FALSE(volume.unlink("/many/file-100").ok());
    (void)volume.unmount().ok();

    // A journal that erases over both of its places.
    ImageEditor(*with_journal)
        .append_frame(
            ImageEditor::record(tiffinfs::RecordType::erase_range, make_key(node, Kind::inode, 0),
                                bytes_of(tiffinfs::next_key(far_key))),
            1);
    TestVolume replaying(*with_journal);
    EXPECT_EQ(errno_value(replaying.mount().error()), errno_value(Error::euclean));
}

// What is written back again by nobody: one damaged leaf of a file's map takes along no block that another leaf maps.
TEST(MountDamage, ADamagedMapStopsNoOtherBlocksOfAWriteBack) {
    constexpr uint64_t kMapped = 300;
    constexpr size_t kBlock = tiffinfs::kBlockBytes;
    CrashDevice device(kDeviceBytes);
    make_settled(device, 20);
    {
        TestVolume volume(device);
        ASSERT_TRUE(volume.mount().ok());
        ASSERT_TRUE(volume.create("/mapped").ok());
        for (uint64_t block = 0; block < kMapped; ++block) {  // no extents that are joined
            const uint64_t place = block * 7 % kMapped;
            ASSERT_TRUE(volume.write("/mapped", place * kBlock, std::string(kBlock, 'o')).ok());
        }
        ASSERT_TRUE(volume.unmount().ok());
    }
    ImageEditor editor(device);
    forget_older_generation(editor);
    const uint64_t node = editor.node_of("/mapped");
    const auto leaf_of = [&](uint64_t block) {
        return editor.leaf_block(make_key(node, Kind::extent, block));
    };
    const uint64_t damaged = leaf_of(kMapped / 2);
    std::vector<uint64_t> intact;
    for (uint64_t block = 0; block < kMapped; ++block) {
        // To write a block its neighbours are looked at.
        if (leaf_of(block) != damaged && leaf_of(block + 1) != damaged &&
            (block == 0 || leaf_of(block - 1) != damaged)) {
            intact.push_back(block);
        }
    }
    ASSERT_GT(intact.size(), kMapped / 3);
    editor.flip_bit(damaged, 3000, 2);
    TestVolume volume(device);
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.errors = tiffinfs::ErrorsPolicy::continue_running;
    ASSERT_TRUE(volume.mount(options).ok());
    std::string content(kMapped * kBlock, 'n');
    const vfs::IoVector buffer{content.data(), content.size()};
    EXPECT_EQ(errno_value(volume.file_system()
                              .write(node, 0, 0, Span<const vfs::IoVector>(&buffer, 1),
                                     vfs::write_flag::write_back | vfs::write_flag::keep_times)
                              .error()),
              errno_value(Error::euclean));
    for (const uint64_t block : intact) {
        EXPECT_TRUE(MUST(volume.read("/mapped", block * kBlock, kBlock)) ==
                    std::string(kBlock, 'n'))
            << block;
    }
}

// A damaged bitmap says nothing about who owns what: changes, checkpoints and replay go on in the other
// groups, also when the root of the tree lies in that one.
// Of a group: by a wrong checksum, or by a sector that cannot be read.
class BitmapDamage : public testing::TestWithParam<bool> {
  protected:
    static void damage(CrashDevice& device, uint64_t group) {
        if (GetParam()) {
            device.fail_reads_at(tiffinfs::bitmap_block(group, 0) * tiffinfs::kBlockBytes);
            return;
        }
        ImageEditor editor(device);
        for (uint32_t slot = 0; slot < 2; ++slot) {
            editor.flip_bit(tiffinfs::bitmap_block(group, slot), 1000, 1);
        }
    }
};
INSTANTIATE_TEST_SUITE_P(Unreadable, BitmapDamage, testing::Bool());

TEST_P(BitmapDamage, OfTheRootStopsNothing) {
    CrashDevice device(3 * kDeviceBytes);
    make_populated(device, 500);
    const uint64_t group = tiffinfs::group_of(ImageEditor(device).superblock().root_block);
    damage(device, group);
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(volume.create("/later").ok());
    ASSERT_TRUE(volume.write("/later", 0, std::string(100'000, 'x')).ok());
    ASSERT_TRUE(volume.unlink("/many/file-250").ok());
    ASSERT_TRUE(volume.file_system().sync(true).ok());
    ASSERT_TRUE(volume.truncate("/later", 50'000).ok());
    ASSERT_TRUE(volume.file_system().sync(true).ok());

    auto crashed = device.after_crash(CrashOutcome::drop_unflushed, 0);
    if (GetParam()) {
        // What replay marks as used there would be free in what can be read again later.
        damage(*crashed, group);
        EXPECT_EQ(TestVolume(*crashed).mount().error(), Error::eio);
        crashed->fail_reads_at(CrashDevice::kNowhere);
    }
    TestVolume replayed(*crashed);
    ASSERT_TRUE(replayed.mount().ok());
    EXPECT_EQ(MUST(replayed.read("/later")), std::string(50'000, 'x'));
    EXPECT_FALSE(replayed.find("/many/file-250").ok());
    ASSERT_TRUE(replayed.create("/after").ok());
    ASSERT_TRUE(replayed.unmount().ok());
    const Report repaired = repair_completely(*crashed);
    EXPECT_EQ(repaired.clean(), GetParam());  // a sector that can be read again is no damage
}

// Also in the group of which replay comes first.
TEST(MountDamage, AnUnreadableBitmapThatReplayNeedsIsRefused) {
    CrashDevice device(3 * kDeviceBytes);
    make_pending(device);
    device.fail_reads_at(tiffinfs::bitmap_block(0, 0) * tiffinfs::kBlockBytes);
    EXPECT_EQ(errno_value(TestVolume(device).mount().error()), errno_value(Error::eio));
    device.fail_reads_at(CrashDevice::kNowhere);
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    EXPECT_EQ(MUST(volume.read("/third")), test::test_content(3, 9000));
}

// With a full list of timelines all bitmaps are looked through. One that is damaged stops neither a mount nor a repair, and
// counts no more when it can be read again.
TEST_P(BitmapDamage, StopsNoNewListOfTimelines) {
    constexpr uint64_t kGroup = 0;
    CrashDevice device(3 * kDeviceBytes);
    make_populated(device, 500);
    while (ImageEditor(device)
               .superblock()
               .timelines[tiffinfs::BitmapTimelines::kCapacity - 1]
               .first_generation == 0) {
        TestVolume volume(device);
        ASSERT_TRUE(volume.mount().ok());
        volume.abandon();
    }
    auto unmounted = device.after_crash(CrashOutcome::drop_unflushed, 0);
    damage(*unmounted, kGroup);
    damage(device, kGroup);
    TestVolume volume(device);
    EXPECT_TRUE(volume.mount().ok());
    EXPECT_TRUE(volume.create("/later").ok());
    EXPECT_TRUE(volume.unmount().ok());
    device.fail_reads_at(CrashDevice::kNowhere);
    EXPECT_FALSE(repair_completely(device).clean());
    EXPECT_TRUE(run_check(device).clean());
    EXPECT_FALSE(repair_completely(*unmounted).clean());
    EXPECT_TRUE(run_check(*unmounted).clean());
}

// The free blocks of a group whose bitmap is damaged will not be found. So they are neither promised to data that waits in
// a cache, nor do they stand in for the reserves: the volume can be filled, and emptied again.
TEST_P(BitmapDamage, FreeBlocksBehindItAreNotPromised) {
    constexpr uint64_t kGroups = 4;
    CrashDevice device(kGroups * tiffinfs::kBlocksPerGroup * tiffinfs::kBlockBytes);
    {
        TestVolume volume(device);
        ASSERT_TRUE(volume.make().ok());
        ASSERT_TRUE(volume.mount().ok());
        // So that all groups have bitmaps.
        ASSERT_TRUE(volume.create("/large").ok());
        ASSERT_TRUE(
            volume.allocate("/large", 0, 0, 3 * tiffinfs::kBlocksPerGroup * tiffinfs::kBlockBytes)
                .ok());
        ASSERT_TRUE(volume.unlink("/large").ok());
        ASSERT_TRUE(volume.file_system().sync(true).ok());
        ASSERT_TRUE(volume.unmount().ok());
    }
    damage(device, 1);
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    vfs::FileSystem& fs = volume.file_system();
    // What the page cache of a kernel does: a promise for each new page, and write-back later.
    ASSERT_TRUE(volume.create("/cached").ok());
    const uint64_t node = MUST(volume.find("/cached"));
    constexpr uint64_t kPart = 64;
    const std::string text(kPart * tiffinfs::kBlockBytes, 'c');
    uint64_t parts = 0;
    while (fs.promise(kPart).ok()) {
        vfs::IoVector buffer{const_cast<char*>(text.data()), text.size()};
        const auto written =
            fs.write(node, 0, parts * text.size(), Span<const vfs::IoVector>(&buffer, 1),
                     vfs::write_flag::write_back | vfs::write_flag::promised);
        ASSERT_TRUE(written.ok()) << "part " << parts << ": error " << errno_value(written.error());
        ++parts;
    }
    EXPECT_GT(parts * kPart, 2 * tiffinfs::kBlocksPerGroup)
        << "the other groups hold less than they could";
    EXPECT_TRUE(volume.unlink("/cached").ok());
    EXPECT_TRUE(fs.sync(true).ok());
    EXPECT_TRUE(volume.create("/after").ok());
    ASSERT_TRUE(volume.unmount().ok());
}

// Numbers that only grow have a bound, so that the next one always exists.
TEST(MountDamage, CountersBeyondTheirBoundAreRefused) {
    using tiffinfs::Superblock;
    CrashDevice device(kDeviceBytes);
    make_populated(device, 5);
    const uint64_t limit = tiffinfs::kCounterLimit;
    const auto changes = {
        +[](Superblock& superblock, uint64_t value) {
            superblock.generation = value + superblock.generation % 2;
        },
        +[](Superblock& superblock, uint64_t value) { superblock.incarnation = value; },
        +[](Superblock& superblock, uint64_t value) { superblock.journal_sequence = value; },
        +[](Superblock& superblock, uint64_t /*value*/) {
            superblock.root_level = tiffinfs::kMaximumRootLevel + 1;
        },
    };
    for (const auto change : changes) {
        for (const uint64_t value : {limit, ~uint64_t{0} - 1}) {
            auto copy = device.after_crash(CrashOutcome::keep_completed, 0);
            ImageEditor editor(*copy);
            Superblock superblock = editor.superblock();
            change(superblock, value);
            editor.write_superblock(superblock);
            // The generation before may stand in for it.
            TestVolume volume(*copy);
            if (volume.mount().ok()) {
                EXPECT_TRUE(volume.create("/later").ok());
                EXPECT_TRUE(volume.unmount().ok());
            }
            tiffinfs::SuperblockSet set;
            ASSERT_TRUE(tiffinfs::read_superblocks(*copy, set).ok());
            for (uint32_t i = 0; i < set.count; ++i) {
                EXPECT_LT(set.found[i].generation, limit);
                EXPECT_LT(set.found[i].incarnation, limit);
            }
        }
    }
}

// mkfs leaves one slot of superblocks empty, which is no damage; later it would be.
TEST(MountDamage, FreshVolumeHasNone) {
    CrashDevice device(kDeviceBytes);
    ASSERT_TRUE(TestVolume(device).make().ok());
    TestVolume volume(device);
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.read_only = true;
    ASSERT_TRUE(volume.mount(options).ok());
    vfs::ScrubProgress progress;
    while (!progress.finished) {
        ASSERT_TRUE(volume.file_system().scrub(progress).ok());
    }
    EXPECT_EQ(progress.errors_found, 0U);
    ASSERT_TRUE(volume.unmount().ok());
    tiffinfs::SuperblockSet set;
    ASSERT_TRUE(tiffinfs::read_superblocks(device, set).ok());
    EXPECT_EQ(set.damaged, 0U);
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(volume.unmount().ok());
    ASSERT_TRUE(tiffinfs::read_superblocks(device, set).ok());
    EXPECT_EQ(set.damaged, 0U);
}

}  // namespace
}  // namespace tiffin::check
