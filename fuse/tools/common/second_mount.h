// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A device that is mounted already, mounted at another place too. Kernels show the same file system there;
// so does this, with the server that it has.
#pragma once

#include "fuse/host/problem.h"
#include "fuse/tools/common/mount_server.h"

namespace tiffin::fuse {

// Shows what is mounted of the task's device at the task's mount point as well, and returns true; false
// when nothing is mounted of it, or with other options, or the caller is not root: then the device is in
// use. The file system ends when the last of its mounts does.
OrProblem<bool> mount_again(const MountTask& task);

}  // namespace tiffin::fuse
