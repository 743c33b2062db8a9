// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/data/write_plan.h"

#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/volume/transaction.h"
#include "fs/tiffinfs/volume/volume.h"

namespace tiffin::tiffinfs {
namespace {

class PlanBuilder final : public ExtentVisitor {
  public:
    PlanBuilder(WritePlan& plan, uint64_t end_block)
        : plan_(plan), next_(plan.first_block), end_(end_block) {}

    // Where new blocks go when the extent ends where the range begins.
    void visit_before(const MappedExtent& extent) override {
        if (extent.end_block() == plan_.first_block && !extent.lost()) {
            plan_.goal_block = extent.physical_block + extent.block_count;
            plan_.goal_use = GoalUse::continues;
        }
    }

    bool visit(const MappedExtent& extent) override {
        if (extent.file_block > next_ && !add_run(extent.file_block, 0, false)) {
            return false;
        }
        uint64_t end = extent.end_block() < end_ ? extent.end_block() : end_;
        uint64_t first = next_;
        bool in_place = extent.unwritten();
        if (!add_run(end, in_place ? extent.physical_of(first) : 0, in_place)) {
            return false;
        }
        add_usage(plan_.usage, extent, first, end);
        if (first == plan_.first_block + plan_.mapped_prefix_blocks && !extent.lost()) {
            plan_.mapped_prefix_blocks += static_cast<uint32_t>(end - first);
        }
        return true;
    }

    void finish() {
        if (!full_ && next_ < end_) {
            add_run(end_, 0, false);
        }
        plan_.wanted_blocks = static_cast<uint32_t>(next_ - plan_.first_block);
    }

  private:
    // The range from next_ to `end`.
    bool add_run(uint64_t end, uint64_t physical_block, bool in_place) {
        auto count = static_cast<uint32_t>(end - next_);
        if (plan_.wanted_count > 0 && !in_place && !plan_.wanted[plan_.wanted_count - 1].in_place) {
            plan_.wanted[plan_.wanted_count - 1].block_count += count;
        } else if (plan_.wanted_count < WritePlan::kMaximumRuns) {
            plan_.wanted[plan_.wanted_count++] = {physical_block, count, in_place};
        } else {
            full_ = true;
            return false;
        }
        next_ = end;
        return true;
    }

    WritePlan& plan_;
    uint64_t next_;
    uint64_t end_;
    bool full_ = false;
};

}  // namespace

Result<void> look_at_range(Volume& volume, const Object& object, uint64_t first_block,
                           uint64_t end_block, WritePlan& plan) {
    plan.first_block = first_block;
    plan.wanted_blocks = 0;
    plan.wanted_count = 0;
    plan.usage = {};
    plan.mapped_prefix_blocks = 0;
    plan.block_count = 0;
    plan.run_count = 0;
    // Else where the object wrote last.
    plan.goal_block = object.goal_block.load(std::memory_order_relaxed);
    plan.goal_use = GoalUse::anywhere;
    PlanBuilder builder(plan, end_block);
    TRY(walk_extents(volume, object.node, first_block, end_block, builder));
    builder.finish();
    plan.all_mapped = plan.usage.mapped_blocks == plan.wanted_blocks;
    return {};
}

Result<void> allocate_runs(Volume& volume, WritePlan& plan) {
    uint64_t goal = plan.goal_block;
    GoalUse goal_use = plan.goal_use;
    for (uint32_t i = 0; i < plan.wanted_count; ++i) {
        const WriteRun& wanted = plan.wanted[i];
        uint32_t left = wanted.block_count;
        while (left > 0 && plan.run_count < WritePlan::kMaximumRuns) {
            WriteRun run = wanted;
            if (!wanted.in_place) {
                Result<BlockRange> range = volume.allocator().allocate(
                    goal, left, plan.priority(), goal_use, plan.claimed_blocks);
                if (!range.ok()) {
                    if (range.error() == Error::enospc && plan.block_count > 0) {
                        return {};
                    }
                    Error error = range.error();
                    cancel_runs(volume, plan);
                    return error;
                }
                run.physical_block = range->first_block;
                run.block_count = static_cast<uint32_t>(range->block_count);
                goal = range->first_block + range->block_count;
                goal_use = GoalUse::continues;
            }
            plan.runs[plan.run_count++] = run;
            plan.block_count += run.block_count;
            left -= run.block_count;
        }
    }
    return {};
}

void cancel_runs(Volume& volume, WritePlan& plan) {
    for (uint32_t i = 0; i < plan.run_count; ++i) {
        if (!plan.runs[i].in_place) {
            volume.allocator().cancel({plan.runs[i].physical_block, plan.runs[i].block_count},
                                      plan.claimed_blocks);
        }
    }
    plan.run_count = 0;
    plan.block_count = 0;
}

Result<void> recount_usage(Volume& volume, const Object& object, WritePlan& plan) {
    CountedRange counted = TRY(count_extents(volume, object.node, plan.first_block,
                                             plan.first_block + plan.block_count, ~uint32_t{0}));
    plan.usage = counted.usage;
    return {};
}

Result<void> stage_runs(Transaction& transaction, uint64_t node, const WritePlan& plan,
                        const uint32_t* checksums) {
    uint64_t block = plan.first_block;
    for (uint32_t i = 0; i < plan.run_count; ++i) {
        const WriteRun& run = plan.runs[i];
        TRY(transaction.write_extent(node, block, run.physical_block, run.block_count, 0,
                                     Span<const uint32_t>(checksums, run.block_count)));
        checksums += run.block_count;
        block += run.block_count;
    }
    return {};
}

}  // namespace tiffin::tiffinfs
