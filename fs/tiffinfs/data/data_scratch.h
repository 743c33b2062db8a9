// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Working memory of the data path: what one request needs beside the caller's buffers. From the file
// system's DataScratchPool.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/data/write_plan.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

// The most that one transaction writes.
inline constexpr uint32_t kPieceBlocks = kWrittenExtentMaximumBlocks;

// About 20 KiB; used by one request at a time.
struct DataScratch {
    // A piece in single pages, and the two blocks at its edges.
    static constexpr size_t kMaximumVectors = kPieceBlocks + 4;

    alignas(kBlockBytes) unsigned char edges[2][kBlockBytes];
    vfs::IoVector vectors[kMaximumVectors];
    KeyAndValue found;
    WritePlan plan;
    WritePlan second_plan;  // for looking again
    uint32_t checksums[kPieceBlocks];
    alignas(8) unsigned char inline_bytes[kInlineDataMaximumBytes];

    unsigned char* edge(uint32_t index) { return edges[index]; }
};

}  // namespace tiffin::tiffinfs
