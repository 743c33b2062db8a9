// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The four copies of the superblock, each looked at on its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/block_device.h"
#include "fuse/check/context.h"

namespace tiffin::check {

struct SuperblockCopy {
    enum class State : uint8_t {
        valid,
        unreadable,
        empty,       // all zeros
        foreign,     // something else is there, or a valid superblock of another volume
        damaged,     // the magic number without the checksum
        impossible,  // the checksum is right, the contents are not; see `reason`
        // The same, and the contents may well be right where they were written: of another version, or of a volume whose
        // end is not there.
        unusable,
    };
    uint64_t slot = 0;  // 0: A, 1: B
    uint32_t copy = 0;
    uint64_t block = 0;
    State state = State::foreign;
    std::string reason;
    tiffinfs::Superblock superblock{};

    std::string name() const;  // "superblock A, first copy"
};

struct SuperblockCopies {
    SuperblockCopy copies[4];
    // One valid superblock for each generation found, newest first, all of one volume. None when one that is unusable is
    // newer: the state that it names is not given up for an older one.
    std::vector<tiffinfs::Superblock> generations;
};

uint32_t superblock_checksum(const tiffinfs::Superblock& superblock);
SuperblockCopies read_superblock_copies(vfs::BlockDevice& device);

// The size of the volume whose end is cut off: what a superblock at the front says whose checksum is right, and which no
// other one is newer than. 0 when nothing is missing.
uint64_t cut_off_volume_bytes(const SuperblockCopies& copies, uint64_t device_bytes);

// Reports what is wrong with the copies. False when there is no volume to check.
bool check_superblocks(Context& context, const SuperblockCopies& copies);

}  // namespace tiffin::check
