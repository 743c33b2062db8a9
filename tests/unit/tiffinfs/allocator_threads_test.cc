// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The allocator under several threads: no block has two owners, and none is lost.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <shared_mutex>
#include <thread>
#include <vector>

#include "fs/tiffinfs/space/allocator.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_size.h"
#include "tests/unit/tiffinfs/allocator_fixture.h"

namespace tiffin::tiffinfs {
namespace {

using test::CrashDevice;

constexpr int kThreads = 4;
constexpr uint64_t kTotalBlocks = 3 * kBlocksPerGroup + 500;

// Who owns each block.
class Owners {
  public:
    explicit Owners(uint64_t blocks) : owned_(new std::atomic<bool>[blocks]()) {}
    void take(BlockRange range) {
        for (uint64_t i = 0; i < range.block_count; ++i) {
            if (owned_[range.first_block + i].exchange(true)) {
                conflicts_.fetch_add(1);
            }
        }
    }
    // Before the block is given back.
    void give(BlockRange range) {
        for (uint64_t i = 0; i < range.block_count; ++i) {
            if (!owned_[range.first_block + i].exchange(false)) {
                conflicts_.fetch_add(1);
            }
        }
    }
    uint64_t conflicts() const { return conflicts_; }

  private:
    std::unique_ptr<std::atomic<bool>[]> owned_;
    std::atomic<uint64_t> conflicts_{0};
};

void run_threads(const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back(body, i);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

TEST(AllocatorThreads, TheWholeVolumeIsHandedOutOnce) {
    CrashDevice device(kTotalBlocks * kBlockBytes);
    AllocatorVolume volume(device, kTotalBlocks);
    volume.format();
    Owners owners(kTotalBlocks);
    std::atomic<uint64_t> total{0};
    run_threads([&](int number) {
        std::mt19937_64 random(static_cast<uint64_t>(number));
        for (;;) {
            Result<BlockRange> range =
                volume.allocator->allocate(random() % 2 == 0 ? random() % kTotalBlocks : 0,
                                           1 + random() % 64, SpacePriority::privileged);
            if (!range.ok()) {
                EXPECT_EQ(range.error(), Error::enospc);
                return;
            }
            owners.take(*range);
            volume.allocator->mark_used(*range);
            total += range->block_count;
        }
    });
    // What a thread had claimed and not found room for while others gave up.
    for (const BlockRange& range : volume.drain()) {
        owners.take(range);
        total += range.block_count;
    }
    EXPECT_EQ(owners.conflicts(), 0U);
    EXPECT_EQ(total, kTotalBlocks - volume.fixed_blocks());
    EXPECT_EQ(volume.allocator->used_blocks(), kTotalBlocks);
    EXPECT_EQ(volume.allocator->free_blocks(), 0U);
}

// Transactions, commits, readers and checkpoints at once, on a volume that is nearly full.
TEST(AllocatorThreads, NoBlockIsHandedOutWhileSomebodyUsesIt) {
    CrashDevice device(kTotalBlocks * kBlockBytes);
    AllocatorVolume volume(device, kTotalBlocks);
    volume.format();
    Allocator& allocator = *volume.allocator;
    Owners owners(kTotalBlocks);
    std::shared_mutex gate;  // as Volume's: shared by transactions, exclusive for the seal
    std::mutex journal;      // tickets become durable in order
    uint64_t last_ticket = 0;
    std::atomic<uint64_t> durable_ticket{0};
    std::atomic<uint64_t> generation{2};
    std::atomic<int> running{kThreads};
    const uint64_t steps = test::test_size(4000, 1500, 400);

    std::thread checkpoints([&] {
        while (running.load() > 0) {
            uint64_t sealed;
            {
                std::unique_lock closed(gate);
                sealed = generation.load();
                ASSERT_TRUE(allocator.seal(sealed).ok());
                generation.store(sealed + 1);
            }
            ASSERT_TRUE(allocator.write_sealed().ok());
            allocator.release_node_frees(sealed);
            std::this_thread::yield();
        }
    });
    run_threads([&](int number) {
        std::mt19937_64 random(static_cast<uint64_t>(number) + 100);
        std::vector<BlockRange> mine;
        for (uint64_t step = 0; step < steps; ++step) {
            const uint64_t what = random() % 100;
            if (what < 50) {
                Result<BlockRange> range =
                    allocator.allocate(mine.empty() ? 0 : mine.back().first_block,
                                       1 + random() % 200, SpacePriority::normal);
                if (range.ok()) {
                    owners.take(*range);
                    if (what < 5) {
                        owners.give(*range);
                        allocator.cancel(*range);
                    } else {
                        std::shared_lock open(gate);
                        allocator.mark_used(*range);
                        mine.push_back(*range);
                    }
                }
            } else if (what < 85 && !mine.empty()) {
                std::swap(mine[random() % mine.size()], mine.back());
                BlockRange range = mine.back();
                mine.pop_back();
                const uint32_t reader = volume.readers.enter();
                {
                    std::shared_lock open(gate);
                    if (range.block_count == 1) {
                        owners.give(range);
                        allocator.mark_node_free(range.first_block, generation.load());
                    } else {
                        uint64_t ticket;
                        {
                            std::lock_guard lock(journal);
                            ticket = ++last_ticket;
                        }
                        allocator.mark_data_free(range, ticket);
                    }
                }
                // Still being read, whatever others release meanwhile.
                std::this_thread::yield();
                if (range.block_count != 1) {
                    owners.give(range);
                }
                volume.readers.leave(reader);
            } else if (what < 95) {
                {
                    std::lock_guard lock(journal);
                    durable_ticket.store(last_ticket);
                }
                allocator.release_data_frees(durable_ticket.load(), what < 87);
            } else {
                EXPECT_TRUE(allocator.trim({random() % kTotalBlocks, 2000}, 16).ok());
            }
        }
        for (const BlockRange& range : mine) {
            std::shared_lock open(gate);
            owners.give(range);
            allocator.mark_data_free(range, 1);
        }
        running.fetch_sub(1);
    });
    checkpoints.join();
    EXPECT_EQ(owners.conflicts(), 0U);
    EXPECT_EQ(allocator.damaged_blocks(), 0U);
    allocator.release_data_frees(last_ticket, true);
    allocator.release_node_frees(generation.load() + 1);
    EXPECT_EQ(allocator.used_blocks(), volume.fixed_blocks());
    EXPECT_EQ(allocator.deferred_blocks(), 0U);
    EXPECT_EQ(allocator.free_blocks(), kTotalBlocks - volume.fixed_blocks());
    EXPECT_EQ(total_of(volume.drain()), kTotalBlocks - volume.fixed_blocks());
}

// Threads that come to an unmounted volume's bitmaps at the same time load each of them once.
TEST(AllocatorThreads, BitmapsAreLoadedOnce) {
    CrashDevice device(kTotalBlocks * kBlockBytes);
    AllocatorVolume volume(device, kTotalBlocks);
    volume.format();
    volume.drain();
    ASSERT_TRUE(volume.checkpoint());
    for (int round = 0; round < 20; ++round) {
        volume.mount();
        device.reset_counts();
        run_threads([&](int number) {
            for (uint64_t group = 0; group < 4; ++group) {
                const uint64_t index = (group + static_cast<uint64_t>(number)) % 4;
                EXPECT_TRUE(volume.allocator->load({index * kBlocksPerGroup + 100, 1}).ok());
            }
        });
        EXPECT_EQ(device.counts().reads, 4U);
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs
