// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Blocks with two owners: whose they are.
#pragma once

#include <vector>

#include "fuse/check/context.h"
#include "fuse/check/key_space.h"
#include "fuse/check/objects.h"
#include "fuse/check/repairs.h"
#include "fuse/check/space_map.h"

namespace tiffin::check {

// Puts ranges in order; those that meet become one.
void sort_and_join(std::vector<tiffinfs::BlockRange>& ranges);

// Looks for all objects that claim the blocks of `objects.conflicts`, decides whose they are (tree nodes
// first, then the extent whose checksums match, then the younger one), reports the others, and stages
// that they lose them. Errors: eio.
Result<void> resolve_shared_blocks(Context& context, KeySpace& keys, const SpaceMap& nodes,
                                   MissingKeys& missing, Objects& objects, Repairs& repairs);

}  // namespace tiffin::check
