// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which of the two generations a repair starts from, when the newest one is damaged.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "fs/tiffinfs/tree/node.h"
#include "fuse/check/check.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using test::TestVolume;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

constexpr uint32_t kFiles = 500;

// Two generations: the older one with `damage`, which the newer one has too, and the newer one with a
// file more. Its root is unreadable.
void make_with_damaged_root(CrashDevice& device, const std::function<void(ImageEditor&)>& damage) {
    make_settled(device, kFiles);
    {
        ImageEditor editor(device);
        ASSERT_GE(editor.superblock().root_level, 1U);
        damage(editor);
    }
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(volume.write("/new", 0, "new content").ok());
    ASSERT_TRUE(volume.unmount().ok());
    ImageEditor editor(device);
    editor.flip_bit(editor.superblock().root_block, 200, 0);
}

size_t files_in_many(const test::SeenTree& tree) {
    size_t files = 0;
    for (const auto& [path, object] : tree) {
        files += path.starts_with("/many/file-") ? 1 : 0;
    }
    return files;
}

// A problem that both have is no reason to give the newest tree up.
TEST(Generations, OlderOneWithAProblemOfItsOwnSavesTheTree) {
    CrashDevice device(kDeviceBytes);
    make_with_damaged_root(device, [](ImageEditor& editor) {
        editor.change_inode(editor.node_of("/many/file-3"),
                            [](auto& inode) { inode.inode_flags |= 1U << 30; });
    });
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::superblock_older)) << text_of(repaired);
    EXPECT_TRUE(repaired.has(Code::inode_invalid)) << text_of(repaired);
    EXPECT_FALSE(repaired.has(Code::node_invalid)) << text_of(repaired);
    const test::SeenTree after = see(device);
    EXPECT_EQ(files_in_many(after), kFiles);
    EXPECT_EQ(after.at("/new").content, "new content");
}

// A leaf is less than a root.
TEST(Generations, OlderOneThatIsDamagedLessSavesMost) {
    CrashDevice device(kDeviceBytes);
    make_with_damaged_root(device, [](ImageEditor& editor) {
        const Key key = make_key(editor.node_of("/many/file-250"), Kind::inode, 0);
        editor.flip_bit(editor.leaf_block(key), 3000, 2);
    });
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::superblock_older)) << text_of(repaired);
    EXPECT_GT(files_in_many(see(device)), kFiles - 60);
}

// The newest state stays where the older one is worse.
TEST(Generations, NewestOneStaysWhereTheOlderOneIsWorse) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, kFiles);
    const uint64_t old_root = ImageEditor(device).superblock().root_block;
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(volume.write("/new", 0, "new content").ok());
    ASSERT_TRUE(volume.unmount().ok());
    ImageEditor editor(device);
    ASSERT_NE(editor.superblock().root_block, old_root);
    editor.flip_bit(old_root, 200, 0);
    const Key key = make_key(editor.node_of("/many/file-250"), Kind::inode, 0);
    editor.flip_bit(editor.leaf_block(key), 3000, 2);
    const Report repaired = repair_completely(device);
    EXPECT_FALSE(repaired.has(Code::superblock_older)) << text_of(repaired);
    EXPECT_GT(files_in_many(see(device)), kFiles - 60);
}

// What was acknowledged before the newest checkpoint is not taken for a frame that was cut off.
TEST(Generations, OlderOneWhoseJournalEndsEarlyIsNotWhole) {
    CrashDevice device(kDeviceBytes);
    make_with_damaged_root(device, [](ImageEditor&) {});
    {
        ImageEditor editor(device);
        const auto& superblock = editor.superblock();
        const uint64_t last = superblock.journal_position - 1;
        for (size_t byte = 0; byte < tiffinfs::kBlockBytes; byte += 16) {
            editor.flip_bit(superblock.journal_first_block + last / tiffinfs::kBlockBytes, byte, 0);
        }
    }
    const Bytes before = image_of(device);
    const Report withheld = run_check(device, only_what_is_safe());
    EXPECT_TRUE(withheld.has(Code::journal_damaged)) << text_of(withheld);
    EXPECT_FALSE(withheld.has(Code::journal_torn)) << text_of(withheld);
    EXPECT_EQ(withheld.not_repaired, withheld.damage + withheld.harmless) << text_of(withheld);
    EXPECT_TRUE(image_of(device) == before);
    const Report repaired = repair_completely(device);
    EXPECT_TRUE(repaired.has(Code::superblock_older)) << text_of(repaired);
    EXPECT_EQ(text_of(repaired).find("nothing is lost"), std::string::npos) << text_of(repaired);
    EXPECT_EQ(files_in_many(see(device)), kFiles);
}

// What is lost in either case is for somebody to decide.
TEST(Generations, GoingBackToADamagedOneIsNotDoneUnasked) {
    CrashDevice device(kDeviceBytes);
    make_with_damaged_root(device, [](ImageEditor& editor) {
        const Key key = make_key(editor.node_of("/many/file-250"), Kind::inode, 0);
        editor.flip_bit(editor.leaf_block(key), 3000, 2);
    });
    const Bytes before = image_of(device);
    const Report report = run_check(device, only_what_is_safe());
    EXPECT_TRUE(report.has(Code::superblock_older)) << text_of(report);
    EXPECT_EQ(report.not_repaired, report.damage + report.harmless) << text_of(report);
    EXPECT_TRUE(image_of(device) == before);
}

}  // namespace
}  // namespace tiffin::check
