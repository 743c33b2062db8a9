// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Compares the bitmaps and totals on the device with what the tree says.
#pragma once

#include <cstdint>

#include "fuse/check/context.h"
#include "fuse/check/space_map.h"

namespace tiffin::check {

// What the tree of a superblock, without its journal, uses.
struct TreeUsage {
    const SpaceMap& blocks;  // nodes and data
    uint64_t inodes = 0;
    uint64_t greatest_node = 0;
    bool complete = true;  // false: parts of the tree are lost, so comparing makes no sense
};

// Checks the bitmaps and totals that belong to `superblock`. Returns how many groups have bitmaps that
// are worth keeping: those that the superblock says, or fewer, when so many are damaged that it gave up.
// The groups behind them are not in use.
uint64_t check_space(Context& context, const tiffinfs::Superblock& superblock,
                     const TreeUsage& usage);

// What the bitmaps of `superblock` say is in use, as far as they can be read.
void read_bitmaps(vfs::BlockDevice& device, const tiffinfs::Superblock& superblock,
                  const tiffinfs::Layout& layout, SpaceMap& used);

}  // namespace tiffin::check
