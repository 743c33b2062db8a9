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

// About 10 KiB; used by one request at a time.
struct DataScratch {
    alignas(kBlockBytes) unsigned char page[kBlockBytes];
    KeyAndValue found;
    WritePlan plan;
    WritePlan second_plan;  // for looking again
    alignas(8) unsigned char inline_bytes[kInlineDataMaximumBytes];
};

}  // namespace tiffin::tiffinfs
