// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a mount was started with.
#pragma once

#include <string>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

// The options of -o of what is mounted on `mount_point`, as its user wrote them. Fails when it is another
// program's.
OrProblem<std::string> running_options(const std::string& mount_point);

}  // namespace tiffin::fuse
