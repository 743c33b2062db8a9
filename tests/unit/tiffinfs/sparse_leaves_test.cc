// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Changes of neighbouring keys that lie in many leaves, since most of what was in these is gone: how many
// nodes a transaction takes then is not known before it has looked.
#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kSparseLeaves = 70;
// Extents of one block with a checksum, as many as a leaf has room for.
constexpr uint64_t kExtentsPerLeaf = kNodeSpaceBytes / (sizeof(LeafSlot) + sizeof(ExtentValue) + 4);

// A file of every second block, of which then all go but one in each leaf.
class SparseLeaves : public testing::Test {
  protected:
    SparseLeaves() : volume_(make_memory_device(256U << 20)) {
        node_ = volume_.create("file");
        const std::string block(kBlockBytes, 'x');
        for (uint64_t i = 0; i < kExtents; ++i) {
            EXPECT_EQ(volume_.write(node_, 2 * i * kBlockBytes, block), kBlockBytes);
        }
        for (uint64_t i = 0; i < kExtents; ++i) {
            if (i % kExtentsPerLeaf != 0) {
                EXPECT_EQ(volume_.allocate(node_, kPunch, 2 * i * kBlockBytes, kBlockBytes), 0);
            }
        }
        // From now on each of these leaves has to be copied.
        EXPECT_TRUE(volume_.volume().checkpoint().ok());
    }

    static constexpr uint32_t kPunch =
        vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size;
    static constexpr uint64_t kExtents = kSparseLeaves * kExtentsPerLeaf;
    DataVolume volume_;
    uint64_t node_ = 0;
};

TEST_F(SparseLeaves, AreCountedBeforeAnythingChanges) {
    Volume& volume = volume_.volume();
    Transaction transaction(volume);
    ASSERT_TRUE(
        transaction.begin(SpacePriority::privileged, {.scattered = 1, .contiguous_bytes = 64 * 48})
            .ok());
    // Others may give back what nobody has reserved.
    volume.pool().drain();
    ASSERT_TRUE(transaction.unmap(node_, 0, 64 * 2 * kExtentsPerLeaf).ok());
    ASSERT_TRUE(transaction.prepare().ok());
    volume.pool().drain();
    transaction.commit();
    EXPECT_EQ(volume.pool().overdrawn_nodes(), 0U);
    volume_.abandon();  // the inode does not know of it
}

TEST_F(SparseLeaves, CanBeTruncated) {
    EXPECT_EQ(volume_.truncate(node_, 0), 0);
    EXPECT_EQ(volume_.attributes(node_).allocated_bytes, 0U);
    EXPECT_EQ(volume_.check(), "");
}

TEST_F(SparseLeaves, CanBeShifted) {
    EXPECT_EQ(volume_.allocate(node_, vfs::allocate_flag::collapse_range, 0, kBlockBytes), 0);
    EXPECT_EQ(volume_.content(node_).substr(0, 2), std::string(2, '\0'));
    EXPECT_EQ(volume_.check(), "");
}

// The tree has grown by levels since a transaction began: what its changes can split then is reserved too.
TEST(GrownTree, IsReservedForBeforeAnythingChanges) {
    DataVolume volume(make_memory_device(256U << 20));
    const uint64_t node = volume.create("file");
    constexpr TransactionSize kSize{.scattered = 4};
    Volume& core = volume.volume();
    const auto splits = [&] { return core.tree().nodes_needed(kSize.scattered, 0).splits; };
    const uint32_t splits_before = splits();
    Transaction transaction(core);
    ASSERT_TRUE(transaction.begin(SpacePriority::privileged, kSize).ok());
    std::thread([&] {
        const std::string value(1000, 'x');
        // Two levels more.
        for (uint64_t i = 0; splits() < splits_before + 2 * kSize.scattered; ++i) {
            Transaction growing(core);
            ASSERT_TRUE(growing.begin(SpacePriority::privileged, kSize).ok());
            ASSERT_TRUE(growing
                            .put(make_key(node + 1000 + i, Kind::inline_data, 0),
                                 ByteSpan(reinterpret_cast<const unsigned char*>(value.data()),
                                          value.size()))
                            .ok());
            ASSERT_TRUE(growing.prepare().ok());
            growing.commit();
        }
    }).join();
    ASSERT_TRUE(transaction.put(make_key(node, Kind::inline_data, 0), {}).ok());
    ASSERT_TRUE(transaction.prepare().ok());
    EXPECT_GE(core.pool().reserved_nodes(), splits());
    transaction.commit();
    EXPECT_EQ(core.pool().overdrawn_nodes(), 0U);
    volume.abandon();
}

}  // namespace
}  // namespace tiffin::tiffinfs
