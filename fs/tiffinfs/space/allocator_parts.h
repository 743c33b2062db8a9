// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What only the sources of the allocator share.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/block_group.h"

namespace tiffin::tiffinfs {

// How many groups may be opened between two checkpoints (256 GiB). It bounds what replay can meet:
// the journal of two generations, and of one more when a superblock was damaged. A journal that
// names a group farther away was not written by this code.
inline constexpr uint64_t kGroupsOpenedAhead = 4096;

// The part of a range that lies in one group.
struct Allocator::Piece {
    uint64_t group = 0;
    GroupRun run;

    // Cuts the first piece off `range`, which is not empty.
    static Piece cut_from(BlockRange& range) {
        Piece piece;
        piece.group = group_of(range.first_block);
        piece.run.first = static_cast<uint32_t>(range.first_block % kBlocksPerGroup);
        const uint64_t left = kBlocksPerGroup - piece.run.first;
        const uint64_t count = range.block_count < left ? range.block_count : left;
        piece.run.count = static_cast<uint32_t>(count);
        range.first_block += count;
        range.block_count -= count;
        return piece;
    }
    uint64_t first_block() const { return group * kBlocksPerGroup + run.first; }
};

}  // namespace tiffin::tiffinfs
