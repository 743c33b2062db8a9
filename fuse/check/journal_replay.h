// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The journal, read from a superblock on and applied to the keys in memory.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/journal/journal.h"
#include "fuse/check/context.h"
#include "fuse/check/key_space.h"

namespace tiffin::check {

struct JournalReplay {
    uint64_t frames = 0;
    uint64_t transactions = 0;
    uint64_t records = 0;
    uint64_t torn_bytes = 0;
    bool damaged = false;  // it ends before the last acknowledged frame
    // Where the next frame would be written.
    tiffinfs::JournalPosition end;
    // The greatest node id that a record creates, and the greatest incarnation of a frame, replayed or not.
    uint64_t greatest_node = 0;
    uint64_t greatest_incarnation = 0;
};

tiffinfs::JournalPosition journal_start(const tiffinfs::Superblock& superblock);

// Applies all that can be read of the journal of `superblock` to `keys`, whole transactions only, and
// reports damage.
JournalReplay replay_journal(Context& context, const tiffinfs::Superblock& superblock,
                             KeySpace& keys);

}  // namespace tiffin::check
