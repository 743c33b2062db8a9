// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The options of -o: which are the kernel's, which the file system's, which the host's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuse/host/mount_table.h"
#include "fuse/host/problem.h"
#include "fuse/session/file_system_type.h"
#include "fuse/session/tuning.h"

namespace tiffin::fuse {

// The type of mounts is fuse.tiffin unless they ask for another one: by it mount(8) finds their helper.
inline constexpr const char* kSubtype = "tiffin";

struct MountOptions {
    FileSystemOptions file_system;

    // For the kernel's mount. Root mounts like any other file system: suid and dev are allowed
    // unless taken away, and all users may enter, since the kernel checks permissions.
    std::optional<bool> allow_other;
    std::optional<bool> suid;
    std::optional<bool> dev;
    std::optional<bool> exec;
    std::optional<bool> follow_symlinks;
    std::vector<std::string> security_contexts;  // "context=..." and the like, for SELinux

    // For the host.
    bool directory_sync = false;
    bool strict_flags = false;
    bool write_through = false;
    bool cache_directories = false;
    bool io_uring = false;
    bool in_kernel = false;  // mounted by the kernel's module, and not through FUSE
    bool remount = false;
    bool force = false;          // take over a remote volume from its current writer
    bool says_ro_or_rw = false;  // for a remount: else that stays as it is
    uint32_t max_threads = kDefaultMaxThreads;
    std::optional<uint32_t> busy_poll_us;    // absent: default_busy_poll_us()
    std::optional<uint32_t> cpu_latency_us;  // absent: default_processor_latency_us()
    std::string source;                      // fsname=: what /proc/mounts shows; empty: the device
    std::string subtype = kSubtype;          // subtype=: the mount's type is fuse.NAME; empty: fuse
    std::string log_path;                    // log=: empty: the system's log
    std::string metrics;                     // metrics=: ADDRESS:PORT; empty: none are served
};

enum class UnknownOptions : uint8_t { refuse, skip };

// Adds the options of one -o argument: words separated by commas; a backslash makes the next
// character part of the word. Of contradicting options the last one counts. An option that is known
// but has a wrong value is always refused.
std::optional<Problem> add_mount_options(std::string_view text, MountOptions& options,
                                         UnknownOptions unknown = UnknownOptions::refuse);

// The words of one -o argument, and one of them added as add_mount_options() does. A value in quotes, as mount(8) wants it
// for security contexts, may have commas; the quotes are left out.
std::vector<std::string> split_mount_options(std::string_view text);
// A word as mount(8) and the kernel take it: a value with commas in quotes.
std::string quoted_mount_option(const std::string& word);
std::optional<Problem> add_mount_option(const std::string& word, MountOptions& options,
                                        UnknownOptions unknown = UnknownOptions::refuse);
// Whether `words`, separated by commas as the kernel shows them, have this one.
bool has_mount_option(const std::string& words, const std::string& word);

// What the kernel's mount is asked for, in libfuse's words. Fails for what an ordinary user may not
// ask.
OrProblem<std::vector<std::string>> kernel_mount_options(const MountOptions& options, bool is_root);

// Refuses what `asked` (of -o) wants to be otherwise than it is, unless a remount can change it: ro, rw,
// suid, dev, exec, symfollow. What a mount has may be named again, for mount(8) adds to a remount all
// that the fstab or, without a line there, the kernel says of the mount: so every option is fine that the
// mount was started with (`running`) or that the kernel shows.
std::optional<Problem> check_remount_options(const std::string& asked, const std::string& running,
                                             const MountEntry& shown);

// One line for each option, for --help.
std::string mount_options_help();

}  // namespace tiffin::fuse
