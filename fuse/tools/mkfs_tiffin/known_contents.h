// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a device holds already, so that nobody loses it by a slip of the fingers.
#pragma once

#include <optional>
#include <string>

#include "fs/vfs/block_device.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

// The name of the file system, volume manager or partition table on the device; nullopt when nothing
// is recognised. Works on all kinds of devices, which libblkid, made for files, does not.
OrProblem<std::optional<std::string>> find_known_contents(vfs::BlockDevice& device);

}  // namespace tiffin::fuse
