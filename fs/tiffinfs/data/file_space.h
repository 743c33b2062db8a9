// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The modes of fallocate: reserving, zeroing, freeing and moving ranges of a file.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/data/data_scratch.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/object.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

// One request that is known to be legal for a file without an intent.
struct SpaceRequest {
    TiffinFileSystem& file_system;
    DataScratch& scratch;
    uint64_t offset_bytes;
    uint64_t length_bytes;
    bool keep_size;

    Volume& volume() const { return file_system.volume(); }
    uint64_t end_bytes() const { return offset_bytes + length_bytes; }
};

// What fails half-way has changed no more than vfs::FileSystem::allocate() says: these work in several
// transactions, and each that changes content changes the times too.

// Gives every hole of the range unwritten blocks. Errors: enospc; then the file's content, size and times
// are as before.
Result<void> allocate_range(const SpaceRequest& request, Object& object) REQUIRES(object.claims);
// Makes the range read as zeros, and gives it unwritten blocks.
Result<void> zero_range(const SpaceRequest& request, Object& object) REQUIRES(object.claims);
// Makes the range read as zeros, and frees its blocks.
Result<void> punch_hole(const SpaceRequest& request, Object& object) REQUIRES(object.claims);

// shift_range.cc. Take the range out of the file, or put a hole in: what is behind moves. Errors: einval
// (the range is not made of whole blocks, or does not lie before the end of the file), efbig; with the
// object's intent flag set: the change is made, and finish_intent() has to finish it.
Result<void> collapse_range(const SpaceRequest& request, Object& object) REQUIRES(object.claims);
Result<void> insert_range(const SpaceRequest& request, Object& object) REQUIRES(object.claims);

// Gives every hole of blocks [first_block, end_block) unwritten blocks; size and times stay.
Result<void> fill_holes(const SpaceRequest& request, Object& object, uint64_t first_block,
                        uint64_t end_block) REQUIRES(object.claims);

}  // namespace tiffin::tiffinfs
