// SPDX-License-Identifier: MIT OR GPL-2.0-only
// mount -o remount: changing a mount that runs.
#pragma once

#include <optional>
#include <string>

#include "fuse/host/problem.h"
#include "fuse/session/options.h"

namespace tiffin::fuse {

// Changes the mount at `mount_point` as `options`, which were written as `option_text`, say. Refuses what
// cannot be changed, and mounts that are not Tiffin's, before anything is changed.
std::optional<Problem> remount(const std::string& mount_point, const MountOptions& options,
                               const std::string& option_text);

}  // namespace tiffin::fuse
