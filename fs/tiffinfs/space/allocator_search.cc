// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The search for free blocks.
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/allocator_parts.h"
#include "fs/tiffinfs/space/block_group.h"
#include "fs/vfs/numbers.h"

namespace tiffin::tiffinfs {
namespace {

// As long as fewer are open, threads that meet in a group may open another one.
constexpr uint64_t kGroupsToSpreadOver = 16;

// How many groups are searched for a run as long as wanted, and how many are passed over on the way
// because it is known that they have none.
constexpr uint32_t kGroupsLookedAt = 8;
constexpr uint32_t kGroupsPassedOver = 4096;

// When a search gives up: bitmaps that cannot be used cost I/O, and a device may have died.
constexpr uint32_t kFailuresAtMost = 64;
constexpr uint32_t kCostOfReadError = 8;

}  // namespace

// One call of allocate() on its way through the groups.
struct Allocator::Search {
    uint64_t goal_block = 0;
    GoalUse goal_use = GoalUse::continues;
    uint32_t wanted = 0;
    uint32_t user = 0;  // the searching user, for BlockGroup::last_user()
    bool avoids_others =
        true;  // having met another thread, passes over groups where others found room last
    BlockRange found;
    // The best of those that had less than wanted.
    uint64_t best_group = 0;
    uint32_t best_length = 0;
    bool contended = false;
    bool avoided = false;  // something was passed over for that
    uint32_t failures = 0;
    Error error = Error::enospc;

    // A group with a damaged bitmap has no room, as one that is full: after a commit there may be some elsewhere. Not so
    // when the search ends because of them.
    void note_failure(Error failure) {
        failures += failure == Error::eio ? kCostOfReadError : 1;
        if (failure != Error::euclean || gives_up()) {
            error = failure;
        }
    }
    bool gives_up() const { return failures >= kFailuresAtMost; }
    bool belongs_to_other(const BlockGroup& group) const {
        return group.last_user() != 0 && group.last_user() != user;
    }
};

uint64_t Allocator::claim(uint64_t wanted, SpacePriority priority) {
    return static_cast<uint64_t>(free_blocks_.take_up_to(
        static_cast<int64_t>(wanted), 1, static_cast<int64_t>(kept_blocks(priority))));
}

namespace {

// One block of metadata for so many of data. What a leaf takes for 32 single blocks (a key and a value of 48 bytes each)
// is less than a half of it; leaves split in halves.
constexpr uint64_t kBlocksForOneOfMetadata = 32;

constexpr int64_t with_metadata(uint64_t block_count) {
    return static_cast<int64_t>(block_count + block_count / kBlocksForOneOfMetadata);
}

}  // namespace

// Each change of the count claims or gives back what it makes of it with its shares, so that these never drift, in
// whatever order the changes come.
bool Allocator::promise(uint64_t block_count) {
    const uint64_t before = promised_blocks_.fetch_add(block_count, std::memory_order_relaxed);
    const int64_t wanted = with_metadata(before + block_count) - with_metadata(before);
    if (free_blocks_.take_up_to(wanted, wanted,
                                static_cast<int64_t>(kept_blocks(SpacePriority::normal))) != 0 ||
        wanted == 0) {
        return true;
    }
    const uint64_t after = promised_blocks_.fetch_sub(block_count, std::memory_order_relaxed);
    free_blocks_.give(with_metadata(after) - with_metadata(after - block_count) - wanted);
    return false;
}

uint64_t Allocator::take_promise(uint64_t block_count) {
    uint64_t before = promised_blocks_.load(std::memory_order_relaxed);
    uint64_t taken = 0;
    do {
        taken = smaller(block_count, before);
    } while (
        !promised_blocks_.compare_exchange_weak(before, before - taken, std::memory_order_relaxed));
    free_blocks_.give(with_metadata(before) - with_metadata(before - taken) -
                      static_cast<int64_t>(taken));
    return taken;
}

void Allocator::return_promise(uint64_t block_count) {
    const uint64_t taken = take_promise(block_count);
    TIFFIN_ASSERT(taken == block_count);
    drop_claim(taken);
}

Result<BlockRange> Allocator::allocate(uint64_t goal_block, uint64_t wanted, SpacePriority priority,
                                       GoalUse goal_use, uint64_t* claimed_blocks) {
    TIFFIN_ASSERT(wanted > 0);
    wanted = smaller(wanted, kBlocksPerGroup);
    const bool has_claim = claimed_blocks != nullptr && *claimed_blocks != 0;
    const uint64_t claimed = has_claim ? smaller(wanted, *claimed_blocks) : claim(wanted, priority);
    if (claimed == 0) {
        return Error::enospc;
    }
    Search search;
    search.goal_block = goal_block < total_blocks() ? goal_block : 0;
    search.goal_use = goal_use;
    search.wanted = static_cast<uint32_t>(claimed);
    Result<BlockRange> result = find_space(search);
    if (has_claim) {
        *claimed_blocks -= search.found.block_count;
    } else if (const uint64_t rest = claimed - search.found.block_count; rest != 0) {
        drop_claim(rest);
    }
    return result;
}

Result<BlockRange> Allocator::find_space(Search& search) {
    const uint32_t processor = host::concurrency_hint() % kCursors;
    std::atomic<uint64_t>& cursor = cursors_[processor].group;
    search.user = processor + 1;
    const bool has_goal = search.goal_block != 0;
    const uint64_t start =
        has_goal ? group_of(search.goal_block) : cursor.load(std::memory_order_relaxed);

    bool found = search_near(search, start);
    if (!found && search.contended &&
        open_groups_.load(std::memory_order_relaxed) <
            smaller(usable_groups_, kGroupsToSpreadOver)) {
        found = search_new_group(search);
    }
    if (!found && search.avoided) {
        search.avoids_others = false;
        found = search_near(search, start);
    }
    if (!found && search.contended && start < open_groups_.load(std::memory_order_acquire)) {
        // Waiting for the thread at work where it was to be is better than less than wanted elsewhere.
        found = visit(search, start, search.wanted, true);
    }
    if (!found && search.best_length != 0) {
        found = visit(search, search.best_group, 1, true);
    }
    if (!found) {
        found = search_everywhere(search, start) || search_new_group(search);
    }
    if (!found) {
        return search.error;
    }
    const uint64_t group = group_of(search.found.first_block);
    if (!has_goal && group != start) {
        cursor.store(group, std::memory_order_relaxed);
    }
    return search.found;
}

// Looks into one group, and takes what it finds when that is `minimum` blocks or more. When the
// group is taken by another thread: waits for it, or notes that.
bool Allocator::visit(Search& search, uint64_t index, uint32_t minimum, bool wait) {
    Result<BlockGroup*> made = make_group(index);
    if (!made.ok()) {
        search.note_failure(made.error());
        return false;
    }
    BlockGroup& group = **made;
    if (group.load() == BlockGroup::Load::damaged) {
        return false;
    }
    // In a thread's own group others are to free blocks, which is over soon: no reason to move on to where they look
    // for room.
    if (wait || group.last_user() == search.user) {
        group.mutex.lock();
    } else if (!group.mutex.try_lock()) {
        search.contended = true;
        return false;
    }
    GroupRun run;
    bool take = false;
    if (Result<void> loaded = load_group(group); !loaded.ok()) {
        search.note_failure(loaded.error());
    } else {
        uint32_t start = group.next_start();
        if (search.goal_block != 0 && group_of(search.goal_block) == index) {
            // A run that begins at the goal continues what is there, however short it is.
            start = static_cast<uint32_t>(search.goal_block % kBlocksPerGroup);
            run = group.run_at(start, search.wanted);
            take = run.count != 0;
        }
        if (!take) {
            run = group.find_run(start, search.wanted);
            take = run.count >= minimum;
        }
        if (take) {
            (void)group.take(run);  // the blocks were claimed before
            group.note_user(search.user);
            update_bits(group);
        }
    }
    group.mutex.unlock();
    if (take) {
        search.found = BlockRange{index * kBlocksPerGroup + run.first, run.count};
    } else if (run.count > search.best_length) {
        search.best_length = run.count;
        search.best_group = index;
    }
    return take;
}

// Looks for a run of full length in the groups from `start` on, and remembers the best of others.
bool Allocator::search_near(Search& search, uint64_t start) {
    const uint64_t open = open_groups_.load(std::memory_order_acquire);
    if (start >= open) {
        start = 0;
    } else if (search.goal_block != 0 &&
               visit(search, start, search.wanted, search.goal_use == GoalUse::continues)) {
        return true;
    }
    uint32_t looked_at = 0;
    return search_near(search, start, open, looked_at) || search_near(search, 0, start, looked_at);
}

bool Allocator::search_near(Search& search, uint64_t begin, uint64_t end, uint32_t& looked_at) {
    uint32_t passed_over = 0;
    for (uint64_t index = table_.next_with_room(begin, end);
         index < end && looked_at < kGroupsLookedAt && passed_over < kGroupsPassedOver;
         index = table_.next_with_room(index + 1, end)) {
        const BlockGroup* group = table_.find(index);
        if (group != nullptr && group->longest_run_bound() < search.wanted) {
            ++passed_over;
            if (group->longest_run_bound() > search.best_length) {
                search.best_length = group->longest_run_bound();
                search.best_group = index;
            }
            continue;
        }
        if (search.contended && search.avoids_others && group != nullptr &&
            search.belongs_to_other(*group)) {
            search.avoided = true;
            ++passed_over;
            continue;
        }
        ++looked_at;
        if (visit(search, index, search.wanted, false)) {
            return true;
        }
    }
    return false;
}

// Takes the first free blocks that there are, however few.
bool Allocator::search_everywhere(Search& search, uint64_t start) {
    // Blocks may be freed behind a search while others take those before it: so it looks twice.
    for (uint32_t round = 0; round < 2; ++round) {
        const uint64_t open = open_groups_.load(std::memory_order_acquire);
        const uint64_t middle = start < open ? start : 0;
        if (search_all(search, middle, open) || search_all(search, 0, middle)) {
            return true;
        }
    }
    return false;
}

bool Allocator::search_all(Search& search, uint64_t begin, uint64_t end) {
    for (uint64_t index = table_.next_with_room(begin, end); index < end && !search.gives_up();
         index = table_.next_with_room(index + 1, end)) {
        if (visit(search, index, 1, true)) {
            return true;
        }
    }
    return false;
}

bool Allocator::search_new_group(Search& search) {
    const uint64_t limit = smaller(
        usable_groups_, sealed_groups_.load(std::memory_order_relaxed) + kGroupsOpenedAhead);
    // A group that other threads empty at once, or that has only fixed blocks, is no end.
    for (;;) {
        const uint64_t index = open_groups_.load(std::memory_order_acquire);
        if (search.gives_up() || index >= limit) {
            return false;
        }
        if (Result<void> opened = open_groups(index + 1, limit); !opened.ok()) {
            search.note_failure(opened.error());
            return false;
        }
        if (visit(search, index, 1, true)) {
            return true;
        }
    }
}

}  // namespace tiffin::tiffinfs
