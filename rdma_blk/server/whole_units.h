// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Writes of requests into memory that outlives this process, in units of 64 bytes that are whole whenever it ends: nobody
// may come back to repeat the request that it was killed in. By one store each where the processor has such (unit_copy.h);
// else each unit is laid down beside first, which costs a line that stays in the cache.
#pragma once

#include <cstddef>

#include "fs/vfs/span.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/wire/control_area.h"

namespace tiffin::rdma_blk {

// `place` is at `offset_bytes` of `space`. `mark` lies in memory that outlives the process, too; one thread at a time.
void write_whole_units(wire::UnitMark& mark, AddressSpace space, uint64_t offset_bytes,
                       unsigned char* place, ByteSpan payload);
// The same with the mark on every processor: for tests.
void write_marked_units(wire::UnitMark& mark, AddressSpace space, uint64_t offset_bytes,
                        unsigned char* place, ByteSpan payload);

// After the process ended: finishes the unit that was being written. A mark that is beyond the end is dropped.
void finish_unit(wire::UnitMark& mark, MutableByteSpan data, MutableByteSpan control);

}  // namespace tiffin::rdma_blk
