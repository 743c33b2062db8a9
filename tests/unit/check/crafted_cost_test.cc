// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Crafted volumes: what a check costs follows from their size, and it can be interrupted.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fuse/check/check.h"
#include "fuse/check/context.h"
#include "fuse/check/links.h"
#include "fuse/check/objects.h"
#include "fuse/check/shared_blocks.h"
#include "fuse/check/tree_walk.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using tiffinfs::Kind;
using tiffinfs::make_key;

constexpr uint32_t kNames = 500;

// The directory /many with all its names leading to itself, and no other name.
void make_circle(CrashDevice& device) {
    make_populated(device, kNames);
    ImageEditor editor(device);
    const uint64_t many = editor.node_of("/many");
    for (uint32_t i = 0; i < kNames; ++i) {
        const std::string name = "file-" + std::to_string(i);
        editor.put(editor.place_of(many, name),
                   ImageEditor::entry(many, vfs::mode::directory, name));
    }
    editor.change_inode(many, [many](auto& inode) { inode.parent = many; });
    editor.erase(editor.entry_key("/many"));
}

// The parts of a check, one after the other.
class CraftedCost : public testing::Test {
  protected:
    void start() {
        context_.superblock = ImageEditor(device_).superblock();
        context_.layout = MUST(tiffinfs::Layout::from(context_.superblock));
        nodes_ = std::make_unique<SpaceMap>(context_.layout);
        keys_ = std::make_unique<KeySpace>(
            device_, context_.superblock, walk_tree(context_, context_.superblock, *nodes_).leaves);
        objects_ = std::make_unique<Objects>(context_.layout);
    }

    void scan() {
        ASSERT_TRUE(scan_objects(context_, *keys_, *nodes_, missing_, *objects_, repairs_).ok());
    }

    CrashDevice device_{kDeviceBytes};
    CheckOptions options_;
    Report report_;
    Context context_{device_, options_, report_};
    std::unique_ptr<SpaceMap> nodes_;
    std::unique_ptr<KeySpace> keys_;
    std::unique_ptr<Objects> objects_;
    MissingKeys missing_;
    Repairs repairs_;
};

TEST_F(CraftedCost, PathsInACircleAreNotFollowed) {
    make_circle(device_);
    start();
    scan();
    const uint64_t steps = keys_->steps();
    check_links(context_, *keys_, *objects_, context_.superblock.next_node, repairs_);
    EXPECT_GE(report_.count(Code::directory_links), kNames) << text_of(report_);
    EXPECT_LE(keys_->steps() - steps, 10 * kNames);
}

TEST(CraftedVolume, LinksCanBeInterrupted) {
    CrashDevice device(kDeviceBytes);
    make_circle(device);
    uint64_t findings = 0;
    CheckOptions options;
    options.on_finding = [&](const Finding& finding) {
        findings += finding.code == Code::directory_links ? 1 : 0;
    };
    options.is_cancelled = [&] { return findings != 0; };
    const Report report = run_check(device, options);
    EXPECT_TRUE(report.cancelled);
    EXPECT_EQ(findings, 1U);
    EXPECT_FALSE(report.has(Code::unreachable)) << text_of(report);
}

// Many extents over the same blocks, of which each second one is a tree node.
TEST_F(CraftedCost, ConflictsAreJoinedOnTheWay) {
    constexpr uint64_t kNode = 5000;  // a node id that nobody has
    constexpr uint32_t kBlocks = tiffinfs::kUnwrittenExtentMaximumBlocks;
    constexpr uint64_t kExtents = 60;
    constexpr uint64_t kFirst = 4096;
    make_populated(device_, 10);
    start();
    for (uint64_t block = kFirst; block < kFirst + kBlocks; block += 2) {
        nodes_->mark({block, 1});
    }
    tiffinfs::InodeValue inode{};
    inode.mode = vfs::mode::regular | 0600;
    inode.link_count = 1;
    inode.allocated_blocks = kExtents * kBlocks;
    keys_->put_value(make_key(kNode, Kind::inode, 0), inode);
    for (uint64_t i = 0; i < kExtents; ++i) {
        keys_->put_value(
            make_key(kNode, Kind::extent, i * kBlocks),
            tiffinfs::ExtentValue{kFirst, 1, kBlocks, tiffinfs::extent_flag::unwritten});
    }
    scan();
    EXPECT_GT(objects_->conflicts.size(), 0U);
    EXPECT_LT(objects_->conflicts.size(), 100'000U);
    ASSERT_TRUE(
        resolve_shared_blocks(context_, *keys_, *nodes_, missing_, *objects_, repairs_).ok());
    ASSERT_EQ(objects_->conflicts.size(), 1U);
    EXPECT_EQ(objects_->conflicts[0].first_block, kFirst);
    EXPECT_EQ(objects_->conflicts[0].block_count, kBlocks);
    // The first loses what are nodes, the others all.
    EXPECT_EQ(report_.count(Code::extent_shared), kBlocks / 2 + kExtents - 1);
}

}  // namespace
}  // namespace tiffin::check
