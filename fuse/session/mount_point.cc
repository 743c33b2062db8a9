// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/mount_point.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "fuse/host/mount_table.h"
#include "fuse/session/options.h"
#include "fuse/session/tuning.h"

namespace tiffin::fuse {
namespace {

// Also waits for the child to end.
int exit_status_of(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return errno;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

int run_fusermount(const std::string& mount_point, UnmountMode mode) {
    std::string program = "fusermount3";
    std::string unmount_flag = mode == UnmountMode::when_idle ? "-uq" : "-uzq";
    std::string end_of_options = "--";
    std::string path = mount_point;
    char* arguments[] = {program.data(), unmount_flag.data(), end_of_options.data(), path.data(),
                         nullptr};
    pid_t child = 0;
    int error = posix_spawnp(&child, program.c_str(), nullptr, nullptr, arguments, environ);
    if (error != 0) {
        return error;
    }
    return exit_status_of(child) == 0 ? 0 : EBUSY;
}

// A mount of type fuse.tiffin whose process has died, held while it is looked at and taken away: a mount of another program
// may come between.
class DeadMount {
  public:
    explicit DeadMount(const std::string& path)
        : root_(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
        struct statfs ignored {};
        char resolved[PATH_MAX];
        if (root_ < 0 || fstatfs(root_, &ignored) == 0 || errno != ENOTCONN ||
            realpath(held().c_str(), resolved) == nullptr) {
            return;
        }
        const std::optional<MountEntry> entry = find_mount(resolved);
        if (entry.has_value() && is_of_tiffin(*entry)) {
            mount_point_ = resolved;
        }
    }
    ~DeadMount() {
        if (root_ >= 0) {
            close(root_);
        }
    }
    DeadMount(const DeadMount&) = delete;
    DeadMount& operator=(const DeadMount&) = delete;

    bool is_there() const { return !mount_point_.empty(); }
    const std::string& mount_point() const { return mount_point_; }
    // Returns 0 or an errno value.
    int detach() const {
        if (geteuid() != 0) {
            return unmount(mount_point_, UnmountMode::detach);
        }
        return umount2(held().c_str(), MNT_DETACH) == 0 ? 0 : errno;
    }

    static bool is_of_tiffin(const MountEntry& entry) {
        return entry.type == std::string("fuse.") + kSubtype;
    }

  private:
    std::string held() const { return "/proc/self/fd/" + std::to_string(root_); }

    const int root_;
    std::string mount_point_;  // empty: there is none
};

Problem in_use(const std::string& path, const MountEntry& entry) {
    return {"the mount point " + path + " is in use: " + entry.source +
                " is mounted there; unmount it, or choose another directory",
            Error::ebusy};
}

}  // namespace

std::optional<MountEntry> find_mount(const std::string& mount_point) {
    std::optional<MountEntry> found;
    for (const MountEntry& entry : read_mounts()) {
        if (entry.mount_point == mount_point) {
            found = entry;
        }
    }
    return found;
}

OrProblem<std::string> check_mount_point(const std::string& path) {
    if (const DeadMount dead(path); dead.is_there()) {
        // What lies below it is another dead mount, or will be in use.
        for (const MountEntry& entry : read_mounts()) {
            if (entry.mount_point == dead.mount_point() && entry.type != "autofs" &&
                !DeadMount::is_of_tiffin(entry)) {
                return in_use(path, entry);
            }
        }
        return dead.mount_point();
    }
    struct stat status {};
    struct statfs ignored {};
    // The kernel may know the attributes of what has died; statfs always asks.
    if (stat(path.c_str(), &status) != 0 || statfs(path.c_str(), &ignored) != 0) {
        int error = errno;
        if (error == ENOENT) {
            return Problem{"the mount point " + path + " does not exist: create it with mkdir",
                           Error::enoent};
        }
        if (error == ENOTCONN) {
            const std::string place = mount_point_above(path);
            return Problem{"the file system that was mounted on " + place +
                               " has died: unmount it first (umount " + place + ")",
                           Error::ebusy};
        }
        return Problem{"cannot use the mount point " + path + ": " + system_error_text(error),
                       Error::eacces};
    }
    if (!S_ISDIR(status.st_mode)) {
        return Problem{"the mount point " + path + " is not a directory", Error::enotdir};
    }
    char resolved[PATH_MAX];
    if (realpath(path.c_str(), resolved) == nullptr) {
        return Problem{"cannot use the mount point " + path + ": " + system_error_text(errno),
                       Error::eacces};
    }
    std::optional<MountEntry> entry = find_mount(resolved);
    // An automount point waits there for this very mount.
    if (entry.has_value() && entry->type != "autofs") {
        return in_use(path, *entry);
    }
    return std::string(resolved);
}

std::optional<Problem> take_dead_mounts_away(const std::string& path) {
    bool has_taken = false;
    while (true) {
        const DeadMount dead(path);
        if (!dead.is_there()) {
            break;
        }
        if (const int error = dead.detach(); error != 0) {
            return Problem{"the file system that was mounted on " + path +
                               " has died, and cannot be unmounted: " + system_error_text(error),
                           Error::ebusy};
        }
        has_taken = true;
    }
    if (has_taken) {
        if (OrProblem<std::string> below = check_mount_point(path); !below.ok()) {
            return below.problem();
        }
    }
    return std::nullopt;
}

bool is_inside(const std::string& path, const std::string& mount_point) {
    char resolved[PATH_MAX];
    std::string name = path;
    // A path that does not exist is where its directory is.
    if (realpath(name.c_str(), resolved) == nullptr) {
        size_t slash = name.find_last_of('/');
        name = slash == std::string::npos ? "." : name.substr(0, slash + 1);
        if (realpath(name.c_str(), resolved) == nullptr) {
            return false;
        }
    }
    std::string directory = mount_point;
    while (!directory.empty() && directory.back() == '/') {
        directory.pop_back();
    }
    return (std::string(resolved) + "/").starts_with(directory + "/");
}

int call_apart(const std::function<int()>& call) {
    // Shares the memory, which may be large: a copy of its tables would take long. This thread goes on
    // when the child has ended.
    const pid_t child = vfork();
    if (child == 0) {
        if (close_range(0, UINT_MAX, 0) != 0) {
            // Before Linux 5.9. Numbers are given from below, and this process has far fewer.
            for (int file = 0; file < 65536; file++) {
                close(file);
            }
        }
        _exit(call());
    }
    return child < 0 ? errno : exit_status_of(child);
}

int unmount(const std::string& mount_point, UnmountMode mode) {
    if (geteuid() != 0) {
        return run_fusermount(mount_point, mode);
    }
    int flags = UMOUNT_NOFOLLOW;
    flags |= mode != UnmountMode::when_idle ? MNT_DETACH : 0;
    flags |= mode == UnmountMode::abort ? MNT_FORCE : 0;
    return call_apart([&] { return umount2(mount_point.c_str(), flags) == 0 ? 0 : errno; });
}

bool write_setting(const std::string& path, uint64_t value) {
    int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    std::string text = std::to_string(value);
    const ssize_t written = write(file, text.data(), text.size());
    close(file);
    return written == static_cast<ssize_t>(text.size());
}

void tune_mount(const std::string& mount_point) {
    std::optional<MountEntry> entry = find_mount(mount_point);
    if (!entry.has_value() || !is_fuse(*entry)) {
        return;
    }
    std::string folder = "/sys/class/bdi/" + entry->device_number + "/";
    // Only improvements: nothing depends on them.
    (void)write_setting(folder + "read_ahead_kb", kReadAheadKib);
    (void)write_setting(folder + "max_ratio", kMaxDirtyPercent);
}

}  // namespace tiffin::fuse
