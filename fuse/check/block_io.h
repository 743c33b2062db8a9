// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading and writing whole blocks.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/block_device.h"

namespace tiffin::check {

struct alignas(4096) Block {
    unsigned char bytes[tiffinfs::kBlockBytes];
};

// False when the device cannot read it, or it lies beyond the end.
inline bool read_block(vfs::BlockDevice& device, uint64_t number, Block& block) {
    const uint64_t device_blocks = device.geometry().size_bytes / tiffinfs::kBlockBytes;
    return number < device_blocks &&
           device.read(number * tiffinfs::kBlockBytes, block.bytes, sizeof block.bytes).ok();
}

inline Result<void> write_block(vfs::BlockDevice& device, uint64_t number, const Block& block) {
    return device.write(number * tiffinfs::kBlockBytes, block.bytes, sizeof block.bytes);
}

}  // namespace tiffin::check
