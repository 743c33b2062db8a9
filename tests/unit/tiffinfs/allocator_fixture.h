// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A small volume of free space for the tests of the allocator: makes it, checkpoints it, mounts it
// again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fs/base/reader_epochs.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "tests/support/crash_device.h"

namespace tiffin::tiffinfs {

inline constexpr uint64_t kTestNonce = 0x1122334455667788;
inline constexpr uint64_t kTestJournalBlocks = 64;

inline Superblock make_test_superblock(uint64_t total_blocks) {
    Superblock superblock{};
    superblock.magic = kSuperblockMagic;
    superblock.version = kFormatVersion;
    superblock.volume_nonce = kTestNonce;
    superblock.total_blocks = total_blocks;
    superblock.journal_first_block = kJournalFirstBlock;
    superblock.journal_block_count = kTestJournalBlocks;
    superblock.generation = 1;
    return superblock;
}

// Without a journal and a tree: what a checkpoint would put into the superblock is kept here.
class AllocatorVolume {
  public:
    AllocatorVolume(vfs::BlockDevice& device, uint64_t total_blocks)
        : device_(device), superblock(make_test_superblock(total_blocks)) {}

    // What mkfs does.
    void format() {
        allocator.emplace(device_, readers);
        ASSERT_TRUE(allocator->start(superblock).ok());
        ASSERT_TRUE(allocator->format_fixed_blocks(superblock).ok());
        ASSERT_TRUE(checkpoint(1));
    }

    // Seals, writes, and makes the superblock of `generation`; false when the device failed.
    bool checkpoint(uint64_t generation) {
        if (!allocator->seal(generation).ok() || !allocator->write_sealed().ok() ||
            !device_.flush().ok()) {
            return false;
        }
        previous = superblock;
        superblock.generation = generation;
        superblock.used_blocks = allocator->sealed_used_blocks();
        superblock.initialized_groups = allocator->sealed_initialized_groups();
        superblock.state = 0;
        allocator->release_node_frees(generation);
        return true;
    }
    bool checkpoint() { return checkpoint(superblock.generation + 1); }

    // Forgets what is in memory and starts from the superblock, as after a crash.
    void mount() {
        allocator.reset();
        allocator.emplace(device_, readers);
        ASSERT_TRUE(allocator->start(superblock).ok());
        ASSERT_TRUE(allocator->begin_timeline(superblock).ok());
    }

    Layout layout() const { return MUST(Layout::from(superblock)); }
    uint64_t fixed_blocks() const {
        return layout().fixed_blocks(0, group_count(superblock.total_blocks));
    }

    // Allocates and maps; nullopt when there is no space.
    std::optional<BlockRange> map(uint64_t wanted, uint64_t goal = 0) {
        Result<BlockRange> range = allocator->allocate(goal, wanted, SpacePriority::privileged);
        if (!range.ok()) {
            EXPECT_EQ(range.error(), Error::enospc);
            return std::nullopt;
        }
        allocator->mark_used(*range);
        return *range;
    }

    // Takes everything that can be taken.
    std::vector<BlockRange> drain(uint64_t wanted = kBlocksPerGroup) {
        std::vector<BlockRange> ranges;
        while (std::optional<BlockRange> range = map(wanted)) {
            ranges.push_back(*range);
        }
        return ranges;
    }

  private:
    vfs::BlockDevice& device_;

  public:
    ReaderEpochs readers;
    Superblock superblock;
    Superblock previous{};
    std::optional<Allocator> allocator;
};

inline uint64_t total_of(const std::vector<BlockRange>& ranges) {
    uint64_t total = 0;
    for (const BlockRange& range : ranges) {
        total += range.block_count;
    }
    return total;
}

// Which blocks a test believes to be taken. Not thread-safe.
class ShadowMap {
  public:
    explicit ShadowMap(const Layout& layout) : bits_(layout.total_blocks) {
        std::vector<uint64_t> words(kBitmapWords);
        for (uint64_t group = 0; group < layout.groups(); ++group) {
            std::fill(words.begin(), words.end(), 0);
            layout.set_fixed_bits(group, words.data());
            for (uint32_t i = 0; i < layout.blocks_in_group(group); ++i) {
                bits_[group * kBlocksPerGroup + i] = (words[i / 64] >> i % 64 & 1) != 0;
            }
        }
    }

    // False when one of them was taken already.
    bool take(BlockRange range) { return change(range, true); }
    bool give(BlockRange range) { return change(range, false); }
    bool is_taken(uint64_t block) const { return bits_[block]; }

  private:
    bool change(BlockRange range, bool value) {
        for (uint64_t i = 0; i < range.block_count; ++i) {
            if (bits_.at(range.first_block + i) == value) {
                return false;
            }
            bits_[range.first_block + i] = value;
        }
        return true;
    }

    std::vector<bool> bits_;
};

// Three groups, the last one small.
inline constexpr uint64_t kThreeGroups = 2 * kBlocksPerGroup + 1000;

class AllocatorTest : public testing::Test {
  protected:
    explicit AllocatorTest(uint64_t total_blocks = kThreeGroups)
        : device(total_blocks * kBlockBytes), volume(device, total_blocks) {}
    void SetUp() override { volume.format(); }

    Allocator& allocator() { return *volume.allocator; }

    test::CrashDevice device;
    AllocatorVolume volume;
};

}  // namespace tiffin::tiffinfs
