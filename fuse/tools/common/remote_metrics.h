// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a mount's metrics say of the servers of a remote volume.
#pragma once

#include "fs/vfs/block_device.h"
#include "rdma_blk/metrics/families.h"

namespace tiffin::fuse {

// Nothing for devices of this host. Any thread.
void collect_remote_device(const vfs::BlockDevice& device, metrics::Families& families);

}  // namespace tiffin::fuse
