// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Free space: which blocks are used, which may be handed out.
//
// Each group of 64 MiB keeps a state for every block (block_group.h). `used` is the truth that a
// checkpoint writes: a block becomes used by the transaction that maps it and stops being so by the
// one that frees it. Not handed out are used blocks, blocks handed out to a write that is not
// committed yet, and freed blocks whose time has not come. A freed block may be handed out again
// when
//   - data: the journal record that freed it is durable, and every reader that could still have it
//     mapped has left (ReaderEpochs);
//   - nodes: the superblock of the generation after the one that freed it is durable, so that the
//     previous generation's tree stays whole.
//
// Bitmaps are read on first use and stay in memory (8 KiB for each 64 MiB of device in use). Groups
// from initialized_groups on have never been used; they are opened one after the other, when there
// is no room below (a few earlier, when threads meet in the open ones). A group whose bitmap is
// damaged serves nothing until fsck has rebuilt it; the others go on.
//
// Used blocks are counted with the fixed structures of all groups, also of those never opened, and
// without the bits beyond the end of the volume; so used, free and deferred blocks, those handed out
// and those promised sum up to total_blocks.
//
// Threading: all functions may be called by many threads, but start, format_fixed_blocks, seal and
// write_sealed and the three of growth are for one at a time; lock classes allocator_group, allocator. Which functions need
// an open transaction is said at each.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/reader_epochs.h"
#include "fs/base/relaxed_number.h"
#include "fs/base/striped_budget.h"
#include "fs/base/striped_counter.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/tiffinfs/space/block_group.h"
#include "fs/tiffinfs/space/damage_listener.h"
#include "fs/tiffinfs/space/group_table.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

struct BlockRange {
    uint64_t first_block = 0;
    uint64_t block_count = 0;
};

// The purpose of a request for space. The reserve has two halves, so that changes of existing files can never
// use up what deleting needs: each change may leave a little more behind than it took away. Above it lies
// the write-back reserve, for data that a host has accepted already.
enum class SpacePriority : uint8_t {
    normal,       // new data, new names: fails with enospc when only the two reserves are left
    write_back,   // new data from a host's cache: may use the write-back reserve
    overwriting,  // overwrites, attributes: may use the upper half of the reserve
    privileged,   // deletes, truncation, replay: may use all of it
};

// What a goal is good for.
enum class GoalUse : uint8_t {
    continues,  // blocks there continue what is there: worth waiting for another thread
    anywhere,  // it is as good as others: when another thread works there, a place elsewhere is better
};

class Allocator {
  public:
    // `device` and `readers` must outlive the allocator.
    // `listener` (may be nullptr) hears of damaged bitmaps.
    Allocator(vfs::BlockDevice& device, ReaderEpochs& readers, DamageListener* listener = nullptr);
    ~Allocator();

    // Takes the layout and the counts of a superblock that is being mounted, or made (mkfs, where
    // initialized_groups is 0 and used_blocks is 0: then call format_fixed_blocks()). Reads no
    // bitmap yet. Once for each Allocator. Errors: enomem; euclean when layout or counts are
    // impossible.
    Result<void> start(const Superblock& superblock);
    // mkfs: marks superblocks, bitmap slots and journal used. Only group 0 is opened: other groups
    // know their fixed blocks when they are. Errors: enomem.
    Result<void> format_fixed_blocks(const Superblock& superblock);

    // Before the first seal of every mount that writes: unless `superblock` (that of start()) says
    // that the volume was unmounted cleanly, starts a timeline (bitmap_timelines.h) in it, for the
    // superblocks to come, and on the bitmaps that will be sealed. Errors: eio, enomem; then
    // nothing has changed.
    Result<void> begin_timeline(Superblock& superblock);
    // Whether that overwrites bitmaps of generations after that of `superblock`.
    bool replaces_lost_bitmaps(const Superblock& superblock) const;

    // Claims room for `block_count` blocks of data that will be written later, at normal priority, and a share for the
    // metadata that this may take; false when there is too little. What is promised is not free, and not handed out.
    [[nodiscard]] bool promise(uint64_t block_count);
    // Makes it free again.
    void return_promise(uint64_t block_count);
    // The same, but leaves the claim on the blocks of data to the caller: up to `block_count`; returns how many.
    [[nodiscard]] uint64_t take_promise(uint64_t block_count);
    // Gives up a claim that the caller has.
    void drop_claim(uint64_t block_count) { free_blocks_.give(static_cast<int64_t>(block_count)); }
    uint64_t promised_blocks() const { return promised_blocks_.load(std::memory_order_relaxed); }

    // Finds up to `wanted` contiguous free blocks, near `goal_block` when it is not 0, and makes
    // them busy. Returns at least one block, at most `wanted`, never across a group. Errors: enospc
    // (try again after a commit and a checkpoint: deferred frees may be waiting); eio and enomem when
    // bitmaps that might have had room could not be used; euclean when many are damaged. When the volume is as good as
    // full, enospc may also mean that other threads are just taking the last blocks.
    // `claimed_blocks`: those the caller has a claim on already, of which it takes first (by take_promise()).
    Result<BlockRange> allocate(uint64_t goal_block, uint64_t wanted, SpacePriority priority,
                                GoalUse goal_use = GoalUse::continues,
                                uint64_t* claimed_blocks = nullptr);
    // Gives back what was allocated and not mapped. With `claimed_blocks` the caller keeps a claim on as many blocks,
    // which are added there.
    void cancel(BlockRange range, uint64_t* claimed_blocks = nullptr);

    // Reads the bitmaps of `range`, so that marking needs no I/O. A damaged one is no error: blocks are
    // then neither marked there nor handed out. Errors: eio, enomem; euclean when no file and no node
    // can be in that range (beyond the end, or in fixed structures).
    Result<void> load(BlockRange range);

    // In an open transaction; the groups are in memory. mark_used: the blocks were allocated (or
    // replay found them in a record). Asserts that they were not used; between protect_for_replay()
    // and end_replay() a used block is damage instead: logged and counted.
    void mark_used(BlockRange range);
    // Frees file data: `ticket` is the journal's ticket of the transaction that freed it. Blocks
    // that are not used (a damaged volume) are logged, counted and left alone.
    void mark_data_free(BlockRange range, uint64_t ticket);
    // Frees a tree node's block in `generation`; the same holds.
    void mark_node_free(uint64_t block, uint64_t generation);
    // Blocks with two owners that were met so far; when not 0, the volume needs a check.
    uint64_t damaged_blocks() const { return damaged_blocks_.load(std::memory_order_relaxed); }

    // The journal is durable up to `ticket`: data freed until then becomes free, unless a reader is
    // still inside. With `wait`, waits for the readers (not to be called inside a read epoch);
    // without, leaves what cannot be released now, or is being released by another thread, to a
    // later call.
    void release_data_frees(uint64_t durable_ticket, bool wait);
    // The superblock of `generation` is durable: nodes freed before it become free. To be called
    // for every superblock: the slots that bitmaps are written to are chosen by it as well.
    void release_node_frees(uint64_t durable_generation);

    // Growth, in three steps. The first makes everything ready for a volume of `total_blocks` (a size that
    // round_total_blocks() gives, and at least kMinimumGrowthBlocks more than now), and changes nothing. Errors:
    // enomem, eio; euclean when the bitmap at the old end is damaged.
    static constexpr uint64_t kMinimumGrowthBlocks = 256;
    Result<void> prepare_growth(uint64_t total_blocks);
    // With no transaction open, before the seal of a checkpoint: total_blocks() is the new size, and what the new
    // superblocks at the end take is counted. Nothing new is handed out yet: a fall-back to the generation before could
    // not replay records that name blocks beyond the old end, or have its own superblocks overwritten.
    void extend();
    // When two superblocks of the new size are durable: what is new may be handed out.
    void finish_growth();

    // During replay: keeps the blocks that later records will map from being handed out. The ranges
    // stay busy until end_replay(). Errors: as load().
    Result<void> protect_for_replay(BlockRange range);
    void end_replay();

    // Checkpoint, with no transaction open: takes copies of the bitmaps that changed since the last
    // seal, stamped with `generation`, which is greater than that of the durable superblock. Copies
    // of an earlier seal that were not written are dropped, their groups count as changed. Errors:
    // enomem (nothing happened).
    Result<void> seal(uint64_t generation);
    // Writes the sealed copies, each into its group's older slot (not flushed). On failure the
    // groups count as changed again. Errors: eio and others of the device.
    Result<void> write_sealed();
    // As of the last seal, for the superblock.
    uint64_t sealed_used_blocks() const;
    uint64_t sealed_initialized_groups() const;
    // Groups that changed since the last seal; a checkpoint is due before they are too many.
    uint64_t dirty_groups() const;
    // More than one `part`th of what was free at the last seal has been mapped since. A replay can use
    // no block that a record maps for its nodes, so a checkpoint is due before those are all there are.
    bool mapped_more_than(uint64_t part) const;

    uint64_t total_blocks() const { return layout_.total_blocks; }
    uint64_t used_blocks() const {
        // On a damaged volume more can be freed than was counted.
        const int64_t used = used_blocks_.sum();
        return used > 0 && static_cast<uint64_t>(used) <= total_blocks()
                   ? static_cast<uint64_t>(used)
                   : 0;
    }
    // Blocks that may be handed out now (the reserve among them), and those that will be after
    // commit and checkpoint.
    uint64_t free_blocks() const;
    uint64_t deferred_blocks() const;
    // free_blocks() > blocks; much cheaper while there is plenty.
    bool has_more_free_than(uint64_t blocks) const {
        const auto limit = static_cast<int64_t>(blocks);
        return free_blocks_.at_least() > limit || free_blocks_.sum() > limit;
    }
    // What new data never gets, what of the rest only write-back gets, and what callers with `priority`
    // do not get.
    uint64_t reserve_blocks() const { return reserve_blocks_; }
    uint64_t write_back_reserve_blocks() const { return write_back_reserve_blocks_; }
    uint64_t kept_blocks(SpacePriority priority) const {
        switch (priority) {
            case SpacePriority::normal:
                return reserve_blocks_ + write_back_reserve_blocks_;
            case SpacePriority::write_back:
                return reserve_blocks_;
            case SpacePriority::overwriting:
                return reserve_blocks_ / 2;
            default:
                return 0;
        }
    }

    // Discards free ranges within [range) of at least `minimum_blocks`; returns blocks discarded.
    // Groups that were never opened are free but for their fixed blocks, and stay unopened; what
    // another thread wants to open meanwhile is passed over. While a piece (16 MiB, or `minimum_blocks`)
    // is being discarded it is not free; pieces that would leave less than the reserve meanwhile
    // are passed over. Errors: eopnotsupp, eio, enomem.
    Result<uint64_t> trim(BlockRange range, uint64_t minimum_blocks);

    // For the checker: reads the newest valid bitmap of `group` whose generation is at most
    // `generation`. Errors: eio, euclean (no valid slot).
    static Result<void> read_bitmap(vfs::BlockDevice& device, const Superblock& superblock,
                                    uint64_t group, uint64_t generation, BitmapBlock& bitmap);

  private:
    // Threads begin to look at the group that the last one with their hint found room in.
    static constexpr uint32_t kCursors = 16;
    struct alignas(64) Cursor {
        std::atomic<uint64_t> group{0};
    };
    struct Search;
    struct SealedBitmap;
    struct Piece;

    void choose_reserves();
    void start_counts(uint64_t used_blocks);
    // Takes up to `wanted` from the count of free blocks, before blocks are looked for.
    uint64_t claim(uint64_t wanted, SpacePriority priority);
    Result<BlockRange> find_space(Search& search);
    bool visit(Search& search, uint64_t index, uint32_t minimum, bool wait);
    bool search_near(Search& search, uint64_t start);
    bool search_near(Search& search, uint64_t begin, uint64_t end, uint32_t& looked_at);
    bool search_everywhere(Search& search, uint64_t start);
    bool search_all(Search& search, uint64_t begin, uint64_t end);
    bool search_new_group(Search& search);

    // The group object, made when it is missing; its bitmap may not be loaded. Errors: enomem.
    Result<BlockGroup*> make_group(uint64_t index);
    Result<void> load_group(BlockGroup& group) REQUIRES(group.mutex);
    // A group that must be in memory; nullptr when its bitmap is damaged: nothing is marked there.
    BlockGroup* group_to_mark(uint64_t index);
    // Opens groups until there are `end`, at most up to `limit`. Errors: enomem, enospc (the
    // limit).
    Result<void> open_groups(uint64_t end, uint64_t limit) EXCLUDES(open_mutex_);
    Result<void> open_group(uint64_t index) EXCLUDES(open_mutex_);
    // A group with nothing but its fixed blocks in use, which the caller destroys or inserts.
    Result<BlockGroup*> make_unused_group(uint64_t index) const;
    // Checks a range that comes from the device and makes its groups ready.
    Result<void> load_checked(BlockRange range);

    // After every operation on a group: its bits in the table, and the totals.
    void update_bits(BlockGroup& group) REQUIRES(group.mutex);
    void set_changed(BlockGroup& group) REQUIRES(group.mutex);
    void apply(const SpaceChange& change);
    void report_wrong_blocks(const char* what, const Piece& piece, uint64_t count);

    // Finds out, without waiting, which readers have left; returns the epoch before which all have.
    uint64_t poll_readers() EXCLUDES(release_mutex_);
    void pass_epoch(uint64_t epoch);
    void release_data_frees_of(uint64_t durable_ticket, uint64_t safe_epoch);

    Result<SealedBitmap*> make_sealed(uint64_t count);
    void copy_group(BlockGroup& group, SealedBitmap& sealed, uint64_t generation);
    void finish_sealed(bool written);
    static void drop_list(SealedBitmap* list);
    Result<uint64_t> trim_unopened(uint64_t index, GroupRun within, uint32_t minimum)
        EXCLUDES(open_mutex_);
    Result<uint64_t> trim_group(BlockGroup& group, GroupRun within, uint32_t minimum);

    RelaxedNumber reserve_blocks_;
    RelaxedNumber write_back_reserve_blocks_;
    RelaxedNumber usable_groups_;  // groups from here on are not opened
    Layout layout_;
    // Bitmaps are looked for on the device up to this generation.
    uint64_t mounted_generation_ = 0;
    vfs::BlockDevice& device_;
    ReaderEpochs& readers_;
    DamageListener* listener_;
    GroupTable table_;

    // While there is plenty, processors keep up to 4 * kBlocksAtHand for themselves.
    static constexpr int64_t kBlocksAtHand = 64;

    // What every write changes is split by processor. Signed: on a damaged volume counts may be wrong.
    StripedBudget free_blocks_;
    StripedCounter used_blocks_;
    StripedCounter deferred_blocks_;
    alignas(64) std::atomic<uint64_t> promised_blocks_{0};  // without the shares for metadata
    alignas(64) std::atomic<uint64_t> damaged_blocks_{0};
    std::atomic<uint64_t> changed_groups_{0};
    // Since the last seal, freed again or not; each group adds several at once (BlockGroup::count_mapped).
    std::atomic<uint64_t> mapped_blocks_{0};
    std::atomic<uint64_t> data_deferred_groups_{0};
    std::atomic<bool> replaying_{false};
    Cursor cursors_[kCursors];

    // Growth: the size that is prepared for, and what is to become free at the end: blocks that are held, and all.
    uint64_t growth_blocks_ = 0;
    BlockRange growth_held_;
    uint64_t growth_free_blocks_ = 0;

    // Groups below this are open. Raised under the mutex, when the new group is in the table.
    std::atomic<uint64_t> open_groups_{0};
    std::atomic<uint32_t> openers_{0};  // threads that wait for the next lock to open a group
    host::Mutex open_mutex_{host::LockClass::allocator};

    // Freed data carries the number of the epoch in which it was freed; a release starts a new one
    // and waits until the readers that were inside then have left.
    std::atomic<uint64_t> epoch_{1};
    std::atomic<uint64_t> passed_epoch_{0};  // readers of all epochs before this have left
    std::atomic<bool> releasing_{false};     // a thread releases without waiting
    host::Mutex release_mutex_{host::LockClass::allocator};
    uint64_t polled_epoch_ GUARDED_BY(release_mutex_) = 0;  // 0: no grace period is under way
    uint64_t grace_period_ GUARDED_BY(release_mutex_) = 0;

    // Checkpoints: one at a time, see above.
    SealedBitmap* sealed_ = nullptr;
    std::atomic<uint64_t> sealed_used_blocks_{0};
    std::atomic<uint64_t> sealed_groups_{0};
    std::atomic<uint64_t> durable_generation_{0};
};

}  // namespace tiffin::tiffinfs
