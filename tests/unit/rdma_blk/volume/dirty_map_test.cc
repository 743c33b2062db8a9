// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/volume/dirty_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kChunk = DirtyMap::kChunkBytes;

std::vector<ByteRange> take(DirtyMap& map, size_t capacity) {
    std::vector<ByteRange> ranges(capacity);
    ranges.resize(map.take(ranges.data(), capacity));
    return ranges;
}

void write(DirtyMap& map, uint64_t offset_bytes, uint64_t length_bytes) {
    ASSERT_TRUE(map.begin_write(offset_bytes, length_bytes));
    map.end_write(offset_bytes, length_bytes);
}

TEST(DirtyMap, JoinsNeighboursAndEndsWithTheDevice) {
    DirtyMap map;
    ASSERT_TRUE(map.create(10 * kChunk + 4096).ok());
    write(map, kChunk + 4096, 64);
    write(map, 2 * kChunk, kChunk + 64);
    write(map, 10 * kChunk, 4096);
    map.start_flush();
    const auto ranges = take(map, 8);
    ASSERT_EQ(ranges.size(), 2U);
    EXPECT_EQ(ranges[0].offset_bytes, kChunk);
    EXPECT_EQ(ranges[0].length_bytes, 3 * kChunk);
    EXPECT_EQ(ranges[1].offset_bytes, 10 * kChunk);
    EXPECT_EQ(ranges[1].length_bytes, 4096U);
    map.put(ranges.data(), ranges.size(), true);
    EXPECT_TRUE(take(map, 8).empty());
    EXPECT_EQ(map.dirty_bytes(), 0U);
}

TEST(DirtyMap, ARoundHoldsBackOnlySoMuch) {
    constexpr uint64_t kRounds = 16;
    DirtyMap map;
    ASSERT_TRUE(map.create(kRounds * DirtyMap::kRoundBytes + kChunk).ok());
    write(map, 0, kRounds * DirtyMap::kRoundBytes);
    map.start_flush();
    for (uint64_t round = 0; round < kRounds; ++round) {
        const auto ranges = take(map, 8);
        ASSERT_EQ(ranges.size(), 1U);
        EXPECT_EQ(ranges[0].offset_bytes, round * DirtyMap::kRoundBytes);
        EXPECT_EQ(ranges[0].length_bytes, DirtyMap::kRoundBytes);
        EXPECT_EQ(map.is_at_end(), round + 1 == kRounds);
        EXPECT_FALSE(map.begin_write(ranges[0].offset_bytes, 4096)) << "it is being flushed";
        const uint64_t behind = ranges[0].offset_bytes + ranges[0].length_bytes;
        ASSERT_TRUE(map.begin_write(behind, 4096)) << "that waits for the next round";
        map.end_write(behind, 4096);
        map.put(ranges.data(), ranges.size(), true);
    }
    EXPECT_TRUE(take(map, 8).empty());
    EXPECT_EQ(map.dirty_bytes(), kChunk) << "what was written behind the last round";
}

TEST(DirtyMap, GrowsDuringAFlush) {
    DirtyMap map;
    ASSERT_TRUE(map.create(kChunk + 4096).ok());
    write(map, kChunk, 4096);
    map.start_flush();
    const auto before = take(map, 8);
    ASSERT_TRUE(map.grow(4 * kChunk).ok());
    EXPECT_FALSE(map.begin_write(kChunk + 4096, 4096)) << "it is being flushed";
    write(map, 3 * kChunk, kChunk);
    map.put(before.data(), before.size(), true);
    write(map, kChunk + 4096, 4096);
    map.start_flush();
    const auto after = take(map, 8);
    ASSERT_EQ(after.size(), 2U);
    EXPECT_EQ(after[0].offset_bytes, kChunk);
    EXPECT_EQ(after[0].length_bytes, kChunk);
    EXPECT_EQ(after[1].offset_bytes, 3 * kChunk);
    map.put(after.data(), after.size(), true);
    EXPECT_EQ(map.dirty_bytes(), 0U);
    EXPECT_EQ(map.grow(DirtyMap::kMostGrowth * 3 * kChunk).error(), Error::efbig);
}

TEST(DirtyMap, AFailedFlushLeavesItDirty) {
    DirtyMap map;
    ASSERT_TRUE(map.create(1000 * kChunk).ok());
    write(map, 700 * kChunk, 64);
    map.start_flush();
    auto ranges = take(map, 8);
    ASSERT_EQ(ranges.size(), 1U);
    EXPECT_FALSE(map.begin_write(700 * kChunk, 64)) << "it is being flushed";
    EXPECT_FALSE(map.begin_write(698 * kChunk, 3 * kChunk));
    map.put(ranges.data(), ranges.size(), false);
    write(map, 700 * kChunk, 64);
    map.start_flush();
    EXPECT_EQ(take(map, 8).size(), 1U);
}

// Against a plain set, with few ranges at a time.
TEST(DirtyMap, RandomWritesAreFlushedOnce) {
    for (uint32_t seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const uint64_t chunks = 1 + random() % 9000;
        DirtyMap map;
        ASSERT_TRUE(map.create(chunks * kChunk).ok());
        std::vector<bool> dirty(chunks);
        for (int round = 0; round < 3; ++round) {
            for (uint32_t i = random() % 50; i > 0; --i) {
                const uint64_t first = random() % chunks;
                const uint64_t count = 1 + random() % std::min<uint64_t>(chunks - first, 3);
                write(map, first * kChunk, count * kChunk);
                std::fill_n(dirty.begin() + static_cast<std::ptrdiff_t>(first), count, true);
            }
            const bool succeeds = random() % 2 == 0;
            map.start_flush();
            std::vector<bool> taken(chunks);
            for (auto ranges = take(map, 3); !ranges.empty(); ranges = take(map, 3)) {
                for (const ByteRange& range : ranges) {
                    for (uint64_t at = 0; at < range.length_bytes; at += kChunk) {
                        const uint64_t chunk = (range.offset_bytes + at) / kChunk;
                        EXPECT_FALSE(taken[chunk]) << seed;
                        taken[chunk] = true;
                    }
                }
                map.put(ranges.data(), ranges.size(), succeeds);
            }
            EXPECT_EQ(taken, dirty) << seed;
            if (succeeds) {
                dirty.assign(chunks, false);
            }
        }
    }
}

// Writers raise a version of their chunk while nobody flushes it; a flush copies it. At the end nothing is
// missing, and no writer was ever inside a chunk that was being flushed.
TEST(DirtyMap, WritersAndAFlushKeepApart) {
    constexpr uint64_t kChunks = 130;
    DirtyMap map;
    ASSERT_TRUE(map.create(kChunks * kChunk).ok());
    std::vector<std::atomic<uint64_t>> memory(kChunks);
    std::vector<uint64_t> disk(kChunks);
    std::vector<std::atomic<int>> flushing(kChunks);
    std::atomic<int> writers{3};
    std::atomic<uint64_t> collisions{0};
    std::vector<std::thread> threads;
    for (uint32_t seed = 0; seed < 3; ++seed) {
        threads.emplace_back([&, seed] {
            std::mt19937 random(seed);
            for (int i = 0; i < 20000;) {
                const uint64_t chunk = random() % (kChunks - 1);
                if (!map.begin_write(chunk * kChunk, 2 * kChunk)) {
                    std::this_thread::yield();
                    continue;
                }
                collisions += flushing[chunk].load() + flushing[chunk + 1].load();
                ++memory[chunk];
                ++memory[chunk + 1];
                map.end_write(chunk * kChunk, 2 * kChunk);
                ++i;
            }
            --writers;
        });
    }
    bool last = false;
    while (!last) {
        last = writers == 0;
        map.start_flush();
        for (auto ranges = take(map, 4); !ranges.empty(); ranges = take(map, 4)) {
            for (const ByteRange& range : ranges) {
                for (uint64_t at = 0; at < range.length_bytes; at += kChunk) {
                    const uint64_t chunk = (range.offset_bytes + at) / kChunk;
                    flushing[chunk] = 1;
                    disk[chunk] = memory[chunk];
                    flushing[chunk] = 0;
                }
            }
            map.put(ranges.data(), ranges.size(), true);
        }
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(collisions, 0U);
    for (uint64_t chunk = 0; chunk < kChunks; ++chunk) {
        EXPECT_EQ(disk[chunk], memory[chunk]) << chunk;
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk
