// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading and writing superblocks: two slots by generation, two copies of each.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

// The valid superblocks of a device, newest generation first.
struct SuperblockSet {
    Superblock found[4];
    uint32_t count = 0;
    // A tiffinfs magic number was seen, valid or not.
    bool magic_seen = false;
    // Of the first copies of both slots, then of the second ones; 0: not valid.
    uint64_t copy_generations[4] = {};
    // Copies that should be there and are not valid.
    uint32_t damaged = 0;
    // Why a first copy is not valid that is newer than all that are, and may well be right: of another version, or of a
    // volume that is larger than the device. What it names must not be given up for something older. nullptr: there is none.
    const char* unusable = nullptr;
};

// Where to look for the second copies: where the first copy of the same slot says that the volume ends, since the two
// slots differ while a volume grows; else by the other slot, and at last by the size of the device.
class SecondCopies {
  public:
    explicit SecondCopies(uint64_t device_blocks) : device_blocks_(device_blocks) {}
    void note_first_copy(uint64_t slot, uint64_t total_blocks) {
        total_blocks_[slot] = total_blocks;
    }
    uint64_t total_blocks(uint64_t slot) const {
        if (total_blocks_[slot] != 0) {
            return total_blocks_[slot];
        }
        return total_blocks_[1 - slot] != 0 ? total_blocks_[1 - slot] : device_blocks_;
    }

  private:
    uint64_t device_blocks_;
    uint64_t total_blocks_[2] = {};
};

// Reads all four copies. Errors: eio only when no copy could be read; enomem.
Result<void> read_superblocks(vfs::BlockDevice& device, SuperblockSet& set);

// Writes the superblock, stamped, to that block only; the caller flushes. `page`: as below.
Result<void> write_superblock_copy(vfs::BlockDevice& device, Superblock& superblock, uint64_t block,
                                   void* page);
// Stamps the checksum and writes both copies of the superblock's slot; the caller flushes. Uses `page`, a
// page of the host's, so that it cannot fail for want of memory. `blocks_before` is the size of the volume in the
// other slot: where it differs, the second copy goes to the old end, too, since without the first copy only the old
// end is known.
Result<void> write_superblock(vfs::BlockDevice& device, Superblock& superblock, void* page,
                              uint64_t blocks_before);
// The same with memory of its own. Errors also: enomem.
Result<void> write_superblock(vfs::BlockDevice& device, Superblock& superblock);

// True when the structure is one this code can work with; `reason` says why not.
bool check_superblock(const Superblock& superblock, uint64_t device_bytes, const char*& reason);

}  // namespace tiffin::tiffinfs
