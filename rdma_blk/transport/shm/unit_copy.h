// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Copies into memory that outlives this process, in units that are whole whenever it ends. A process that is
// killed stops between two instructions, so a unit must be written by one: 64 bytes by a 64-byte
// store. No other instruction will do; a `rep movsb` can stop anywhere.
#pragma once

#include <cstddef>

#include "fs/vfs/span.h"

namespace tiffin::rdma_blk {

inline constexpr size_t kCopyUnitBytes = 64;
// From here on the caches are left out: who writes that much does not read it at once, nor write it again.
inline constexpr size_t kStreamedBytes = size_t{16} * 1024;

// Whether this processor has such stores.
bool can_copy_units();

// Copies the pieces, one behind the other, to `destination`: each aligned unit that they cover in whole is
// stored by one instruction, those at the ends that they do not are copied in any way. Precondition:
// can_copy_units().
void copy_units(unsigned char* destination, const vfs::IoVector* pieces, size_t piece_count);

}  // namespace tiffin::rdma_blk
