// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Copies into memory that outlives this process, in units that are whole whenever it ends. A process that is
// killed stops between two instructions, so a unit must be written by one: by a 64-byte store, where the processor has
// such (AVX-512), or by a system call, since the kernel ends no process within a copy. No other instruction will do;
// a `rep movsb` of a program's own can stop anywhere.
#pragma once

#include <cstddef>

#include "fs/vfs/span.h"

namespace tiffin::rdma_blk {

inline constexpr size_t kCopyUnitBytes = 64;
// From here on copies go by the caches: a line that is written in whole need not be fetched first, nor displace what is
// used, and who writes that much does not read it at once, nor write it again.
inline constexpr size_t kStreamedBytes = size_t{16} * 1024;

enum class UnitCopy {
    none,          // neither is to be had
    by_processor,  // 64-byte stores; from kStreamedBytes on such as go by the caches
    by_kernel,     // process_vm_writev() from this process to itself: one system call
};

// The best that this machine has. Constant.
UnitCopy unit_copy();

// Copies the pieces, one behind the other, to `destination`: each aligned unit that they cover in whole is
// written at once, those at the ends that they do not are copied in any way. False: the kernel did not, and what is
// written of it is undefined. Preconditions: `way` is not none and the machine has it; at most IOV_MAX pieces; the
// memory of both is there to stay. (by_kernel: a page of the source that is taken away in the microseconds of the copy, by
// swapping or for want of memory, from a process that is killed then, may leave one unit torn.)
[[nodiscard]] bool copy_units(UnitCopy way, unsigned char* destination, const vfs::IoVector* pieces,
                              size_t piece_count);

}  // namespace tiffin::rdma_blk
