// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/own_mounts.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fuse/host/mount_table.h"

namespace tiffin::fuse {
namespace {

std::string device_number(int folder, const char* path, int flags) {
    // Without synchronisation the answer comes from the kernel's memory: the file system may be the
    // one that this process serves, or one that does not answer.
    struct statx status {};
    if (statx(folder, path, flags | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0, &status) != 0) {
        return "";
    }
    return std::to_string(status.stx_dev_major) + ":" + std::to_string(status.stx_dev_minor);
}

}  // namespace

std::string device_number_at(const std::string& path) {
    return device_number(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW);
}

std::string device_number_of(int file) { return device_number(file, "", AT_EMPTY_PATH); }

void OwnMounts::remember(int connection, const std::string& mount_point) {
    connection_ = connection;
    device_number_ = device_number_at(mount_point);
}

bool OwnMounts::is_connected() const {
    pollfd source{connection_, 0, 0};
    return connection_ >= 0 && poll(&source, 1, 0) == 0;
}

OwnMounts::Places OwnMounts::find() const {
    Places places;
    if (device_number_.empty()) {
        return places;
    }
    for (const MountEntry& entry : read_mounts()) {
        if (entry.device_number != device_number_ || !is_fuse(entry)) {
            continue;
        }
        if (device_number_at(entry.mount_point) == device_number_) {
            places.visible.push_back(entry.mount_point);
        } else {
            places.some_covered = true;
        }
    }
    std::reverse(places.visible.begin(), places.visible.end());
    return places;
}

OwnMounts::Outcome OwnMounts::unmount() const {
    if (!is_connected()) {
        return Outcome::nowhere;
    }
    Places places = find();
    bool in_use = false;
    for (const std::string& path : places.visible) {
        // What was mounted over it may come to light only now.
        if (device_number_at(path) != device_number_) {
            places.some_covered = true;
            continue;
        }
        int error = tiffin::fuse::unmount(path, UnmountMode::when_idle);
        // Another program was faster, unless it is there yet.
        in_use |= error != 0 && device_number_at(path) == device_number_;
    }
    if (places.some_covered) {
        return Outcome::covered;
    }
    if (in_use) {
        return Outcome::in_use;
    }
    return places.visible.empty() ? Outcome::nowhere : Outcome::unmounted;
}

int OwnMounts::sync() const {
    // The kernel tells an error of write-back once: so it is asked at the first place that is still one of this mount.
    constexpr int kIsNone = 255;  // no error has this number
    for (const std::string& path : find().visible) {
        const int error = call_apart([&] {
            const int file = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            // It may be another file system's place by now. (A number is too short to be allocated.)
            if (file < 0 || device_number_of(file) != device_number_) {
                return kIsNone;
            }
            return syncfs(file) == 0 ? 0 : errno;
        });
        if (error != kIsNone) {
            return error;
        }
    }
    return ENOENT;
}

void OwnMounts::detach(UnmountMode mode) const {
    for (const std::string& path : find().visible) {
        if (device_number_at(path) == device_number_) {
            tiffin::fuse::unmount(path, mode);
        }
    }
}

}  // namespace tiffin::fuse
