// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which content a repair keeps where several extents of a file have some, where an extent reaches behind the size of its
// file, and where a key comes back that no search found.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using test::TestVolume;
using tiffinfs::ExtentValue;
using tiffinfs::kBlockBytes;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

std::string blocks(const std::string& content, uint64_t first, uint64_t count) {
    return content.substr(first * kBlockBytes, count * kBlockBytes);
}

// Content of two files of different generations, the extent of the second one put into the map of the first.
class NewerContent : public testing::Test {
  protected:
    static constexpr uint64_t kBlocks = 20;

    // The first file is written before the second, or after it.
    void make(bool first_is_older) {
        TestVolume volume(device_);
        MUST(volume.make());
        for (const bool is_first : {first_is_older, !first_is_older}) {
            MUST(volume.mount());
            MUST(volume.write(is_first ? "/first" : "/second", 0, is_first ? first_ : second_));
            MUST(volume.unmount());
        }
    }
    // `count` blocks of the second file from block `at` of the first.
    void overlap(uint64_t at, uint32_t count) {
        ImageEditor editor(device_);
        const uint64_t second = editor.node_of("/second");
        const Key key = editor.extent_key(second);
        Bytes value = editor.get(key);
        auto extent = editor.value<ExtentValue>(key);
        ASSERT_EQ(extent.block_count, kBlocks);
        ASSERT_NE(extent.birth_generation,
                  editor.value<ExtentValue>(editor.extent_key(editor.node_of("/first")))
                      .birth_generation);
        extent.block_count = count;
        const Bytes changed = bytes_of(extent);
        std::copy(changed.begin(), changed.end(), value.begin());
        value.resize(sizeof extent + count * sizeof(uint32_t));
        editor.erase(key);
        editor.change_inode(second,
                            [](auto& inode) { inode.size_bytes = inode.allocated_blocks = 0; });
        const uint64_t first = editor.node_of("/first");
        editor.put(make_key(first, Kind::extent, at), value);
        editor.change_inode(first, [&](auto& inode) {
            inode.size_bytes = std::max(kBlocks, at + count) * kBlockBytes;
            inode.allocated_blocks = kBlocks + count;
        });
    }
    std::string repaired() {
        const Report report = repair_completely(device_);
        EXPECT_TRUE(report.has(Code::extent_overlap)) << text_of(report);
        const std::string content = see(device_).at("/first").content;
        EXPECT_TRUE(run_check(device_, {.verify_data = true}).clean());
        return content;
    }

    CrashDevice device_{kDeviceBytes};
    std::string first_ = test::test_content(1, kBlocks* kBlockBytes);
    std::string second_ = test::test_content(2, kBlocks* kBlockBytes);
};

TEST_F(NewerContent, StaysAtTheEnd) {
    make(true);
    overlap(10, kBlocks);
    EXPECT_TRUE(repaired() == blocks(first_, 0, 10) + second_);
}

TEST_F(NewerContent, StaysInTheMiddle) {
    make(true);
    overlap(8, 4);
    EXPECT_TRUE(repaired() == blocks(first_, 0, 8) + blocks(second_, 0, 4) + blocks(first_, 12, 8));
}

TEST_F(NewerContent, StaysAtTheBeginning) {
    make(false);
    overlap(10, kBlocks);
    EXPECT_TRUE(repaired() == first_ + blocks(second_, 10, 10));
}

TEST_F(NewerContent, StaysAroundOlder) {
    make(false);
    overlap(8, 4);
    EXPECT_TRUE(repaired() == first_);
}

// What no search found is older than what one finds, whatever generation wrote it: moving an extent keeps that.
TEST(OverlapRepair, AMisplacedExtentIsOlderThanAnyOther) {
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    const std::string content = see(device).at("/directory/large").content;
    ImageEditor editor(device);
    forget_older_generation(editor);
    const uint64_t node = editor.node_of("/directory/large");
    const Key key = editor.extent_key(node);
    Bytes value = editor.get(key);
    auto extent = editor.value<ExtentValue>(key);
    ASSERT_GT(extent.block_count, 8U);
    // Blocks 4 to 8 as they were once, under a key of their own, and of a later generation.
    extent.block_count = 4;
    extent.birth_generation = editor.superblock().generation;
    const Bytes changed = bytes_of(extent);
    std::copy(changed.begin(), changed.end(), value.begin());
    value.resize(sizeof extent + extent.block_count * sizeof(uint32_t));
    const Key far = make_key(editor.node_of("/many/file-499"), Kind::inode, 0);
    ASSERT_NE(editor.leaf_block(key), editor.leaf_block(far));
    make_room_in_leaf_of(editor, far.node);
    editor.put_into_leaf_of(far, make_key(node, Kind::extent, key.offset() + 4), value);
    const Report report = repair_completely(device);
    EXPECT_TRUE(report.has(Code::node_bounds)) << text_of(report);
    EXPECT_TRUE(see(device).at("/directory/large").content == content);
}

// A large file that is cut has its new size at once, and its blocks are freed later, as a record says. Without that record the
// repair cannot know; it keeps the content, and does not call that harmless.
TEST(BehindTheEnd, ALostRecordOfUnfinishedWorkIsDamage) {
    CrashDevice device(kDeviceBytes);
    const std::string content = test::test_content(1, 30 * kBlockBytes);
    {
        TestVolume volume(device);
        MUST(volume.make());
        MUST(volume.mount());
        MUST(volume.write("/file", 0, content));
        MUST(volume.unmount());
    }
    ImageEditor editor(device);
    editor.change_inode(editor.node_of("/file"), [](auto& inode) {
        inode.size_bytes = kBlockBytes;
        inode.inode_flags |= tiffinfs::inode_flag::has_intent;
    });
    const Report report = repair_completely(device);
    EXPECT_TRUE(report.has(Code::intent_invalid)) << text_of(report);
    EXPECT_FALSE(report.has(Code::extent_beyond_end)) << text_of(report);
    EXPECT_TRUE(see(device).at("/file").content == content);
}

// What lies behind the size of its file when it is found again was cut off meanwhile. Not where a range is being taken out: the
// size is the new one then, and what is to be moved lies behind it.
class MisplacedBehindTheEnd : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(WithIntent, MisplacedBehindTheEnd, testing::Bool());

TEST_P(MisplacedBehindTheEnd, ComesBackForUnfinishedWork) {
    const bool has_intent = GetParam();
    CrashDevice device(kDeviceBytes);
    make_settled(device, 500);
    ImageEditor editor(device);
    forget_older_generation(editor);
    const uint64_t node = editor.node_of("/directory/large");
    const Key key = editor.extent_key(node);
    const Bytes value = editor.get(key);
    const Key far = make_key(editor.node_of("/many/file-499"), Kind::inode, 0);
    ASSERT_NE(editor.leaf_block(key), editor.leaf_block(far));
    Key own = key;
    while (editor.has(own)) {
        const auto extent = editor.value<ExtentValue>(own);
        editor.erase(own);
        own = make_key(node, Kind::extent, own.offset() + extent.block_count);
    }
    editor.change_inode(node, [&](auto& inode) {
        inode.size_bytes = inode.allocated_blocks = 0;
        inode.inode_flags |= has_intent ? tiffinfs::inode_flag::has_intent : 0;
    });
    if (has_intent) {
        // The first block is being taken out, and nothing has been moved yet.
        const tiffinfs::IntentValue intent{tiffinfs::IntentType::shift_down, 0, 0, 1, 1};
        editor.put(make_key(tiffinfs::kVolumeNode, Kind::intent, node), bytes_of(intent));
    }
    make_room_in_leaf_of(editor, far.node);
    editor.put_into_leaf_of(far, key, value);
    const Report report = repair_completely(device);
    EXPECT_TRUE(report.has(Code::node_bounds)) << text_of(report);
    EXPECT_EQ(ImageEditor(device).has(key), has_intent);
}

}  // namespace
}  // namespace tiffin::check
