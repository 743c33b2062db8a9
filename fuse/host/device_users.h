// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Who else uses an image file or a disk.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <string>

#include "fuse/host/mount_table.h"

namespace tiffin::fuse {

// The file behind a loop device that shows it from its beginning; empty when `status` is of anything
// else, or when the file cannot be named.
std::string loop_backing_file(const struct stat& status);

// What can be found out about the user of a device that could not be opened.
struct DeviceUser {
    std::string mount_point;  // where it is mounted; empty: not in the mount table
    pid_t process = 0;        // who holds the lock; 0: unknown
    std::string program;      // the name of that process, at most 15 bytes; empty: unknown

    // Nothing is mounted, but a program that mounts has the device: it is about to finish, or to
    // begin. An unknown user may be that too.
    bool may_be_ending() const {
        return mount_point.empty() && (program.empty() || program.starts_with("mount."));
    }
};

DeviceUser find_device_user(const std::string& path);

// Whether the mount's source names the file or disk at `path`; a loop device counts as its file.
bool has_source(const MountEntry& entry, const std::string& path);

}  // namespace tiffin::fuse
