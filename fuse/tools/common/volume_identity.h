// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Which volume a disk holds, and which disk holds a volume: what libblkid does for file systems that it knows.
#pragma once

#include <cstdint>
#include <string>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

struct VolumeIdentity {
    std::string uuid;  // in lower case
    std::string label;
    uint32_t format_version = 0;
};

// Reads the superblocks at the front of a disk or an image, also while it is mounted: takes no lock. The problem is
// that none is valid (einval), or that the file cannot be read.
OrProblem<VolumeIdentity> read_volume_identity(const std::string& path);

// UUID=... and LABEL=..., as in fstab: the path of the disk. By the links that udev makes, and else by reading all
// disks. Other text comes back as it is.
OrProblem<std::string> resolve_volume_tag(const std::string& text);

}  // namespace tiffin::fuse
