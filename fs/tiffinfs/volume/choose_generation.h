// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which generation a mount starts from. The first checkpoint of a mount gives the older generation up, and with
// it the way back that a repair would take; so the newest one is verified before.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

// Reads the node that `entry` names, of one block, to `page`. False when it cannot be read or is not that node;
// `reason` then says why.
bool read_tree_node(vfs::BlockDevice& device, const Superblock& superblock, const InnerEntry& entry,
                    uint8_t level, unsigned char* page, const char*& reason);

// Whether all nodes of a tree that were made after generation `after` (0: all nodes) can be read and hold the keys
// that their parents say. A node that has not changed is not newer than its parent, so what lies below an older one
// is not looked at: with the generation before as `after`, this reads what the last checkpoint has written. What is
// wrong first is in the log. Errors: enomem.
Result<bool> tree_is_whole(vfs::BlockDevice& device, const Superblock& superblock, uint64_t after);

struct GenerationChoice {
    // Of SuperblockSet::found.
    uint32_t index = 0;
    // No generation is whole. Writing could take away what fsck.tiffin can still save.
    bool damaged = false;
};

// Chooses among the superblocks of `set`, which has at least one: the newest, if what its checkpoint has written is
// whole or nothing older is there; else an older one whose tree and journal are whole, so that nothing is lost by
// going back; else the newest whose root can be read, as damaged. With `verify` false, that last one in any case.
// Errors: euclean (no root can be read), enomem, eio (the journal).
Result<GenerationChoice> choose_generation(vfs::BlockDevice& device, const SuperblockSet& set,
                                           bool verify);

}  // namespace tiffin::tiffinfs
