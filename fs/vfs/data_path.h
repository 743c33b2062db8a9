// SPDX-License-Identifier: MIT OR GPL-2.0-only
// From the lower data path to whole requests: what read() does with a mapping. For hosts and file
// systems; FileSystem::read uses it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/buffer_cursor.h"
#include "fs/vfs/file_system.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::vfs {

// What one read() needs beside the caller's buffers: about 16 KiB, so for the heap. One thread at a
// time; used again without clearing.
struct ReadScratch {
    // A mapped segment of 1 MiB in single pages, and the two blocks at its edges.
    static constexpr size_t kMaximumVectors = ReadMapping::kMaxBlocks + 3;

    alignas(kBlockBytes) unsigned char edges[2][kBlockBytes];
    IoVector vectors[kMaximumVectors];
    ReadMapping mapping;
};

// Copies what `mapping` holds from `position_bytes` on into `cursor`, as far as the mapping, the file
// and the buffers reach, and moves the cursor on by as much as it returns; 0 when the position is
// outside. Whole blocks go from the device straight into the buffers; everything read is verified. On
// an error the buffers' content is undefined. The caller has mapped, and releases. Errors: eio, enomem.
Result<size_t> read_mapped(FileSystem& file_system, const ReadMapping& mapping,
                           uint64_t position_bytes, BufferCursor& cursor, ReadScratch& scratch);

}  // namespace tiffin::vfs
