// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the subcommands of tiffin do; main.cc has their arguments. All print to standard output; what went
// wrong comes back. `mount_point` is any directory of a mount, `address` a device that is not mounted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

std::optional<Problem> print_status(const std::string& mount_point);
std::optional<Problem> print_stats(const std::string& mount_point, bool as_json);
std::optional<Problem> scrub(const std::string& mount_point, bool quiet);
// Without a mount point: of the tools alone.
std::optional<Problem> print_version(const std::string& mount_point);
std::optional<Problem> print_info(const std::string& address, bool as_json);
std::optional<Problem> print_dump(const std::string& address, const std::string& structure,
                                  std::optional<uint64_t> number, bool as_json);

}  // namespace tiffin::fuse
