// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/device_users.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "fuse/host/device_place.h"
#include "fuse/host/kernel_tables.h"
#include "fuse/host/mount_table.h"

namespace tiffin::fuse {
namespace {

std::optional<DevicePlace> place_of_source(const MountEntry& entry) {
    const std::string source =
        entry.source.starts_with("file:") ? entry.source.substr(5) : entry.source;
    return source.starts_with('/') ? find_place(source) : std::nullopt;
}

// A disk that the kernel has mounted for writing.
bool is_written_by_kernel(const MountEntry& entry, const struct stat& disk) {
    struct stat source {};
    return S_ISBLK(disk.st_mode) && !is_fuse(entry) &&
           (entry.super_options + ",").starts_with("rw,") && entry.source.starts_with('/') &&
           stat(entry.source.c_str(), &source) == 0 && S_ISBLK(source.st_mode) &&
           source.st_rdev == disk.st_rdev;
}

std::string find_mount_point(const std::string& path, const std::string& dead_mount_point) {
    const std::optional<DevicePlace> wanted = find_place(path);
    struct stat status {};
    const bool exists = stat(path.c_str(), &status) == 0;
    for (const MountEntry& entry : read_mounts()) {
        if (exists && is_written_by_kernel(entry, status)) {
            return entry.mount_point;
        }
        if (wanted && is_fuse(entry) && entry.mount_point != dead_mount_point) {
            const std::optional<DevicePlace> found = place_of_source(entry);
            if (found && found->overlaps(*wanted)) {
                return entry.mount_point;
            }
        }
    }
    return {};
}

// The list of locks has the device number of a file system. What stat() says is another one on Btrfs: that of a subvolume.
dev_t listed_device(const std::string& path, const struct stat& status) {
    struct statx file {};
    if (!S_ISREG(status.st_mode) ||
        statx(AT_FDCWD, path.c_str(), AT_STATX_SYNC_AS_STAT, STATX_MNT_ID, &file) != 0 ||
        (file.stx_mask & STATX_MNT_ID) == 0) {
        return status.st_dev;
    }
    for (const MountEntry& entry : read_mounts()) {
        if (entry.id == file.stx_mnt_id) {
            return device_number_in(entry.device_number);
        }
    }
    return status.st_dev;
}

pid_t find_lock_holder(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
        return 0;
    }
    for (const FileLock& lock : file_locks(listed_device(path, status), status.st_ino)) {
        if (lock.process > 0) {
            return lock.process;
        }
    }
    return 0;
}

}  // namespace

bool is_written_by_kernel(const struct stat& disk) {
    const std::vector<MountEntry> mounts = read_mounts();
    return std::ranges::any_of(
        mounts, [&](const MountEntry& entry) { return is_written_by_kernel(entry, disk); });
}

bool has_source(const MountEntry& entry, const std::string& path) {
    const std::optional<DevicePlace> wanted = find_place(path);
    return wanted && place_of_source(entry) == wanted;
}

DeviceUser find_device_user(const std::string& path, const std::string& dead_mount_point) {
    DeviceUser user;
    user.mount_point = find_mount_point(path, dead_mount_point);
    user.process = find_lock_holder(path);
    if (user.process != 0) {
        user.program = first_line("/proc/" + std::to_string(user.process) + "/comm");
    }
    return user;
}

}  // namespace tiffin::fuse
