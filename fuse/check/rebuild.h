// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Writes the repaired state to the device.
#pragma once

#include <cstdint>
#include <string>

#include "fs/tiffinfs/journal/journal.h"
#include "fuse/check/context.h"
#include "fuse/check/key_space.h"
#include "fuse/check/objects.h"
#include "fuse/check/space_map.h"

namespace tiffin::check {

struct RebuildInput {
    // What the repair starts from, and the newest that there is.
    const tiffinfs::Superblock& base;
    const tiffinfs::Superblock& newest;
    KeySpace& keys;
    const Objects& objects;      // of the last scan, which found nothing more to repair
    const SpaceMap& nodes;       // of the tree on the device
    const SpaceMap& old_blocks;  // nodes and data of the state on the device: not to be overwritten
    // Groups from here on are not in use, and have no bitmaps any more when this is less than what the
    // base says.
    uint64_t bitmap_groups = 0;
    bool tree_is_damaged = false;  // parts of it were cut out
    tiffinfs::JournalPosition journal_end;
    bool journal_is_damaged = false;
    uint64_t greatest_incarnation = 0;
    uint64_t next_node = 0;
    // Not everything that was found is repaired: the volume is marked, so that the next check looks.
    bool problems_left = false;

    // The newest superblock names a tree that is given up for an older one.
    bool gives_newest_up() const { return base.generation != newest.generation; }
};

// Errors: enospc, eio, erofs, and eintr when the check was cancelled; `problem` then says what could not be done.
// What was on the device before is then still in force.
Result<void> rebuild(Context& context, const RebuildInput& input, std::string& problem);

}  // namespace tiffin::check
