// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where processes of this host find a volume: RUNTIME_DIRECTORY/volume.NAME.sock. Who may connect must still
// know the volume's key.
#pragma once

#include <string>

#include "fs/vfs/result.h"
#include "rdma_blk/server/unique_descriptor.h"

namespace tiffin::rdma_blk {

// A socket that listens there. What an earlier server left is removed; the folder is made. Errors: ebusy (another
// server listens there), enametoolong, those of the system.
Result<UniqueDescriptor> open_volume_socket(const std::string& runtime_directory,
                                            const std::string& volume_name);
void remove_volume_socket(const std::string& runtime_directory, const std::string& volume_name);

}  // namespace tiffin::rdma_blk
