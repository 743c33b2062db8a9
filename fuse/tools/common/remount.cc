// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/remount.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "fuse/session/control_commands.h"
#include "fuse/session/mount_point.h"
#include "fuse/session/options.h"
#include "fuse/tools/common/running_options.h"

// Linux 5.10, which the C library's headers may not know.
#ifndef MS_NOSYMFOLLOW
#define MS_NOSYMFOLLOW 256
#endif

namespace tiffin::fuse {
namespace {

std::optional<Problem> tell_file_system(const std::string& mount_point, bool read_only) {
    int file = open(mount_point.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) {
        return Problem{"cannot open " + mount_point + ": " + system_error_text(errno)};
    }
    RemountCommand command;
    command.read_only = read_only ? 1 : 0;
    int result = ioctl(file, kRemountCommand, &command);
    int error = errno;
    close(file);
    // A file system that cannot switch is kept from writing by the kernel.
    if (result == 0 || (read_only && error == EOPNOTSUPP)) {
        return std::nullopt;
    }
    std::string why = system_error_text(error);
    if (error == ENOTTY) {
        why = "it is not Tiffin's";
    } else if (error == EROFS) {
        why =
            "its device is read-only, damage was met (the log says so), or it was mounted with "
            "norecovery";
    } else if (error == EBUSY) {
        why = "others read its device";
    } else if (read_only && (error == errno_value(kReadOnlyWithLoss) || error == ENOSPC)) {
        return Problem{
            "it is read-only now, but part of what was written before could not be stored; the "
            "log says why"};
    }
    return Problem{"the file system refuses to become " +
                   std::string(read_only ? "read-only: " : "writable: ") + why};
}

// The kernel drops what a remount does not name again: what the options do not speak of stays as it
// is. (Access times stay by themselves.)
unsigned long kernel_flags(const MountOptions& options, const MountEntry& entry, bool read_only) {
    unsigned long flags = 0;
    auto set_if = [&](bool condition, unsigned long flag) { flags |= condition ? flag : 0; };
    auto forbids = [&](const std::optional<bool>& asked, const char* word) {
        return asked.has_value() ? !*asked : has_mount_option(entry.options, word);
    };
    set_if(read_only, MS_RDONLY);
    set_if(has_mount_option(entry.super_options, "sync"), MS_SYNCHRONOUS);
    set_if(has_mount_option(entry.super_options, "dirsync"), MS_DIRSYNC);
    set_if(forbids(options.suid, "nosuid"), MS_NOSUID);
    set_if(forbids(options.dev, "nodev"), MS_NODEV);
    set_if(forbids(options.exec, "noexec"), MS_NOEXEC);
    set_if(forbids(options.follow_symlinks, "nosymfollow"), MS_NOSYMFOLLOW);
    return flags;
}

}  // namespace

std::optional<Problem> remount(const std::string& mount_point, const MountOptions& options,
                               const std::string& option_text) {
    char resolved[PATH_MAX];
    if (realpath(mount_point.c_str(), resolved) == nullptr) {
        return Problem{"cannot use " + mount_point + ": " + system_error_text(errno)};
    }
    std::optional<MountEntry> entry = find_mount(resolved);
    if (!entry.has_value() || !is_fuse(*entry)) {
        return Problem{"no Tiffin file system is mounted on " + mount_point};
    }
    if (geteuid() != 0) {
        return Problem{"cannot remount " + mount_point +
                           ": only root can; unmount it, and mount it with other options",
                       Error::eperm};
    }
    OrProblem<std::string> running = running_options(resolved);
    if (!running.ok()) {
        return running.problem();
    }
    if (std::optional<Problem> problem =
            check_remount_options(option_text, running.value(), *entry)) {
        return problem;
    }
    bool read_only = options.says_ro_or_rw ? options.file_system.read_only
                                           : has_mount_option(entry->options, "ro");
    // Towards read-only the kernel goes first: it writes back what it has and stops writers. The
    // other way round the file system has to be ready when writers come.
    if (!read_only) {
        if (std::optional<Problem> problem = tell_file_system(resolved, false)) {
            return problem;
        }
    }
    if (mount(entry->source.c_str(), resolved, nullptr,
              MS_REMOUNT | kernel_flags(options, *entry, read_only), nullptr) != 0) {
        return Problem{"cannot remount " + mount_point + ": " + system_error_text(errno)};
    }
    return read_only ? tell_file_system(resolved, true) : std::nullopt;
}

}  // namespace tiffin::fuse
