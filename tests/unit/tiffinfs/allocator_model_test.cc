// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Random operations against a model that knows the state of every block. TIFFIN_SEED=n runs one
// seed, which every failure prints.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "fs/tiffinfs/space/allocator.h"
#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_size.h"
#include "tests/unit/tiffinfs/allocator_fixture.h"

namespace tiffin::tiffinfs {
namespace {

using test::CrashDevice;

constexpr uint64_t kTotalBlocks = 2 * kBlocksPerGroup + 3000;

enum class Owner : uint8_t { nobody, fixed, held, used, freed_data, freed_node };

// What the allocator may and must do, block by block.
class Model {
  public:
    explicit Model(const Layout& layout) : owner_(layout.total_blocks, Owner::nobody) {
        ShadowMap fixed(layout);
        for (uint64_t block = 0; block < layout.total_blocks; ++block) {
            if (fixed.is_taken(block)) {
                owner_[block] = Owner::fixed;
            }
        }
    }

    Owner owner(uint64_t block) const { return owner_[block]; }
    bool all(BlockRange range, Owner owner) const {
        for (uint64_t i = 0; i < range.block_count; ++i) {
            if (owner_[range.first_block + i] != owner) {
                return false;
            }
        }
        return true;
    }
    void set(BlockRange range, Owner owner) {
        for (uint64_t i = 0; i < range.block_count; ++i) {
            owner_[range.first_block + i] = owner;
        }
    }
    uint64_t count(Owner owner) const {
        return static_cast<uint64_t>(std::count(owner_.begin(), owner_.end(), owner));
    }

    // What a mount finds: used blocks; everything else is free.
    void forget_all_but_used() {
        for (Owner& owner : owner_) {
            if (owner != Owner::fixed && owner != Owner::used) {
                owner = Owner::nobody;
            }
        }
    }

  private:
    std::vector<Owner> owner_;
};

class ModelRun {
  public:
    explicit ModelRun(uint64_t seed)
        : random_(seed),
          device_(kTotalBlocks * kBlockBytes),
          volume_(device_, kTotalBlocks),
          now_((volume_.format(), volume_.layout())),
          durable_(now_) {}

    void run(int steps) {
        for (int step = 0; step < steps && !testing::Test::HasFatalFailure(); ++step) {
            SCOPED_TRACE("step " + std::to_string(step));
            const uint64_t what = pick(1000);
            if (what < 350) {
                allocate();
            } else if (what < 500) {
                finish_held();
            } else if (what < 800) {
                free_something();
            } else if (what < 900) {
                release();
            } else if (what < 950) {
                reader();
            } else if (what < 985) {
                checkpoint();
            } else if (what < 990) {
                crash();
            } else {
                check_counts();
            }
        }
        settle();
    }

  private:
    uint64_t pick(uint64_t bound) { return random_() % bound; }
    Allocator& allocator() { return *volume_.allocator; }

    struct FreedData {
        BlockRange range;
        uint64_t ticket;
        std::set<uint32_t> readers;  // who was inside, by number
    };

    void allocate() {
        const uint64_t wanted = pick(8) == 0 ? 1 + pick(kBlocksPerGroup) : 1 + pick(60);
        const uint64_t goal = pick(2) == 0 ? pick(kTotalBlocks) : 0;
        const bool privileged = pick(3) == 0;
        const uint64_t free_before = allocator().free_blocks();
        Result<BlockRange> range = allocator().allocate(
            goal, wanted, privileged ? SpacePriority::privileged : SpacePriority::normal);
        if (!range.ok()) {
            ASSERT_EQ(range.error(), Error::enospc);
            ASSERT_LE(free_before, privileged ? 0 : allocator().kept_blocks(SpacePriority::normal));
            return;
        }
        ASSERT_GE(range->block_count, 1U);
        ASSERT_LE(range->block_count, wanted);
        ASSERT_EQ(group_of(range->first_block),
                  group_of(range->first_block + range->block_count - 1));
        if (!privileged) {
            ASSERT_GE(allocator().free_blocks(), allocator().kept_blocks(SpacePriority::normal));
        }
        if (goal != 0 && now_.owner(goal) == Owner::nobody &&
            goal / kBlocksPerGroup < allocator().sealed_initialized_groups()) {
            ASSERT_EQ(range->first_block, goal);
        }
        take(*range);
        held_.push_back(*range);
    }

    // Every block must be free, or freed and due.
    void take(BlockRange range) {
        for (uint64_t i = 0; i < range.block_count; ++i) {
            const uint64_t block = range.first_block + i;
            const Owner owner = now_.owner(block);
            ASSERT_TRUE(owner == Owner::nobody || due_.erase(block) == 1)
                << "block " << block << " owner " << static_cast<int>(owner);
        }
        now_.set(range, Owner::held);
    }

    void finish_held() {
        if (held_.empty()) {
            return;
        }
        std::swap(held_[pick(held_.size())], held_.back());
        BlockRange range = held_.back();
        held_.pop_back();
        const uint64_t mapped = pick(4) == 0 ? pick(range.block_count + 1) : range.block_count;
        if (mapped > 0) {
            BlockRange used{range.first_block, mapped};
            ASSERT_TRUE(allocator().load(used).ok());
            allocator().mark_used(used);
            now_.set(used, Owner::used);
            used_.push_back(used);
        }
        if (mapped < range.block_count) {
            BlockRange rest{range.first_block + mapped, range.block_count - mapped};
            allocator().cancel(rest);
            now_.set(rest, Owner::nobody);
        }
    }

    void free_something() {
        if (used_.empty()) {
            return;
        }
        std::swap(used_[pick(used_.size())], used_.back());
        BlockRange range = used_.back();
        used_.pop_back();
        ASSERT_TRUE(now_.all(range, Owner::used));
        ASSERT_TRUE(allocator().load(range).ok());
        if (range.block_count == 1) {
            allocator().mark_node_free(range.first_block, volume_.superblock.generation + 1);
            freed_nodes_[range.first_block] = volume_.superblock.generation + 1;
            now_.set(range, Owner::freed_node);
            return;
        }
        // A part of it, or all in small pieces, or all.
        const uint64_t way = pick(4);
        if (way == 0) {
            const uint64_t keep = pick(range.block_count);
            if (keep > 0) {
                used_.push_back({range.first_block, keep});
            }
            range = {range.first_block + keep, range.block_count - keep};
        }
        const uint64_t piece = way == 1 ? 1 : range.block_count;
        for (uint64_t at = 0; at < range.block_count; at += piece) {
            BlockRange freed{range.first_block + at, piece};
            allocator().mark_data_free(freed, ++ticket_);
            now_.set(freed, Owner::freed_data);
            freed_data_.push_back({freed, ticket_, readers_inside()});
        }
    }

    std::set<uint32_t> readers_inside() const {
        std::set<uint32_t> numbers;
        for (const auto& [number, token] : readers_) {
            numbers.insert(number);
        }
        return numbers;
    }

    void reader() {
        if (readers_.size() < 3 && pick(2) == 0) {
            readers_[next_reader_++] = volume_.readers.enter();
        } else if (!readers_.empty()) {
            auto leaving = readers_.begin();
            std::advance(leaving, pick(readers_.size()));
            volume_.readers.leave(leaving->second);
            readers_.erase(leaving);
        }
    }

    void release() {
        durable_ticket_ = std::max(durable_ticket_, ticket_ - pick(ticket_ / 4 + 1));
        const bool wait = readers_.empty() && pick(4) == 0;
        allocator().release_data_frees(durable_ticket_, wait);
        std::erase_if(freed_data_, [&](const FreedData& freed) {
            bool due = freed.ticket <= durable_ticket_;
            for (uint32_t number : freed.readers) {
                due = due && readers_.count(number) == 0;
            }
            if (due) {
                make_due(freed.range);
            }
            return due;
        });
    }

    void make_due(BlockRange range) {
        for (uint64_t i = 0; i < range.block_count; ++i) {
            due_.insert(range.first_block + i);
        }
    }

    void checkpoint() {
        if (pick(5) == 0) {
            // Fails in the middle; the next one makes up for it.
            device_.fail_write(1 + pick(3));
            const bool sealed = allocator().seal(volume_.superblock.generation + 1).ok();
            ASSERT_TRUE(sealed);
            (void)allocator().write_sealed().ok();
            device_.fail_write(0);
        }
        ASSERT_TRUE(volume_.checkpoint());
        durable_ = now_;
        durable_.forget_all_but_used();
        durable_used_ = used_;
        ASSERT_EQ(volume_.superblock.used_blocks,
                  now_.count(Owner::used) + now_.count(Owner::fixed));
        std::erase_if(freed_nodes_, [&](const auto& freed) {
            if (freed.second >= volume_.superblock.generation) {
                return false;
            }
            due_.insert(freed.first);
            return true;
        });
    }

    // Back to the last checkpoint, sometimes with bitmaps of one that was lost.
    void crash() {
        if (pick(2) == 0) {
            ASSERT_TRUE(allocator().seal(volume_.superblock.generation + 1).ok());
            ASSERT_TRUE(allocator().write_sealed().ok());
        }
        for (const auto& [number, token] : readers_) {
            volume_.readers.leave(token);
        }
        readers_.clear();
        volume_.mount();
        now_ = durable_;
        used_ = durable_used_;
        held_.clear();
        freed_data_.clear();
        freed_nodes_.clear();
        due_.clear();
        check_counts();
    }

    void check_counts() {
        const uint64_t used = now_.count(Owner::used) + now_.count(Owner::fixed);
        const uint64_t held = now_.count(Owner::held);
        ASSERT_EQ(allocator().used_blocks(), used);
        ASSERT_EQ(allocator().free_blocks() + allocator().deferred_blocks(),
                  kTotalBlocks - used - held);
        // Nothing is free that must wait.
        const uint64_t waiting =
            now_.count(Owner::freed_data) + now_.count(Owner::freed_node) - due_.size();
        ASSERT_GE(allocator().deferred_blocks(), waiting);
        ASSERT_EQ(allocator().damaged_blocks(), 0U);
    }

    // With all tickets durable, no readers, and two checkpoints, nothing waits any more.
    void settle() {
        for (const auto& [number, token] : readers_) {
            volume_.readers.leave(token);
        }
        readers_.clear();
        allocator().release_data_frees(ticket_, true);
        ASSERT_TRUE(volume_.checkpoint());
        ASSERT_TRUE(volume_.checkpoint());
        ASSERT_EQ(allocator().deferred_blocks(), 0U);
        const uint64_t taken =
            now_.count(Owner::used) + now_.count(Owner::fixed) + now_.count(Owner::held);
        ASSERT_EQ(allocator().free_blocks(), kTotalBlocks - taken);
        for (uint64_t group = 0; group < volume_.superblock.initialized_groups; ++group) {
            BitmapBlock block;
            ASSERT_TRUE(Allocator::read_bitmap(device_, volume_.superblock, group,
                                               volume_.superblock.generation, block)
                            .ok());
            const uint64_t first = group * kBlocksPerGroup;
            for (uint64_t i = 0; i < volume_.layout().blocks_in_group(group); ++i) {
                const Owner owner = now_.owner(first + i);
                ASSERT_EQ((block.bits[i / 8] >> i % 8 & 1) != 0,
                          owner == Owner::used || owner == Owner::fixed);
            }
        }
    }

    std::mt19937_64 random_;
    fuse::CapturedLog log_;
    CrashDevice device_;
    AllocatorVolume volume_;
    Model now_;
    Model durable_;
    std::vector<BlockRange> held_;
    std::vector<BlockRange> used_;
    std::vector<BlockRange> durable_used_;
    std::vector<FreedData> freed_data_;
    std::map<uint64_t, uint64_t> freed_nodes_;  // block, generation
    std::set<uint64_t> due_;                    // freed, and allowed to be free
    std::map<uint32_t, uint32_t> readers_;      // number, token
    uint32_t next_reader_ = 0;
    uint64_t ticket_ = 1;
    uint64_t durable_ticket_ = 0;
};

TEST(AllocatorModel, BehavesAsTheModelSays) {
    uint64_t first_seed = 1;
    uint64_t end_seed = test::test_size(9, 4);
    if (const char* seed = getenv("TIFFIN_SEED"); seed != nullptr) {
        first_seed = strtoull(seed, nullptr, 0);
        end_seed = first_seed + 1;
    }
    for (uint64_t seed = first_seed; seed < end_seed; ++seed) {
        SCOPED_TRACE("TIFFIN_SEED=" + std::to_string(seed));
        ModelRun(seed).run(4000);
        if (testing::Test::HasFatalFailure()) {
            return;
        }
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs
