// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a file or disk is to others, before it becomes the backing of a new volume.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "fs/vfs/types.h"

namespace tiffin::rdma_blk {

// A loop device, or "swap space", that uses the file or disk with this status, as far as names in the kernel's
// lists lead to it here. Empty: none is known.
std::string find_user_of_backing(const struct stat& status);

// Whether the first or the last MiB has something, and there is no superblock of tiffinfs at the start. `buffer`
// is for reading: aligned, of whole pages. Errors: eio.
Result<bool> holds_foreign_data(int descriptor, uint64_t size_bytes, unsigned char* buffer,
                                size_t buffer_bytes);

}  // namespace tiffin::rdma_blk
