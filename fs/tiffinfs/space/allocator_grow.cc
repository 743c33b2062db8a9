// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The volume becomes larger while it is in use; the order of the steps is in allocator.h.
#include "fs/base/text.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/block_group.h"

namespace tiffin::tiffinfs {

Result<void> Allocator::prepare_growth(uint64_t total_blocks) {
    TIFFIN_ASSERT(total_blocks == round_total_blocks(total_blocks) &&
                  total_blocks >= layout_.total_blocks + kMinimumGrowthBlocks);
    TRY(table_.grow(group_count(total_blocks)));
    // The group at the old end stays in memory once it is there.
    const uint64_t last = layout_.groups() - 1;
    if (last < open_groups_.load(std::memory_order_acquire)) {
        BlockGroup* group = TRY(make_group(last));
        MutexLock lock(group->mutex);
        TRY(load_group(*group));
    }
    growth_blocks_ = total_blocks;
    return {};
}

void Allocator::extend() {
    const uint64_t old_total = total_blocks();
    const uint64_t last = layout_.groups() - 1;
    const auto old_end = layout_.blocks_in_group(last);
    const uint64_t old_fixed = layout_.fixed_blocks(0, layout_.groups());
    bool is_open;
    {
        MutexLock lock(open_mutex_);
        is_open = last < open_groups_.load(std::memory_order_relaxed);
        // If that group has not been opened yet, it stays so until the end: its last blocks are no superblocks any more.
        usable_groups_ = is_open ? last + 1 : last;
        layout_.total_blocks = growth_blocks_;
    }
    if (is_open) {
        BlockGroup* group = table_.find(last);
        TIFFIN_ASSERT(group != nullptr && group->load() == BlockGroup::Load::loaded);
        MutexLock lock(group->mutex);
        const GroupRun run =
            group->extend(old_end, layout_.blocks_in_group(last), last + 1 == layout_.groups());
        set_changed(*group);
        growth_held_ = BlockRange{last * kBlocksPerGroup + run.first, run.count};
    }
    const uint64_t fixed = layout_.fixed_blocks(0, layout_.groups()) - old_fixed;
    used_blocks_.add(static_cast<int64_t>(fixed));
    growth_free_blocks_ = total_blocks() - old_total - fixed;
}

void Allocator::finish_growth() {
    usable_groups_ = layout_.groups();
    free_blocks_.give(static_cast<int64_t>(growth_free_blocks_ - growth_held_.block_count));
    cancel(growth_held_);
    growth_held_ = BlockRange{};
    growth_free_blocks_ = 0;
    // Not before: what a growth that fails here asks for would be more than the old volume has.
    choose_reserves();
}

}  // namespace tiffin::tiffinfs
