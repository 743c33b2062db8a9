// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What may be asked of a mount that runs already.
#pragma once

#include <optional>
#include <string>

#include "fuse/host/mount_table.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

// Refuses what `asked` (of -o) wants to be otherwise than it is, unless a remount can change it: ro, rw,
// suid, dev, exec, symfollow. What a mount has may be named again, for mount(8) adds to a remount all
// that the fstab or, without a line there, the kernel says of the mount: so every option is fine that the
// mount was started with (`running`) or that the kernel shows.
std::optional<Problem> check_remount_options(const std::string& asked, const std::string& running,
                                             const MountEntry& shown);

}  // namespace tiffin::fuse
