// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Other users of an image file or a disk.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "fuse/host/mount_table.h"

namespace tiffin::fuse {

// What can be found out about the user of a device that could not be opened.
struct DeviceUser {
    std::string
        mount_point;      // where it, or a part of it, is mounted; empty: not in the mount table
    pid_t process = 0;    // the holder of the lock; 0: unknown
    std::string program;  // the name of that process, at most 15 bytes; empty: unknown

    // Nothing is mounted, but a program that mounts has the device: it is about to finish, or to
    // begin. An unknown user may be that too.
    bool may_be_ending() const {
        return mount_point.empty() && (program.empty() || program.starts_with("mount."));
    }
};

// `dead_mount_point`: a mount there is not in use any more.
DeviceUser find_device_user(const std::string& path, const std::string& dead_mount_point = {});

// Whether the kernel has mounted the disk for writing, as far as the mount table tells. `disk`: of stat().
bool is_written_by_kernel(const struct stat& disk);

// Whether the mount's source is the place of the file or disk at `path` (device_place.h).
bool has_source(const MountEntry& entry, const std::string& path);

}  // namespace tiffin::fuse
