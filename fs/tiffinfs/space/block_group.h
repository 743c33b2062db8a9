// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One group of blocks in memory: the state of each block, the frees that wait, and the search for a
// run of free blocks. A group is 8 KiB and never asks for more memory (but for replay, see
// guard()), so that freeing cannot fail.
//
// A block is in one of eight states, three bits in three planes of bits, so that 64 blocks change
// or are tested with a few instructions:
//
//   free          may be handed out
//   used          mapped; what a checkpoint writes as a set bit
//   held          handed out and not mapped yet, or freed data that is in the exact queue
//   data_open     freed data that did not fit the queue, all of it tagged with the greatest ticket
//   data_closed   the same, but nothing is added any more: so its ticket becomes durable some time
//   node_0 to _2  freed tree nodes, by generation modulo 3: at most three generations wait at once
//
// Freed data goes into a queue of exact ranges first. The open and closed sets are where it goes
// when the queue is full: there blocks wait a little longer than they must.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

// How the totals of the volume change by an operation on a group.
struct SpaceChange {
    int64_t free_blocks = 0;
    int64_t used_blocks = 0;
    int64_t deferred_blocks = 0;
    // Blocks that were not in the state that the operation needs, and were left as they are: two
    // owners of one block, which only a damaged volume has.
    uint64_t wrong_blocks = 0;
};

// Blocks within a group.
struct GroupRun {
    uint32_t first = 0;
    uint32_t count = 0;
};

class BlockGroup {
    // What is read without the lock lies apart from what changes under it.
    const uint64_t index_;
    std::atomic<uint32_t> longest_bound_{kBlocksPerGroup};
    std::atomic<uint32_t> last_user_{0};

  public:
    enum class Load : uint8_t {
        none,  // the bitmap has not been read yet
        loaded,
        damaged,  // it was read and is of no use
    };

  private:
    std::atomic<Load> load_{Load::none};

  public:
    // nullptr when there is no memory. No state before fill().
    static BlockGroup* create(uint64_t index);
    // nullptr is allowed.
    static void destroy(BlockGroup* group);

    uint64_t index() const { return index_; }
    Load load() const { return load_.load(std::memory_order_acquire); }
    // The longest free run is at most this; no lock needed, for skipping a group.
    uint32_t longest_run_bound() const { return longest_bound_.load(std::memory_order_relaxed); }

    // The user, by the allocator's numbers, that has found room here last; 0: none. No lock needed.
    uint32_t last_user() const { return last_user_.load(std::memory_order_relaxed); }
    void note_user(uint32_t user) {
        if (last_user() != user) {
            last_user_.store(user, std::memory_order_relaxed);
        }
    }

    alignas(64) host::Mutex mutex{host::LockClass::allocator_group};

    // The group becomes `loaded` with these blocks used (kBitmapWords words).
    void fill(const uint64_t* used_words, uint32_t blocks_in_volume, bool on_device)
        REQUIRES(mutex);
    void set_damaged() REQUIRES(mutex) { load_.store(Load::damaged, std::memory_order_release); }

    uint32_t free_blocks() const REQUIRES(mutex) { return free_blocks_; }
    uint32_t used_blocks() const REQUIRES(mutex) { return used_blocks_; }
    bool data_deferred() const REQUIRES(mutex);
    bool nodes_deferred() const REQUIRES(mutex);

    // ---- Handing out ------------------------------------------------------------------------
    // The first free run of `wanted` blocks at or after `start`, then from the beginning; when
    // there is none, the longest that was seen (count 0: nothing is free). Bounded work.
    GroupRun find_run(uint32_t start, uint32_t wanted) REQUIRES(mutex);
    // The free run that begins exactly at `first`, at most `wanted` long; count 0 when it is not
    // free.
    GroupRun run_at(uint32_t first, uint32_t wanted) const REQUIRES(mutex);
    // The first free run in [first, end) of at least `minimum` blocks, cut at `maximum`; or count
    // 0.
    GroupRun next_run(uint32_t first, uint32_t end, uint32_t minimum, uint32_t maximum) const
        REQUIRES(mutex);
    // Where the last run ended, for find_run().
    uint32_t next_start() const REQUIRES(mutex) { return next_start_; }
    // free -> held. The run comes from one of the searches above.
    SpaceChange take(GroupRun run) REQUIRES(mutex);
    // held -> free.
    SpaceChange give_back(GroupRun run) REQUIRES(mutex);

    // ---- Mapping and freeing ----------------------------------------------------------------
    // -> used. Asserts that the blocks are held or free; during `replay` deferred ones are taken as
    // well, and used ones are left alone and reported.
    SpaceChange mark_used(GroupRun run, bool replay) REQUIRES(mutex);
    // Counts blocks that were mapped; returns how many to add to the count of all groups: several at once or none,
    // unless few are left here. So what is not in that count is less than a 64th of what is free.
    uint32_t count_mapped(uint32_t count) REQUIRES(mutex) {
        constexpr uint32_t kTogether = 16;
        mapped_blocks_ += count;
        return mapped_blocks_ >= kTogether || free_blocks_ < 64 * kTogether
                   ? std::exchange(mapped_blocks_, 0)
                   : 0;
    }
    // used -> waiting until `ticket` is durable and the readers of `epoch` have left.
    SpaceChange free_data(GroupRun run, uint64_t ticket, uint64_t epoch) REQUIRES(mutex);
    // used -> waiting until a superblock of a later generation than `generation` is durable.
    SpaceChange free_node(uint32_t block, uint64_t generation) REQUIRES(mutex);

    // Frees data that was freed with a ticket of at most `durable_ticket`, in an epoch before
    // `epoch`; and what else waits gets nearer to it.
    SpaceChange release_data(uint64_t durable_ticket, uint64_t epoch) REQUIRES(mutex);
    // Frees nodes that were freed in a generation before `durable_generation`.
    SpaceChange release_nodes(uint64_t durable_generation) REQUIRES(mutex);
    // At a seal: all that waits in the sets so far will be released together.
    void close_data_sets() REQUIRES(mutex);

    // ---- Replay -----------------------------------------------------------------------------
    // Keeps the free blocks of `run` from being handed out until unguard(). Errors: enomem.
    Result<SpaceChange> guard(GroupRun run) REQUIRES(mutex);
    SpaceChange unguard() REQUIRES(mutex);

    // ---- Growth -----------------------------------------------------------------------------
    // The volume, which ended behind block `old_end` - 1 of this group, now has all blocks up to `new_end`, and ends
    // there if `is_last`. Blocks that may be used now, the places of the old superblocks among them, become held;
    // returns them.
    GroupRun extend(uint32_t old_end, uint32_t new_end, bool is_last) REQUIRES(mutex);

    // ---- Checkpoint -------------------------------------------------------------------------
    void copy_used(uint64_t* words) const REQUIRES(mutex);

    // For the owner, under the lock.
    bool full_bit GUARDED_BY(mutex) = false;
    bool changed_bit GUARDED_BY(mutex) = false;
    bool data_deferred_bit GUARDED_BY(mutex) = false;
    bool node_deferred_bit GUARDED_BY(mutex) = false;
    bool guarded_bit GUARDED_BY(mutex) = false;
    bool read_failed GUARDED_BY(mutex) = false;
    // The generations in the two slots on the device; unless on_device, neither was ever written.
    bool on_device GUARDED_BY(mutex) = false;
    uint64_t slot_generation[2] GUARDED_BY(mutex) = {};

  private:
    enum State : uint32_t {
        kFree = 0,
        kUsed = 1,
        kHeld = 2,
        kDataOpen = 3,
        kDataClosed = 4,
        kNode0 = 5,
        kStates = 8,
    };
    struct QueuedFree {
        uint16_t first;
        uint16_t count;
        uint32_t reserved;
        uint64_t ticket;
        uint64_t epoch;
    };
    static constexpr uint32_t kQueueCapacity = 60;
    struct DataSet {
        uint64_t ticket = 0;
        uint64_t epoch = 0;
    };

    explicit BlockGroup(uint64_t index) : index_(index) {}
    ~BlockGroup();

    // Which of 64 blocks are in `state`.
    uint64_t in_state(uint32_t word, uint32_t state) const REQUIRES(mutex) {
        return (state & 1 ? planes_[0][word] : ~planes_[0][word]) &
               (state & 2 ? planes_[1][word] : ~planes_[1][word]) &
               (state & 4 ? planes_[2][word] : ~planes_[2][word]);
    }
    void set_state(uint32_t word, uint64_t mask, uint32_t state) REQUIRES(mutex) {
        for (uint32_t plane = 0; plane < 3; ++plane) {
            planes_[plane][word] = (planes_[plane][word] & ~mask) | (state >> plane & 1 ? mask : 0);
        }
    }
    uint64_t guarded_mask(uint32_t word) const REQUIRES(mutex) {
        return guarded_ == nullptr ? 0 : guarded_[word];
    }
    // Which of 64 blocks may be handed out.
    uint64_t available(uint32_t word) const REQUIRES(mutex) {
        return ~(planes_[0][word] | planes_[1][word] | planes_[2][word] | guarded_mask(word));
    }
    uint32_t next_available(uint32_t from, uint32_t end) const REQUIRES(mutex);
    uint32_t next_taken(uint32_t from, uint32_t end) const REQUIRES(mutex);
    // Looks for `wanted` blocks in [from, end); the best so far is in `best`. False: looked enough.
    bool search(uint32_t from, uint32_t end, uint32_t wanted, uint32_t& budget,
                GroupRun& best) const REQUIRES(mutex);
    // The blocks of `mask` become free; the total of those that may be handed out now grows.
    void make_free(uint32_t word, uint64_t mask, SpaceChange& change) REQUIRES(mutex);
    // All blocks of a set become free, or are moved to another one.
    void release_set(uint32_t state, SpaceChange& change) REQUIRES(mutex);
    void move_set(uint32_t from, uint32_t to) REQUIRES(mutex);
    // Empties the queue into the open set.
    void spill_queue() REQUIRES(mutex);
    void grow_bound() REQUIRES(mutex) {
        if (longest_bound_.load(std::memory_order_relaxed) != kBlocksPerGroup) {
            longest_bound_.store(kBlocksPerGroup, std::memory_order_relaxed);
        }
    }

    uint32_t free_blocks_ GUARDED_BY(mutex) = 0;  // those that may be handed out
    uint32_t used_blocks_ GUARDED_BY(mutex) = 0;  // without those beyond the end of the volume
    uint32_t next_start_ GUARDED_BY(mutex) = 0;
    uint32_t mapped_blocks_ GUARDED_BY(mutex) = 0;         // see count_mapped()
    uint32_t set_blocks_[kStates] GUARDED_BY(mutex) = {};  // of the deferred states
    DataSet open_ GUARDED_BY(mutex);
    DataSet closed_ GUARDED_BY(mutex);
    uint64_t node_generation_[3] GUARDED_BY(mutex) = {};
    uint32_t queue_size_ GUARDED_BY(mutex) = 0;
    uint64_t* guarded_ GUARDED_BY(mutex) = nullptr;  // kBitmapWords words, during replay
    QueuedFree queue_[kQueueCapacity] GUARDED_BY(mutex);
    uint64_t planes_[3][kBitmapWords] GUARDED_BY(mutex);
};

}  // namespace tiffin::tiffinfs
