// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The checksum of a payload that lies in pieces.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/host.h"
#include "fs/vfs/span.h"

namespace tiffin::rdma_blk {

// CRC32C of what the pieces hold, in their order.
inline uint32_t pieces_checksum(const vfs::IoVector* pieces, size_t count) {
    uint32_t checksum = 0;
    for (size_t index = 0; index < count; index++) {
        checksum = host::crc32c(checksum, pieces[index].data, pieces[index].size_bytes);
    }
    return checksum;
}

}  // namespace tiffin::rdma_blk
