// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a running mount says of itself.
#pragma once

#include <string>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

// The value of a line "key: value" of the status of what is mounted on `path`, empty when there is no such
// line. Fails when it is another program's.
OrProblem<std::string> running_status(const std::string& path, const std::string& key);

// The options of -o, as its user wrote them.
OrProblem<std::string> running_options(const std::string& path);

}  // namespace tiffin::fuse
