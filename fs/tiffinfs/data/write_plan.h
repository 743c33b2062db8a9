// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where one piece of a write goes: which blocks are written in place (reserved by fallocate, nothing
// old in them), which get new ones, and what the map held there before.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/objects/object.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/tiffinfs/volume/extents.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

class Transaction;
class Volume;

// One contiguous range of the device that a piece of a write goes to.
struct WriteRun {
    uint64_t physical_block = 0;
    uint32_t block_count = 0;
    bool in_place = false;  // an unwritten extent that is mapped there already

    bool operator==(const WriteRun&) const = default;
};

// What a range of a file's map holds.
struct MapUsage {
    uint64_t mapped_blocks = 0;  // unwritten ones included, lost ones not
    uint32_t extent_count = 0;   // extents that overlap the range
    uint32_t extent_bytes = 0;   // their keys and values
    uint32_t cut_bytes = 0;      // keys and values of the pieces that lie outside, at most
};

// A block of which only a part is written: what it holds already.
struct OldBlock {
    bool written = false;         // else it reads as zeros
    uint64_t physical_block = 0;  // 0: what it holds is lost
    uint32_t checksum = 0;
};

// Whose space the new blocks of a write come from. `flags`: vfs::write_flag.
constexpr SpacePriority new_block_priority(uint32_t flags) {
    return (flags & vfs::write_flag::write_back) != 0 ? SpacePriority::write_back
                                                      : SpacePriority::normal;
}

// Of the transaction of a write; `replaces`: it takes no new space. A promise holds whatever others have used of the
// write-back reserve.
constexpr SpacePriority change_priority(uint32_t flags, bool replaces) {
    return replaces || (flags & vfs::write_flag::promised) != 0 ? SpacePriority::overwriting
                                                                : new_block_priority(flags);
}

// A bounded range of a file that is about to be written.
struct WritePlan {
    static constexpr uint32_t kMaximumRuns = 16;

    // What the map says: in which runs the range falls. `physical_block` counts only in place.
    uint64_t first_block = 0;
    uint32_t wanted_blocks = 0;  // that `wanted` covers: may be less than was asked for
    uint32_t wanted_count = 0;
    WriteRun wanted[kMaximumRuns];
    MapUsage usage;                     // of the wanted range, before the write
    uint32_t mapped_prefix_blocks = 0;  // so many blocks at the beginning are mapped
    bool all_mapped = false;            // every block of the wanted range is mapped
    uint64_t goal_block = 0;            // where new blocks should be; 0: anywhere
    GoalUse goal_use = GoalUse::continues;
    // Whose space new blocks come from; set by the caller of look_at_range().
    SpacePriority new_block_priority = SpacePriority::normal;
    // How many blocks the write has a claim on, which are taken first; nullptr: it was promised none. Set by the same.
    uint64_t* claimed_blocks = nullptr;

    // What was allocated for it.
    uint32_t block_count = 0;  // that `runs` covers: may be less than wanted_blocks
    uint32_t run_count = 0;
    WriteRun runs[kMaximumRuns];

    // Overwriting gives back the space that it takes, so it may use a part of the reserve.
    SpacePriority priority() const {
        return all_mapped ? SpacePriority::overwriting : new_block_priority;
    }
};

// Looks at [first_block, end_block) of the object's map and fills the first half of `plan`. Errors: eio, euclean, enomem.
Result<void> look_at_range(Volume& volume, const Object& object, uint64_t first_block,
                           uint64_t end_block, WritePlan& plan) REQUIRES_SHARED(object.state);

// Allocates blocks for the runs that need them and fills the second half. Does not wait for room.
// Errors: enospc (nothing could be allocated).
Result<void> allocate_runs(Volume& volume, WritePlan& plan);
// Gives back what allocate_runs() allocated.
void cancel_runs(Volume& volume, WritePlan& plan);

// Counts again what the map holds where the plan's runs go, when they cover less than was looked at.
Result<void> recount_usage(Volume& volume, const Object& object, WritePlan& plan)
    REQUIRES_SHARED(object.state);

// Stages the mapping of all runs with their checksums.
Result<void> stage_runs(Transaction& transaction, uint64_t node, const WritePlan& plan,
                        const uint32_t* checksums);

}  // namespace tiffin::tiffinfs
