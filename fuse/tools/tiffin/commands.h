// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the subcommands of tiffin do; main.cc has their arguments. All print to standard output; what went
// wrong comes back. `mount_point` is any directory of a mount, `address` a device that is not mounted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

std::optional<Problem> print_status(const std::string& mount_point, bool as_json);
std::optional<Problem> print_stats(const std::string& mount_point, bool as_json);
// What was served in each interval, until the program is ended, or `count` times if that is not 0.
std::optional<Problem> watch_stats(const std::string& mount_point, double interval_s,
                                   uint64_t count, bool as_json);
// The same on the terminal, drawn over itself, until Ctrl-C or q. Starts a process; call before any thread is started.
std::optional<Problem> run_top(const std::string& mount_point, double interval_s);
std::optional<Problem> grow(const std::string& mount_point);
// Adds a link (HOST or HOST:PORT) to the server of a mounted volume, or removes it.
std::optional<Problem> change_link(const std::string& mount_point, bool adds,
                                   const std::string& link);
std::optional<Problem> scrub(const std::string& mount_point, bool quiet);
// Without a mount point: of the tools alone.
std::optional<Problem> print_version(const std::string& mount_point);
std::optional<Problem> print_info(const std::string& address, bool as_json);
// Of a disk, as properties for a udev rule; also while it is mounted.
std::optional<Problem> print_udev_properties(const std::string& path);
std::optional<Problem> print_dump(const std::string& address, const std::string& structure,
                                  std::optional<uint64_t> number, bool as_json);

// tiffin volume: asks the tiffind behind `socket`.
struct VolumeArguments {
    std::string socket = "/run/tiffind/admin.sock";
    std::string name;
    std::string size;
    std::string backing;          // a file or disk; empty: none
    std::string key_file;         // create, info: where the key goes; empty: create prints it
    std::string reader_key_file;  // info: where the reader key goes
    bool json = false;
    bool force = false;  // create: with what the backing has; delete: also when it is in use
};

std::optional<Problem> volume_create(const VolumeArguments& arguments);
std::optional<Problem> volume_list(const VolumeArguments& arguments);
std::optional<Problem> volume_resize(const VolumeArguments& arguments);
std::optional<Problem> volume_delete(const VolumeArguments& arguments);
std::optional<Problem> volume_info(const VolumeArguments& arguments);

}  // namespace tiffin::fuse
