// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: a group adds up what is mapped in it before it tells the volume, but not where that is much of what it has left.
#include "fs/tiffinfs/space/block_group.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tiffin::tiffinfs {
namespace {

// A group of a volume that goes on behind it, with the last `free_blocks` of its blocks free.
std::unique_ptr<BlockGroup, void (*)(BlockGroup*)> make_group(uint32_t free_blocks) {
    std::unique_ptr<BlockGroup, void (*)(BlockGroup*)> group(BlockGroup::create(3),
                                                             BlockGroup::destroy);
    std::vector<uint64_t> used(kBlocksPerGroup / 64);
    for (uint32_t block = 0; block < kBlocksPerGroup - free_blocks; ++block) {
        used[block / 64] |= uint64_t{1} << block % 64;
    }
    MutexLock lock(group->mutex);
    group->fill(used.data(), kBlocksPerGroup, true);
    EXPECT_EQ(group->free_blocks(), free_blocks);
    return group;
}

TEST(BlockGroup, CountsMappedBlocksSeveralAtOnce) {
    const auto group = make_group(4096);
    MutexLock lock(group->mutex);
    for (int i = 0; i < 15; ++i) {
        EXPECT_EQ(group->count_mapped(1), 0U);
    }
    EXPECT_EQ(group->count_mapped(3), 18U);
    EXPECT_EQ(group->count_mapped(1), 0U);
}

TEST(BlockGroup, WithFewFreeBlocksCountsEach) {
    const auto group = make_group(1000);
    MutexLock lock(group->mutex);
    EXPECT_EQ(group->count_mapped(1), 1U);
    EXPECT_EQ(group->count_mapped(2), 2U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
