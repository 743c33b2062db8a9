// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A copy by stores that go by the caches: a line that is written in whole need not be fetched first, nor displace what
// is used.
#pragma once

#include <cstddef>

#include "fs/vfs/span.h"

namespace tiffin::rdma_blk {

// From here on the caches are left out: who writes that much does not read it at once, nor write it again.
inline constexpr size_t kStreamedBytes = size_t{16} * 1024;

// As memcpy(), for kStreamedBytes and more. What it has stored is ordered before all that the caller stores after it.
void copy_streamed(unsigned char* destination, ByteSpan source);

}  // namespace tiffin::rdma_blk
