// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/common/kernel_mount.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fstream>

#include "fuse/session/mount_point.h"
#include "fuse/session/options.h"

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
    std::string options;
    for (const std::string& text : option_texts) {
        for (const std::string& word : split_mount_options(text)) {
            if (word != "kernel") {
                options += (options.empty() ? "" : ",") + word;
            }
        }
    }
    return options.empty() ? "defaults" : options;
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
    char resolved[PATH_MAX];
    if (realpath(mount_point.c_str(), resolved) == nullptr) {
        return false;
    }
    const std::optional<MountEntry> entry = find_mount(resolved);
    return entry.has_value() && entry->type == kType;
}

std::optional<Problem> mount_in_kernel(const std::string& path, const std::string& mount_point,
                                       const std::vector<std::string>& option_texts) {
    const OrProblem<bool> mounted = run_mount(
        {"mount", "-i", "-t", kType, "-o", options_for_mount(option_texts), path, mount_point});
    if (!mounted.ok()) {
        return mounted.problem();
    }
    if (mounted.value()) {
        return std::nullopt;
    }
    std::string text = "the kernel has not mounted " + path + ": ";
    text += kernel_has_module()
                ? "its log (dmesg) says more. The module may be older than the volume's format"
                : "it has no module for tiffin, and found none to load: install the package "
                  "tiffin-dkms, or build it (docs/kernel.md)";
    return Problem{text + ". Without the option kernel, it is mounted through FUSE",
                   Error::eopnotsupp};
}

std::optional<Problem> remount_in_kernel(const std::string& mount_point,
                                         const std::vector<std::string>& option_texts) {
    const OrProblem<bool> mounted =
        run_mount({"mount", "-i", "-o", options_for_mount(option_texts), mount_point});
    if (!mounted.ok()) {
        return mounted.problem();
    }
    if (!mounted.value()) {
        return Problem{"the kernel has not changed " + mount_point};
    }
    return std::nullopt;
}

}  // namespace tiffin::fuse
