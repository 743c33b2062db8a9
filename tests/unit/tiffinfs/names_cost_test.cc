// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: no operation on names looks at more of a large directory than it must. Method: the tree nodes that
// it visits are counted; each descent visits one of each level.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

uint64_t visits(NamesVolume& volume) {
    const NodeCache::Counters counters = volume.volume().cache().counters();
    return counters.hits + counters.misses;
}

class LargeDirectory : public testing::Test {
  protected:
    static constexpr uint64_t kEntries = 40000;

    LargeDirectory() {
        directory_ = volume_.make_directory(vfs::kRootNode, "large");
        other_ = volume_.make_directory(vfs::kRootNode, "other");
        for (uint64_t i = 0; i < kEntries; ++i) {
            Result<vfs::Attributes> made =
                volume_.fs().create({}, directory_, name_of(name(i)), 0644, 0, 0, {});
            EXPECT_TRUE(made.ok());
            volume_.fs().forget(made->node, 1);
        }
        levels_ = volume_.volume().tree().root().level + 1U;
        EXPECT_GE(levels_, 3U);
    }

    static std::string name(uint64_t number) { return "entry-" + std::to_string(number); }

    // The median number of descents of many such operations, rounded up. None may make much more than twice as many,
    // wherever the random hashes have put the boundaries of leaves. A checkpoint comes first, so that the background
    // thread, whose visits would be counted as well, has no reason to make one in the middle.
    uint64_t descents(const std::function<void(uint64_t number)>& operation) {
        EXPECT_TRUE(volume_.volume().checkpoint().ok());
        std::vector<uint64_t> counts;
        for (uint64_t i = 0; i < 200; ++i) {
            const uint64_t before = visits(volume_);
            operation(i * (kEntries / 200));
            counts.push_back((visits(volume_) - before + levels_ - 1) / levels_);
        }
        std::sort(counts.begin(), counts.end());
        EXPECT_LE(counts.back(), 2 * counts[100] + 2);
        return counts[100];
    }

    NamesVolume volume_;
    uint64_t directory_ = 0;
    uint64_t other_ = 0;
    uint64_t levels_ = 0;
};

TEST_F(LargeDirectory, EveryOperationTakesAFewDescents) {
    vfs::FileSystem& fs = volume_.fs();
    // The entry, and the inode when it is not in memory; each may lie at the end of a leaf.
    EXPECT_LE(descents([&](uint64_t i) { EXPECT_NE(volume_.lookup(directory_, name(i)), 0U); }),
              2U);
    EXPECT_LE(descents([&](uint64_t i) {
                  EXPECT_EQ(volume_.lookup_error(directory_, name(i) + "-not"), ENOENT);
              }),
              1U);
    // A look for the name, then a few keys to be prepared and changed.
    EXPECT_LE(
        descents([&](uint64_t i) { EXPECT_NE(volume_.create(directory_, name(i) + "-new"), 0U); }),
        7U);
    EXPECT_LE(
        descents([&](uint64_t i) {
            EXPECT_EQ(
                code(fs.rename({}, directory_, name_of(name(i)), other_, name_of(name(i)), 0)), 0);
        }),
        10U);
    // What is removed still has references: nothing is deleted meanwhile.
    EXPECT_LE(descents([&](uint64_t i) {
                  EXPECT_EQ(code(fs.unlink({}, directory_, name_of(name(i) + "-new"))), 0);
              }),
              7U);
    // A batch of entries lies in a few leaves, wherever it begins.
    uint64_t cookie = 0;
    EXPECT_LE(descents([&](uint64_t) {
                  NameList sink(50);
                  EXPECT_EQ(code(fs.read_directory(directory_, 0, cookie, false, sink)), 0);
                  cookie = sink.last_cookie;
              }),
              5U);
    EXPECT_EQ(volume_.check(), "");
}

// A host never gives such names; stored, they would count as damage.
TEST(BadNames, AreRefused) {
    NamesVolume volume;
    vfs::FileSystem& fs = volume.fs();
    const uint64_t node = volume.create(vfs::kRootNode, "good");
    for (const std::string& bad : {std::string("a/b"), std::string("a\0b", 3), std::string("/")}) {
        EXPECT_EQ(code(fs.create({}, vfs::kRootNode, name_of(bad), 0644, 0, 0, {})), EINVAL);
        EXPECT_EQ(code(fs.make_directory({}, vfs::kRootNode, name_of(bad), 0755, {})), EINVAL);
        EXPECT_EQ(code(fs.make_symlink({}, vfs::kRootNode, name_of(bad), "target", {})), EINVAL);
        EXPECT_EQ(code(fs.link({}, node, vfs::kRootNode, name_of(bad))), EINVAL);
        EXPECT_EQ(code(fs.rename({}, vfs::kRootNode, "good", vfs::kRootNode, name_of(bad), 0)),
                  EINVAL);
        EXPECT_EQ(volume.lookup_error(vfs::kRootNode, bad), ENOENT);
    }
    EXPECT_EQ(volume.check(), "");
}

// Not even the root is locked on the way down: with its lock held by this very thread, taking it again would
// end the program.
TEST_F(LargeDirectory, ReadersNeedNoLockAboveTheirLeaf) NO_THREAD_SAFETY_ANALYSIS {
    Volume& volume = volume_.volume();
    const TreeRoot at = volume.tree().root();
    Result<Node*> root = volume.cache().get(at.block, at.generation, at.level);
    ASSERT_TRUE(root.ok());
    root.value()->lock.lock(root.value()->lock_level());
    const uint32_t pins = root.value()->pins.load();
    InodeValue inode{};
    const Result<void> read = volume.tree().get_value(make_key(directory_, Kind::inode, 0), inode);
    EXPECT_EQ(root.value()->pins.load(), pins);
    root.value()->lock.unlock();
    volume.cache().unpin(root.value());
    EXPECT_TRUE(read.ok());
    EXPECT_EQ(inode.size_bytes, kEntries);
}

}  // namespace
}  // namespace tiffin::tiffinfs
