// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/space/block_group.h"

#include <bit>
#include <new>

#include "fs/base/allocate.h"
#include "fs/vfs/numbers.h"

namespace tiffin::tiffinfs {
namespace {

constexpr size_t kGroupBytes = 8192;

// How many free runs a search looks at before it takes the longest of them: more for large requests, which
// pieces cost more than the search. For a whole extent of 1 MiB that is most of what a group can have.
constexpr uint32_t kSearchedRuns = 128;
constexpr uint32_t kSearchedRunsPerBlock = 16;

// The words of 64 blocks that a run lies in, each with the mask of the run's blocks in it:
//     for (const auto [word, mask] : WordsOf(run)) ...
class WordsOf {
  public:
    struct Piece {
        uint32_t word;
        uint64_t mask;
    };
    class Iterator {
      public:
        constexpr Iterator(GroupRun run, uint32_t word) : run_(run), word_(word) {}
        constexpr bool operator!=(const Iterator& other) const { return word_ != other.word_; }
        constexpr void operator++() { ++word_; }
        constexpr Piece operator*() const {
            const uint32_t begin = word_ * 64;
            const uint32_t end = run_.first + run_.count;
            uint64_t mask = ~uint64_t{0};
            if (run_.first > begin) {
                mask <<= run_.first - begin;
            }
            if (end < begin + 64) {
                mask &= (uint64_t{1} << (end - begin)) - 1;
            }
            return Piece{word_, mask};
        }

      private:
        GroupRun run_;
        uint32_t word_;
    };

    explicit WordsOf(GroupRun run) : run_(run) {
        TIFFIN_ASSERT(run.count > 0 && run.first < kBlocksPerGroup &&
                      run.count <= kBlocksPerGroup - run.first);
    }
    Iterator begin() const { return Iterator(run_, run_.first / 64); }
    Iterator end() const { return Iterator(run_, (run_.first + run_.count - 1) / 64 + 1); }

  private:
    GroupRun run_;
};

}  // namespace

BlockGroup* BlockGroup::create(uint64_t index) {
    static_assert(sizeof(BlockGroup) <= kGroupBytes && alignof(BlockGroup) <= kBlockBytes);
    void* memory = host::allocate_pages(kGroupBytes);
    return memory == nullptr ? nullptr : new (memory) BlockGroup(index);
}

void BlockGroup::destroy(BlockGroup* group) {
    if (group != nullptr) {
        group->~BlockGroup();
        host::release_pages(group, kGroupBytes);
    }
}

BlockGroup::~BlockGroup() { release_array(guarded_, kBitmapWords); }

void BlockGroup::fill(const uint64_t* used_words, uint32_t blocks_in_volume, bool is_on_device) {
    uint32_t set = 0;
    for (uint32_t word = 0; word < kBitmapWords; ++word) {
        planes_[0][word] = used_words[word];
        planes_[1][word] = 0;
        planes_[2][word] = 0;
        set += count_bits(used_words[word]);
    }
    free_blocks_ = kBlocksPerGroup - set;
    used_blocks_ = blocks_in_volume - free_blocks_;
    on_device = is_on_device;
    load_.store(Load::loaded, std::memory_order_release);
}

bool BlockGroup::data_deferred() const {
    return queue_size_ != 0 || set_blocks_[kDataOpen] != 0 || set_blocks_[kDataClosed] != 0;
}

bool BlockGroup::nodes_deferred() const {
    return set_blocks_[kNode0] != 0 || set_blocks_[kNode0 + 1] != 0 || set_blocks_[kNode0 + 2] != 0;
}

// ---- Handing out ------------------------------------------------------------------------------

uint32_t BlockGroup::next_available(uint32_t from, uint32_t end) const {
    while (from < end) {
        const uint64_t bits = available(from / 64) >> from % 64;
        if (bits != 0) {
            from += static_cast<uint32_t>(std::countr_zero(bits));
            return from < end ? from : end;
        }
        from += 64 - from % 64;
    }
    return end;
}

uint32_t BlockGroup::next_taken(uint32_t from, uint32_t end) const {
    while (from < end) {
        const uint64_t bits = ~available(from / 64) >> from % 64;
        if (bits != 0) {
            from += static_cast<uint32_t>(std::countr_zero(bits));
            return from < end ? from : end;
        }
        from += 64 - from % 64;
    }
    return end;
}

bool BlockGroup::search(uint32_t from, uint32_t end, uint32_t wanted, uint32_t& budget,
                        GroupRun& best) const {
    while (budget > 0) {
        from = next_available(from, end);
        if (from == end) {
            return true;
        }
        const uint32_t limit = end - from < wanted ? end : from + wanted;
        const uint32_t run_end = next_taken(from, limit);
        if (run_end - from > best.count) {
            best = GroupRun{from, run_end - from};
            if (best.count == wanted) {
                return false;
            }
        }
        from = run_end;
        --budget;
    }
    return false;
}

GroupRun BlockGroup::find_run(uint32_t start, uint32_t wanted) {
    GroupRun best;
    if (free_blocks_ == 0) {
        return best;
    }
    // The whole group when `start` is 0; else the run around `start` is seen from there only first,
    // and whole in the second pass, which therefore goes on behind it.
    uint32_t budget = kSearchedRuns + (wanted < 256 ? wanted : 256) * kSearchedRunsPerBlock;
    bool complete = search(start, kBlocksPerGroup, wanted, budget, best);
    if (complete && start > 0) {
        complete = search(0, next_taken(start, kBlocksPerGroup), wanted, budget, best);
    }
    if (complete) {
        longest_bound_.store(best.count, std::memory_order_relaxed);
    }
    return best;
}

GroupRun BlockGroup::run_at(uint32_t first, uint32_t wanted) const {
    const uint32_t left = kBlocksPerGroup - first;
    return GroupRun{first, next_taken(first, first + (wanted < left ? wanted : left)) - first};
}

GroupRun BlockGroup::next_run(uint32_t first, uint32_t end, uint32_t minimum,
                              uint32_t maximum) const {
    while (first < end) {
        first = next_available(first, end);
        const uint32_t limit = end - first < maximum ? end : first + maximum;
        const uint32_t run_end = next_taken(first, limit);
        if (run_end - first >= minimum) {
            return GroupRun{first, run_end - first};
        }
        first = run_end;
    }
    return GroupRun{};
}

SpaceChange BlockGroup::take(GroupRun run) {
    for (const auto [word, mask] : WordsOf(run)) {
        TIFFIN_ASSERT((available(word) & mask) == mask);
        set_state(word, mask, kHeld);
    }
    free_blocks_ -= run.count;
    const uint32_t end = run.first + run.count;
    next_start_ = end == kBlocksPerGroup ? 0 : end;
    return SpaceChange{.free_blocks = -static_cast<int64_t>(run.count)};
}

SpaceChange BlockGroup::give_back(GroupRun run) {
    SpaceChange change;
    for (const auto [word, mask] : WordsOf(run)) {
        TIFFIN_ASSERT((in_state(word, kHeld) & mask) == mask);
        make_free(word, mask, change);
    }
    grow_bound();
    return change;
}

void BlockGroup::make_free(uint32_t word, uint64_t mask, SpaceChange& change) {
    set_state(word, mask, kFree);
    const uint32_t count = count_bits(mask & ~guarded_mask(word));
    free_blocks_ += count;
    change.free_blocks += count;
}

// ---- Mapping and freeing ----------------------------------------------------------------------

SpaceChange BlockGroup::mark_used(GroupRun run, bool replay) {
    if (replay && queue_size_ != 0) {
        // A block may be freed and mapped again in one journal: then it must leave the queue, which
        // the sets allow and the queue does not.
        spill_queue();
    }
    SpaceChange change;
    for (const auto [word, mask] : WordsOf(run)) {
        const uint64_t used = in_state(word, kUsed) & mask;
        TIFFIN_ASSERT(used == 0 || replay);
        change.wrong_blocks += count_bits(used);
        const uint32_t was_free = count_bits(available(word) & mask);
        free_blocks_ -= was_free;
        change.free_blocks -= was_free;
        for (uint32_t state = kDataOpen; state < kStates; ++state) {
            const uint32_t deferred = count_bits(in_state(word, state) & mask);
            TIFFIN_ASSERT(deferred == 0 || replay);
            set_blocks_[state] -= deferred;
            change.deferred_blocks -= deferred;
        }
        const uint32_t marked = count_bits(mask & ~used);
        used_blocks_ += marked;
        change.used_blocks += marked;
        set_state(word, mask, kUsed);
    }
    return change;
}

SpaceChange BlockGroup::free_data(GroupRun run, uint64_t ticket, uint64_t epoch) {
    uint32_t used = 0;
    for (const auto [word, mask] : WordsOf(run)) {
        used += count_bits(in_state(word, kUsed) & mask);
    }
    QueuedFree* last = queue_size_ == 0 ? nullptr : &queue_[queue_size_ - 1];
    const bool extends = last != nullptr && last->ticket == ticket && last->epoch == epoch &&
                         last->first + last->count == run.first;
    // Ranges that are not all used (damage) are left to the sets, which need no exact ranges.
    const bool queued = used == run.count && (extends || queue_size_ < kQueueCapacity);
    const uint32_t state = queued ? kHeld : kDataOpen;
    for (const auto [word, mask] : WordsOf(run)) {
        set_state(word, in_state(word, kUsed) & mask, state);
    }
    if (!queued) {
        set_blocks_[kDataOpen] += used;
        open_.ticket = greater(open_.ticket, ticket);
        open_.epoch = greater(open_.epoch, epoch);
    } else if (extends) {
        last->count = static_cast<uint16_t>(last->count + run.count);
    } else {
        queue_[queue_size_++] = QueuedFree{static_cast<uint16_t>(run.first),
                                           static_cast<uint16_t>(run.count), 0, ticket, epoch};
    }
    used_blocks_ -= used;
    return SpaceChange{.used_blocks = -static_cast<int64_t>(used),
                       .deferred_blocks = used,
                       .wrong_blocks = run.count - used};
}

SpaceChange BlockGroup::free_node(uint32_t block, uint64_t generation) {
    const uint64_t bit = uint64_t{1} << block % 64;
    if ((in_state(block / 64, kUsed) & bit) == 0) {
        return SpaceChange{.wrong_blocks = 1};
    }
    const auto set = static_cast<uint32_t>(generation % 3);
    set_state(block / 64, bit, kNode0 + set);
    // Older nodes can only be left here when checkpoints fail; they wait with the new ones then.
    node_generation_[set] =
        set_blocks_[kNode0 + set] == 0 ? generation : greater(node_generation_[set], generation);
    ++set_blocks_[kNode0 + set];
    --used_blocks_;
    return SpaceChange{.used_blocks = -1, .deferred_blocks = 1};
}

void BlockGroup::release_set(uint32_t state, SpaceChange& change) {
    if (set_blocks_[state] == 0) {
        return;
    }
    for (uint32_t word = 0; word < kBitmapWords; ++word) {
        if (const uint64_t mask = in_state(word, state); mask != 0) {
            make_free(word, mask, change);
        }
    }
    change.deferred_blocks -= set_blocks_[state];
    set_blocks_[state] = 0;
    grow_bound();
}

void BlockGroup::move_set(uint32_t from, uint32_t to) {
    for (uint32_t word = 0; word < kBitmapWords; ++word) {
        if (const uint64_t mask = in_state(word, from); mask != 0) {
            set_state(word, mask, to);
        }
    }
    set_blocks_[to] += set_blocks_[from];
    set_blocks_[from] = 0;
}

void BlockGroup::spill_queue() {
    for (uint32_t i = 0; i < queue_size_; ++i) {
        const QueuedFree& entry = queue_[i];
        for (const auto [word, mask] : WordsOf(GroupRun{entry.first, entry.count})) {
            set_state(word, mask, kDataOpen);
        }
        set_blocks_[kDataOpen] += entry.count;
        open_.ticket = greater(open_.ticket, entry.ticket);
        open_.epoch = greater(open_.epoch, entry.epoch);
    }
    queue_size_ = 0;
}

SpaceChange BlockGroup::release_data(uint64_t durable_ticket, uint64_t epoch) {
    SpaceChange change;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < queue_size_; ++i) {
        const QueuedFree entry = queue_[i];
        if (entry.ticket > durable_ticket || entry.epoch >= epoch) {
            queue_[kept++] = entry;
            continue;
        }
        for (const auto [word, mask] : WordsOf(GroupRun{entry.first, entry.count})) {
            make_free(word, mask, change);
        }
        change.deferred_blocks -= entry.count;
        grow_bound();
    }
    queue_size_ = kept;
    if (closed_.ticket <= durable_ticket && closed_.epoch < epoch) {
        release_set(kDataClosed, change);
    }
    if (open_.ticket <= durable_ticket && open_.epoch < epoch) {
        release_set(kDataOpen, change);
    }
    if (set_blocks_[kDataClosed] == 0) {
        close_data_sets();
    }
    return change;
}

void BlockGroup::close_data_sets() {
    if (set_blocks_[kDataOpen] == 0) {
        open_ = DataSet{};
        return;
    }
    if (set_blocks_[kDataClosed] == 0) {
        closed_ = DataSet{};
    }
    move_set(kDataOpen, kDataClosed);
    closed_.ticket = greater(closed_.ticket, open_.ticket);
    closed_.epoch = greater(closed_.epoch, open_.epoch);
    open_ = DataSet{};
}

SpaceChange BlockGroup::release_nodes(uint64_t durable_generation) {
    SpaceChange change;
    for (uint32_t set = 0; set < 3; ++set) {
        if (node_generation_[set] < durable_generation) {
            release_set(kNode0 + set, change);
        }
    }
    return change;
}

// ---- Replay and checkpoint --------------------------------------------------------------------

Result<SpaceChange> BlockGroup::guard(GroupRun run) {
    if (guarded_ == nullptr) {
        guarded_ = allocate_array<uint64_t>(kBitmapWords);
        if (guarded_ == nullptr) {
            return Error::enomem;
        }
    }
    SpaceChange change;
    for (const auto [word, mask] : WordsOf(run)) {
        const uint32_t count = count_bits(available(word) & mask);
        guarded_[word] |= mask;
        free_blocks_ -= count;
        change.free_blocks -= count;
    }
    return change;
}

SpaceChange BlockGroup::unguard() {
    SpaceChange change;
    for (uint32_t word = 0; word < kBitmapWords; ++word) {
        const uint32_t count = count_bits(in_state(word, kFree) & guarded_mask(word));
        free_blocks_ += count;
        change.free_blocks += count;
    }
    release_array(guarded_, kBitmapWords);
    guarded_ = nullptr;
    grow_bound();
    return change;
}

GroupRun BlockGroup::extend(uint32_t old_end, uint32_t new_end, bool is_last) {
    const uint32_t first = old_end - kSuperblocksAtEnd;
    const GroupRun run{first, new_end - (is_last ? kSuperblocksAtEnd : 0) - first};
    for (const auto [word, mask] : WordsOf(run)) {
        TIFFIN_ASSERT((in_state(word, kUsed) & mask) == mask);
        set_state(word, mask, kHeld);
    }
    used_blocks_ -= is_last ? 0 : kSuperblocksAtEnd;
    return run;
}

void BlockGroup::copy_used(uint64_t* words) const {
    for (uint32_t word = 0; word < kBitmapWords; ++word) {
        words[word] = in_state(word, kUsed);
    }
}

}  // namespace tiffin::tiffinfs
