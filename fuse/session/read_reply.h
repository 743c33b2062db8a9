// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Answering reads without copying: from the device's memory where it has an address, else through
// one buffer for each thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/file_system.h"
#include "fuse/session/request.h"

namespace tiffin::fuse {

// Reads [offset, offset + size) of `node`, as far as the file goes, and answers. Nothing unverified
// is ever sent. `notes_access`: whether a program reads the file, so that its access time moves.
void reply_with_data(Request request, vfs::NodeId node, vfs::Handle handle, uint64_t offset_bytes,
                     size_t size_bytes, bool notes_access);

}  // namespace tiffin::fuse
