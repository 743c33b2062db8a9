// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/device_users.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>

#include "fuse/host/device_place.h"
#include "fuse/host/mount_table.h"

namespace tiffin::fuse {
namespace {

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::optional<DevicePlace> place_of_source(const MountEntry& entry) {
    const std::string source =
        entry.source.starts_with("file:") ? entry.source.substr(5) : entry.source;
    return source.starts_with('/') ? find_place(source) : std::nullopt;
}

std::string find_mount_point(const std::string& path) {
    const std::optional<DevicePlace> wanted = find_place(path);
    for (const MountEntry& entry : read_mounts()) {
        if (wanted && is_fuse(entry)) {
            const std::optional<DevicePlace> found = place_of_source(entry);
            if (found && found->overlaps(*wanted)) {
                return entry.mount_point;
            }
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

bool has_source(const MountEntry& entry, const std::string& path) {
    const std::optional<DevicePlace> wanted = find_place(path);
    return wanted && place_of_source(entry) == wanted;
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
