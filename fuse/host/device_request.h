// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What all devices of the user-space host ask of a request before they touch anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/block_device.h"

namespace tiffin::fuse {

// Checks the place of a read or write and returns its length in bytes (0 is legal). Errors: einval
// (not in whole write units), eio (beyond the end), erofs (a write to a read-only device).
Result<uint64_t> check_transfer(const vfs::DeviceGeometry& geometry, bool is_write,
                                uint64_t offset_bytes, const vfs::IoVector* buffers,
                                size_t buffer_count);

// The same for a discard; also eopnotsupp.
Result<void> check_discard(const vfs::DeviceGeometry& geometry, uint64_t offset_bytes,
                           uint64_t length_bytes);

// Carries a request out with the synchronous functions of `device`, which must not be built on
// submit() themselves, and completes it.
void complete_synchronously(vfs::BlockDevice& device, vfs::IoRequest& request);

}  // namespace tiffin::fuse
