// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/device_users.h"

#include <sys/sysmacros.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "fuse/host/mount_table.h"

namespace tiffin::fuse {
namespace {

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// A file by device and inode number, a disk by its own number; a loop device counts as its file.
using Identity = std::pair<dev_t, ino_t>;

bool identify(const std::string& path, Identity& identity) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        return false;
    }
    const std::string backing = loop_backing_file(status);
    if (!backing.empty() && stat(backing.c_str(), &status) != 0) {
        return false;
    }
    identity = S_ISBLK(status.st_mode) ? Identity{status.st_rdev, 0}
                                       : Identity{status.st_dev, status.st_ino};
    return S_ISBLK(status.st_mode) || S_ISREG(status.st_mode);
}

std::string find_mount_point(const std::string& path) {
    for (const MountEntry& entry : read_mounts()) {
        if (is_fuse(entry) && has_source(entry, path)) {
            return entry.mount_point;
        }
    }
    return {};
}

// NUMBER: FLOCK ADVISORY WRITE PROCESS MAJOR:MINOR:INODE START END
pid_t find_lock_holder(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        return 0;
    }
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%02x:%02x:%llu", major(status.st_dev), minor(status.st_dev),
             static_cast<unsigned long long>(status.st_ino));
    std::ifstream locks("/proc/locks");
    std::string line;
    while (std::getline(locks, line)) {
        std::istringstream fields(line);
        std::string number;
        std::string kind;
        std::string skipped;
        std::string file;
        pid_t process = 0;
        // "->" before the kind: a process that waits for the lock.
        if (fields >> number >> kind >> skipped >> skipped >> process >> file && kind == "FLOCK" &&
            file == wanted && process > 0) {
            return process;
        }
    }
    return 0;
}

}  // namespace

std::string loop_backing_file(const struct stat& status) {
    if (!S_ISBLK(status.st_mode)) {
        return {};
    }
    const std::string folder = "/sys/dev/block/" + std::to_string(major(status.st_rdev)) + ":" +
                               std::to_string(minor(status.st_rdev)) + "/loop/";
    if (first_line(folder + "offset") != "0") {
        return {};
    }
    return first_line(folder + "backing_file");
}

bool has_source(const MountEntry& entry, const std::string& path) {
    const std::string source =
        entry.source.starts_with("file:") ? entry.source.substr(5) : entry.source;
    Identity wanted;
    Identity found;
    return source.starts_with('/') && identify(path, wanted) && identify(source, found) &&
           found == wanted;
}

DeviceUser find_device_user(const std::string& path) {
    DeviceUser user;
    user.mount_point = find_mount_point(path);
    user.process = find_lock_holder(path);
    if (user.process != 0) {
        user.program = first_line("/proc/" + std::to_string(user.process) + "/comm");
    }
    return user;
}

}  // namespace tiffin::fuse
