// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Looking through the map of a file.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/data/write_plan.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/tiffinfs/volume/extents.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

class Volume;

// Sees extents in order, without overlaps. visit() must not sleep, take locks or call the tree, and the
// extent's checksums are valid during the call only. It returns false to stop.
class ExtentVisitor {
  public:
    virtual bool visit(const MappedExtent& extent) = 0;
    // The last extent in front of the range, if none covers the first block: before the others.
    virtual void visit_before(const MappedExtent& extent) { (void)extent; }

  protected:
    ~ExtentVisitor() = default;
};

// Visits every extent of `node` that overlaps [first_block, end_block), whole. The caller holds the
// object's state lock. Everything is checked; damage is reported to the volume. One descent of the tree
// for each leaf that has some. Errors: eio, euclean, enomem.
Result<void> walk_extents(Volume& volume, uint64_t node, uint64_t first_block, uint64_t end_block,
                          ExtentVisitor& visitor);

// What [first_block, end_block) holds, up to `maximum_extents` extents. `counted_end` is where counting
// stopped: end_block, or the end of the last extent that was counted.
struct CountedRange {
    MapUsage usage;
    uint64_t counted_end = 0;
};
Result<CountedRange> count_extents(Volume& volume, uint64_t node, uint64_t first_block,
                                   uint64_t end_block, uint32_t maximum_extents);

// Adds the part of `extent` in [first_block, end_block) to `usage`.
void add_usage(MapUsage& usage, const MappedExtent& extent, uint64_t first_block,
               uint64_t end_block);

// How large a transaction must be that replaces a range with that `usage` by `new_extents` extents of
// `new_blocks` blocks, and changes `scattered` other keys. Counts the pieces that are cut off at both
// ends, and the extent that may be joined.
struct TransactionSize extent_change_size(const MapUsage& usage, uint32_t new_extents,
                                          uint32_t new_blocks, uint32_t scattered);

}  // namespace tiffin::tiffinfs
