// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/second_mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "fuse/host/device_address.h"
#include "fuse/host/device_users.h"
#include "fuse/host/mount_table.h"
#include "fuse/session/mount_point.h"
#include "fuse/session/own_mounts.h"
#include "fuse/tools/common/running_options.h"

namespace tiffin::fuse {
namespace {

// The root of a mounted file system, as it was found: paths may show something else a moment later.
class MountedRoot {
  public:
    explicit MountedRoot(const MountEntry& entry)
        : file_(open(entry.mount_point.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {
        // Another mount may cover it.
        if (file_ >= 0 && device_number_of(file_) != entry.device_number) {
            close(std::exchange(file_, -1));
        }
    }
    ~MountedRoot() {
        if (file_ >= 0) {
            close(file_);
        }
    }
    MountedRoot(const MountedRoot&) = delete;
    MountedRoot& operator=(const MountedRoot&) = delete;

    bool ok() const { return file_ >= 0; }
    std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

  private:
    int file_;
};

// Any user of FUSE chooses what the table shows as the source; the user that mounted is the kernel's word.
bool may_show(const MountEntry& entry, const std::string& device_path) {
    return is_fuse(entry) && entry.root == "/" &&
           has_mount_option(entry.super_options, "user_id=0") && has_source(entry, device_path);
}

// A bind mount has the flags of what it is made of.
bool has_flags_of(const MountEntry& entry, const MountOptions& options) {
    const auto agrees = [&](const std::optional<bool>& allowed, const char* forbidding) {
        return has_mount_option(entry.options, forbidding) == (allowed == false);
    };
    const bool read_only =
        has_mount_option(entry.options, "ro") || has_mount_option(entry.super_options, "ro");
    return read_only == options.file_system.read_only && agrees(options.suid, "nosuid") &&
           agrees(options.dev, "nodev") && agrees(options.exec, "noexec") &&
           agrees(options.follow_symlinks, "nosymfollow");
}

// Whether it serves this very device, and as the task asks: a path may name another image by now.
bool is_wanted(const MountedRoot& root, const MountTask& task, const std::string& device_path) {
    OrProblem<std::string> options = running_options(root.path());
    OrProblem<std::string> process = running_status(root.path(), "process");
    return options.ok() && options.value() == task.option_text && process.ok() &&
           process.value() == std::to_string(find_device_user(device_path).process);
}

}  // namespace

OrProblem<bool> mount_again(const MountTask& task) {
    OrProblem<DeviceAddress> address = parse_device_address(task.device);
    if (geteuid() != 0 || !task.type->needs_device || !address.ok() ||
        address->kind != DeviceAddress::Kind::file) {
        return false;
    }
    for (const MountEntry& entry : read_mounts()) {
        if (!may_show(entry, address->path) || !has_flags_of(entry, task.options)) {
            continue;
        }
        const MountedRoot root(entry);
        if (!root.ok() || !is_wanted(root, task, address->path)) {
            continue;
        }
        if (std::optional<Problem> problem = take_dead_mounts_away(task.mount_point)) {
            return *problem;
        }
        if (mount(root.path().c_str(), task.mount_point.c_str(), nullptr, MS_BIND, nullptr) != 0) {
            const int error = errno;
            return Problem{"cannot show " + entry.mount_point + ", where " + task.device +
                           " is mounted, on " + task.mount_point + ": " + system_error_text(error)};
        }
        return true;
    }
    return false;
}

}  // namespace tiffin::fuse
