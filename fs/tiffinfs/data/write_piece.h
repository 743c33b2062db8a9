// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One transaction's worth of a write, at most 1 MiB.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/data/data_scratch.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/object.h"
#include "fs/tiffinfs/volume/transaction.h"
#include "fs/vfs/buffer_cursor.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

// A part of a write request, as bytes of the file.
struct WritePiece {
    uint64_t position_bytes = 0;
    uint64_t length_bytes = 0;
    uint32_t flags = 0;  // vfs::write_flag
    // The file as the piece found it.
    uint64_t old_size_bytes = 0;
    bool was_inline = false;
    uint32_t inline_stored_bytes = 0;  // of scratch.inline_bytes

    uint64_t end_bytes() const { return position_bytes + length_bytes; }
};

struct WrittenPiece {
    uint64_t length_bytes = 0;  // may be less than was asked for
    uint64_t ticket = 0;
};

// Writes from `position_bytes` on as much of what is at `cursor` as one transaction takes, and moves
// the cursor on. With RoomPolicy::make it takes new blocks where the range has none; when there are
// not enough the caller makes room and calls again, or else calls with RoomPolicy::as_it_is, which
// writes what replaces mapped blocks at the beginning of the range. Errors: enospc, efbig; then nothing
// was written.
Result<WrittenPiece> write_piece(TiffinFileSystem& file_system, Object& object,
                                 uint64_t position_bytes, BufferCursor& cursor, uint32_t flags,
                                 RoomPolicy room, DataScratch& scratch) REQUIRES(object.data);

// Sets what every write sets in an inode that grows to at least `end_bytes`: size and, unless
// `keep_times`, times; and stages the end of privileges when `flags` say so (one scattered change).
Result<void> stage_write_effects(TiffinFileSystem& file_system, Object& object, uint64_t end_bytes,
                                 uint32_t flags, InodeValue& inode, Transaction& transaction)
    REQUIRES(object.state);

// Writes the blocks of scratch.plan: the piece's bytes from `cursor` on, completed by old content at
// the edges, and leaves the checksums in scratch.checksums. The caller is in a read epoch.
Result<void> write_planned_blocks(Volume& volume, uint64_t node, const WritePiece& piece,
                                  BufferCursor cursor, DataScratch& scratch);

}  // namespace tiffin::tiffinfs
