// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Mapping and freeing, the release of freed blocks, replay, and trim.
#include "fs/base/text.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/allocator_parts.h"
#include "fs/tiffinfs/space/block_group.h"

namespace tiffin::tiffinfs {
namespace {

// More lines than this about blocks with two owners tell nothing new.
constexpr uint64_t kDamageLines = 16;

// What is being discarded cannot be handed out meanwhile, so it is kept small.
constexpr uint32_t kTrimPieceBlocks = 4096;

}  // namespace

void Allocator::report_wrong_blocks(const char* what, const Piece& piece, uint64_t count) {
    if (damaged_blocks_.fetch_add(count, std::memory_order_relaxed) < kDamageLines) {
        log_line(host::LogLevel::error, count, " of the ", piece.run.count, " blocks from ",
                 piece.first_block(), " on ", what, ": run fsck.tiffin");
    }
}

void Allocator::mark_used(BlockRange range) {
    const bool replay = replaying_.load(std::memory_order_relaxed);
    while (range.block_count != 0) {
        const Piece piece = Piece::cut_from(range);
        BlockGroup* marked = group_to_mark(piece.group);
        if (marked == nullptr) {
            continue;
        }
        BlockGroup& group = *marked;
        SpaceChange change;
        uint32_t mapped_blocks = 0;
        {
            MutexLock lock(group.mutex);
            change = group.mark_used(piece.run, replay);
            mapped_blocks = group.count_mapped(piece.run.count);
            set_changed(group);
            update_bits(group);
        }
        apply(change);
        if (mapped_blocks != 0) {
            mapped_blocks_.fetch_add(mapped_blocks, std::memory_order_relaxed);
        }
        if (change.wrong_blocks != 0) [[unlikely]] {
            report_wrong_blocks("are mapped twice", piece, change.wrong_blocks);
        }
    }
}

void Allocator::mark_data_free(BlockRange range, uint64_t ticket) {
    while (range.block_count != 0) {
        const Piece piece = Piece::cut_from(range);
        BlockGroup* marked = group_to_mark(piece.group);
        if (marked == nullptr) {
            continue;
        }
        BlockGroup& group = *marked;
        SpaceChange change;
        if (layout_.touches_fixed_blocks(piece.first_block(), piece.run.count)) [[unlikely]] {
            change.wrong_blocks = piece.run.count;
        } else {
            MutexLock lock(group.mutex);
            // Sequentially consistent, as is the start of a new epoch: see release_data_frees.
            change = group.free_data(piece.run, ticket, epoch_.load(std::memory_order_seq_cst));
            set_changed(group);
            update_bits(group);
        }
        apply(change);
        if (change.wrong_blocks != 0) [[unlikely]] {
            report_wrong_blocks("are freed but were not in use", piece, change.wrong_blocks);
        }
    }
}

void Allocator::mark_node_free(uint64_t block, uint64_t generation) {
    BlockRange range{block, 1};
    const Piece piece = Piece::cut_from(range);
    BlockGroup* marked = group_to_mark(piece.group);
    if (marked == nullptr) {
        return;
    }
    BlockGroup& group = *marked;
    SpaceChange change;
    if (layout_.touches_fixed_blocks(block, 1)) [[unlikely]] {
        change.wrong_blocks = 1;
    } else {
        MutexLock lock(group.mutex);
        change = group.free_node(piece.run.first, generation);
        set_changed(group);
        update_bits(group);
    }
    apply(change);
    if (change.wrong_blocks != 0) [[unlikely]] {
        report_wrong_blocks("are freed but were not in use", piece, change.wrong_blocks);
    }
}

// ---- Release ------------------------------------------------------------------------------------

// Data may still be read by readers that looked it up before it was freed. They were inside before the
// block was marked free, so before the epoch number was read then. A release raises the number
// first and then waits until all readers inside have left: after that no reader can have what was
// marked with a smaller number.
void Allocator::release_data_frees(uint64_t durable_ticket, bool wait) {
    if (data_deferred_groups_.load(std::memory_order_acquire) == 0) {
        return;
    }
    if (wait) {
        const uint64_t safe_epoch = epoch_.fetch_add(1, std::memory_order_seq_cst) + 1;
        readers_.synchronize();
        pass_epoch(safe_epoch);
        release_data_frees_of(durable_ticket, safe_epoch);
        return;
    }
    // When many threads commit at once, one of them goes through the groups; what it misses is for
    // the next commit.
    if (releasing_.exchange(true, std::memory_order_acquire)) {
        return;
    }
    release_data_frees_of(durable_ticket, poll_readers());
    releasing_.store(false, std::memory_order_release);
}

void Allocator::release_data_frees_of(uint64_t durable_ticket, uint64_t safe_epoch) {
    table_.for_each(GroupBit::data_deferred, [&](BlockGroup& group) {
        SpaceChange change;
        {
            MutexLock lock(group.mutex);
            change = group.release_data(durable_ticket, safe_epoch);
            update_bits(group);
        }
        apply(change);
    });
}

uint64_t Allocator::poll_readers() {
    MutexLock lock(release_mutex_);
    // The second round is for what was freed since the grace period began that has just ended.
    for (uint32_t round = 0; round < 2; ++round) {
        if (polled_epoch_ == 0) {
            polled_epoch_ = epoch_.fetch_add(1, std::memory_order_seq_cst) + 1;
            grace_period_ = readers_.begin_grace_period();
        }
        if (!readers_.poll_grace_period(grace_period_)) {
            break;
        }
        pass_epoch(polled_epoch_);
        polled_epoch_ = 0;
    }
    return passed_epoch_.load(std::memory_order_relaxed);
}

void Allocator::pass_epoch(uint64_t epoch) {
    uint64_t passed = passed_epoch_.load(std::memory_order_relaxed);
    while (passed < epoch &&
           !passed_epoch_.compare_exchange_weak(passed, epoch, std::memory_order_relaxed)) {
    }
}

void Allocator::release_node_frees(uint64_t durable_generation) {
    uint64_t durable = durable_generation_.load(std::memory_order_relaxed);
    while (durable < durable_generation &&
           !durable_generation_.compare_exchange_weak(durable, durable_generation,
                                                      std::memory_order_relaxed)) {
    }
    table_.for_each(GroupBit::node_deferred, [&](BlockGroup& group) {
        SpaceChange change;
        {
            MutexLock lock(group.mutex);
            change = group.release_nodes(durable_generation);
            update_bits(group);
        }
        apply(change);
    });
}

// ---- Replay -------------------------------------------------------------------------------------

Result<void> Allocator::protect_for_replay(BlockRange range) {
    // Before the first bitmap is read: see load_group().
    replaying_.store(true, std::memory_order_relaxed);
    TRY(load_checked(range));
    while (range.block_count != 0) {
        const Piece piece = Piece::cut_from(range);
        BlockGroup* marked = group_to_mark(piece.group);
        if (marked == nullptr) {
            continue;  // nothing is handed out there
        }
        BlockGroup& group = *marked;
        MutexLock lock(group.mutex);
        const SpaceChange change = TRY(group.guard(piece.run));
        apply(change);
        if (!group.guarded_bit) {
            group.guarded_bit = true;
            table_.set_bit(piece.group, GroupBit::guarded);
        }
        update_bits(group);
    }
    return {};
}

void Allocator::end_replay() {
    replaying_.store(false, std::memory_order_relaxed);
    table_.for_each(GroupBit::guarded, [&](BlockGroup& group) {
        MutexLock lock(group.mutex);
        apply(group.unguard());
        group.guarded_bit = false;
        table_.clear_bit(group.index(), GroupBit::guarded);
        update_bits(group);
    });
}

// ---- Trim ---------------------------------------------------------------------------------------

Result<uint64_t> Allocator::trim(BlockRange range, uint64_t minimum_blocks) {
    if (!device_.geometry().supports_discard) {
        return Error::eopnotsupp;
    }
    if (range.first_block >= total_blocks() || minimum_blocks > kBlocksPerGroup) {
        return uint64_t{0};
    }
    if (range.block_count > total_blocks() - range.first_block) {
        range.block_count = total_blocks() - range.first_block;
    }
    const auto minimum = static_cast<uint32_t>(minimum_blocks == 0 ? 1 : minimum_blocks);
    uint64_t discarded = 0;
    while (range.block_count != 0) {
        const Piece piece = Piece::cut_from(range);
        if (piece.group < open_groups_.load(std::memory_order_acquire)) {
            BlockGroup* group = TRY(make_group(piece.group));
            discarded += TRY(trim_group(*group, piece.run, minimum));
        } else {
            discarded += TRY(trim_unopened(piece.group, piece.run, minimum));
        }
    }
    return discarded;
}

// mkfs writes nothing into such a group, but the device may hold what an earlier user left there.
Result<uint64_t> Allocator::trim_unopened(uint64_t index, GroupRun within, uint32_t minimum) {
    BlockGroup* unused = TRY(make_unused_group(index));
    const uint32_t maximum = minimum > kTrimPieceBlocks ? minimum : kTrimPieceBlocks;
    const uint32_t end = within.first + within.count;
    uint32_t next = within.first;
    uint64_t discarded = 0;
    Result<void> result;
    bool opened = false;
    while (result.ok() && !opened) {
        GroupRun run;
        {
            MutexLock lock(unused->mutex);
            run = unused->next_run(next, end, minimum, maximum);
        }
        if (run.count == 0) {
            break;
        }
        if (openers_.load(std::memory_order_relaxed) != 0 &&
            open_groups_.load(std::memory_order_relaxed) == index) {
            break;  // they come first
        }
        // While it is held no thread opens the group, so none allocates there.
        MutexLock lock(open_mutex_);
        if (index >= usable_groups_) {
            break;  // while the volume grows, what was its end still has superblocks
        }
        opened = open_groups_.load(std::memory_order_relaxed) > index;
        if (!opened) {
            const uint64_t first_block = index * kBlocksPerGroup + run.first;
            result = device_.discard(first_block * kBlockBytes, uint64_t{run.count} * kBlockBytes);
            discarded += run.count;
            next = run.first + run.count;
        }
    }
    BlockGroup::destroy(unused);
    TRY(result);
    if (opened) {
        BlockGroup* group = TRY(make_group(index));
        discarded += TRY(trim_group(*group, GroupRun{next, end - next}, minimum));
    }
    return discarded;
}

Result<uint64_t> Allocator::trim_group(BlockGroup& group, GroupRun within, uint32_t minimum) {
    const uint32_t maximum = minimum > kTrimPieceBlocks ? minimum : kTrimPieceBlocks;
    const uint32_t end = within.first + within.count;
    uint32_t next = within.first;
    uint64_t discarded = 0;
    for (;;) {
        GroupRun run;
        {
            MutexLock lock(group.mutex);
            if (Result<void> loaded = load_group(group); !loaded.ok()) {
                if (loaded.error() == Error::euclean) {
                    return discarded;  // logged; the other groups can be trimmed
                }
                return loaded.error();
            }
            run = group.next_run(next, end, minimum, maximum);
            if (run.count == 0) {
                return discarded;
            }
            // Held like blocks that were allocated, and like them not taken from the reserve.
            const auto claimed = static_cast<uint32_t>(claim(run.count, SpacePriority::normal));
            if (claimed < run.count) {
                free_blocks_.give(claimed);
                return discarded;
            }
            (void)group.take(run);
            update_bits(group);
        }
        const uint64_t first_block = group.index() * kBlocksPerGroup + run.first;
        Result<void> result =
            device_.discard(first_block * kBlockBytes, uint64_t{run.count} * kBlockBytes);
        cancel(BlockRange{first_block, run.count});
        if (!result.ok()) {
            return result.error();
        }
        discarded += run.count;
        next = run.first + run.count;
    }
}

}  // namespace tiffin::tiffinfs
