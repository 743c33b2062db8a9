// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/second_mount.h"

#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "fuse/host/device_address.h"
#include "fuse/host/device_users.h"
#include "fuse/session/mount_point.h"
#include "fuse/tools/common/running_options.h"

namespace tiffin::fuse {
namespace {

// Where the whole of the device's file system is mounted.
std::optional<MountEntry> existing_mount(const MountTask& task) {
    OrProblem<DeviceAddress> address = parse_device_address(task.device);
    if (!address.ok() || address->kind != DeviceAddress::Kind::file) {
        return std::nullopt;
    }
    const std::string mount_point = find_device_user(address->path).mount_point;
    if (mount_point.empty()) {
        return std::nullopt;
    }
    std::optional<MountEntry> entry = find_mount(mount_point);
    return entry.has_value() && entry->root == "/" ? entry : std::nullopt;
}

}  // namespace

OrProblem<bool> mount_again(const MountTask& task) {
    if (geteuid() != 0 || !task.type->needs_device) {
        return false;
    }
    const std::optional<MountEntry> existing = existing_mount(task);
    if (!existing.has_value()) {
        return false;
    }
    OrProblem<std::string> options = running_options(existing->mount_point);
    // The kernel's line tells of a remount since then.
    if (!options.ok() || options.value() != task.option_text ||
        has_mount_option(existing->options, "ro") != task.options.file_system.read_only) {
        return false;
    }
    if (mount(existing->mount_point.c_str(), task.mount_point.c_str(), nullptr, MS_BIND, nullptr) !=
        0) {
        const int error = errno;
        return Problem{"cannot show " + existing->mount_point + ", where " + task.device +
                       " is mounted, on " + task.mount_point + ": " + system_error_text(error)};
    }
    return true;
}

}  // namespace tiffin::fuse
