// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reads every node of a tree, trusting nothing, and lists the leaves that a search can reach.
#pragma once

#include <cstdint>
#include <vector>

#include "fuse/check/context.h"
#include "fuse/check/key_space.h"
#include "fuse/check/missing_keys.h"
#include "fuse/check/space_map.h"

namespace tiffin::check {

struct TreeWalk {
    std::vector<LeafRef> leaves;   // sorted, without overlaps
    std::vector<KeyValue> strays;  // keys in nodes where no search finds them
    uint64_t nodes = 0;
    bool damaged = false;  // something was cut out
    MissingKeys missing;   // what it may have held
};

// Walks the tree of `superblock` and marks its nodes in `space`. What is damaged is reported and left
// out.
TreeWalk walk_tree(Context& context, const tiffinfs::Superblock& superblock, SpaceMap& space);

}  // namespace tiffin::check
