// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/kernel_mount.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <utility>

#include "fuse/host/device_file.h"
#include "fuse/session/mount_point.h"
#include "fuse/session/options.h"
#include "rdma_blk/server/unique_descriptor.h"

namespace tiffin::fuse {
namespace {

constexpr const char* kType = "tiffin";

bool kernel_has_module() {
    std::ifstream types("/proc/filesystems");
    std::string line;
    while (std::getline(types, line)) {
        if (line.substr(line.find('\t') + 1) == kType) {
            return true;
        }
    }
    return false;
}

// What mount(8) is told: all but the word that says who mounts.
std::string options_for_mount(const std::vector<std::string>& option_texts) {
    std::string options = "defaults";
    for (const std::string& text : option_texts) {
        for (const std::string& word : split_mount_options(text)) {
            options += word == "kernel" ? "" : "," + quoted_mount_option(word);
        }
    }
    return options;
}

// Keeps programs of ours away from a disk, as FileDevice does, without its O_EXCL, which is the kernel's.
class DiskLock {
  public:
    // What is no disk, or cannot be opened, is left to mount(8).
    std::optional<Problem> take(const std::string& path, bool shared) {
        struct stat status {};
        if (stat(path.c_str(), &status) != 0 || !S_ISBLK(status.st_mode)) {
            return std::nullopt;
        }
        disk_ = Descriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (!disk_.valid()) {
            return std::nullopt;
        }
        if (lock_device(disk_.get(), shared) == EWOULDBLOCK) {
            return Problem{path +
                               " is in use by another program, or mounted through FUSE: unmount "
                               "or stop that first",
                           Error::ebusy};
        }
        OrProblem<int> file = exclude_others(disk_.get(), path, shared);
        if (!file.ok()) {
            return file.problem();
        }
        file_below_ = Descriptor(file.value());
        return std::nullopt;
    }

  private:
    using Descriptor = rdma_blk::UniqueDescriptor;

    Descriptor disk_;
    Descriptor file_below_;
};

std::optional<MountEntry> entry_at(const std::string& mount_point) {
    char resolved[PATH_MAX];
    return realpath(mount_point.c_str(), resolved) == nullptr ? std::nullopt : find_mount(resolved);
}

std::optional<Problem> refuse_others() {
    if (geteuid() == 0) {
        return std::nullopt;
    }
    return Problem{"only root mounts by the kernel's module, and changes such a mount",
                   Error::eperm};
}

// -i: not by this program again. Its messages are the user's.
OrProblem<bool> run_mount(std::vector<std::string> arguments) {
    std::vector<char*> words;
    words.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) {
        words.push_back(argument.data());
    }
    words.push_back(nullptr);
    pid_t child = 0;
    const int error = posix_spawnp(&child, "mount", nullptr, nullptr, words.data(), environ);
    if (error != 0) {
        return Problem{"cannot run mount: " + system_error_text(error), static_cast<Error>(error)};
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) {
            return Problem{"cannot wait for mount: " + system_error_text(errno)};
        }
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

bool is_kernel_mount(const std::string& mount_point) {
    const std::optional<MountEntry> entry = entry_at(mount_point);
    return entry.has_value() && entry->type == kType;
}

std::optional<Problem> mount_in_kernel(const DeviceAddress& address, const std::string& mount_point,
                                       bool read_only,
                                       const std::vector<std::string>& option_texts) {
    const std::string& path = address.path;
    if (std::optional<Problem> problem = refuse_others()) {
        return problem;
    }
    std::error_code ignored;
    // mount(8) makes a loop device by itself for types only that libblkid knows.
    const bool is_image = std::filesystem::is_regular_file(path, ignored);
    // A disk is refused by the kernel where a process has it for itself, but not where it is read; an image it mounts. Held
    // until the loop device, or the mount, has it.
    std::unique_ptr<vfs::BlockDevice> image;
    DiskLock disk;
    if (!is_image) {
        if (std::optional<Problem> problem = disk.take(path, read_only)) {
            return problem;
        }
    } else {
        auto opened = open_device(address, {.read_only = read_only, .mount_point = mount_point});
        if (!opened.ok()) {
            return opened.problem();
        }
        image = std::move(*opened);
    }
    const std::string options = options_for_mount(option_texts) + (is_image ? ",loop" : "");
    const OrProblem<bool> mounted =
        run_mount({"mount", "-i", "-t", kType, "-o", options, path, mount_point});
    if (!mounted.ok()) {
        return mounted.problem();
    }
    if (mounted.value()) {
        return std::nullopt;
    }
    if (kernel_has_module()) {
        return Problem{
            "the kernel has not mounted " + path +
            "; its log (dmesg) may say more, for example that the module is older than "
            "the volume's format. Without the option kernel, it is mounted through FUSE"};
    }
    return Problem{
        "the kernel has no module for tiffin, and found none to load: install the package "
        "tiffin-dkms, or build it (docs/kernel.md). Without the option kernel, " +
            path + " is mounted through FUSE",
        Error::eopnotsupp};
}

std::optional<Problem> remount_in_kernel(const std::string& mount_point,
                                         const std::vector<std::string>& option_texts) {
    if (std::optional<Problem> problem = refuse_others()) {
        return problem;
    }
    const std::optional<MountEntry> entry = entry_at(mount_point);
    if (!entry.has_value()) {
        return Problem{"nothing is mounted on " + mount_point};
    }
    // With both names, mount(8) takes the options as they are here, and none from the fstab again.
    const OrProblem<bool> changed = run_mount(
        {"mount", "-i", "-o", options_for_mount(option_texts), entry->source, entry->mount_point});
    if (!changed.ok()) {
        return changed.problem();
    }
    if (!changed.value()) {
        return Problem{"the kernel has not changed " + mount_point};
    }
    return std::nullopt;
}

}  // namespace tiffin::fuse
