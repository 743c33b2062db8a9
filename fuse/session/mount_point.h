// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Mount points, from outside: what is mounted where, whether one can be used, and taking mounts away.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "fuse/host/mount_table.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

// The topmost mount at `mount_point` (absolute, without symbolic links).
std::optional<MountEntry> find_mount(const std::string& mount_point);

// Checks that `path` can become a mount point, and returns it as an absolute path without symbolic
// links. Refuses what is missing, no directory, already a mount point (other than of an
// automounter), or left behind by a process that died, but for mounts that take_dead_mounts_away() takes away.
OrProblem<std::string> check_mount_point(const std::string& path);

// Detaches from `path` the mounts of type fuse.tiffin whose process has died: the kernel answers ENOTCONN for them,
// for good. Others stay, also dead ones. From then on programs see the directory below: so call it right before another
// mount is made there. Returns why one cannot be taken away, or why what lies below is no mount point.
std::optional<Problem> take_dead_mounts_away(const std::string& path);

// Whether `path` (that may not exist) lies in the directory `mount_point`.
bool is_inside(const std::string& path, const std::string& mount_point);

enum class UnmountMode : uint8_t {
    when_idle,  // fails when it is in use; writes cached data back
    detach,     // takes it out of the tree at once; it ends when it is not in use any more
    abort,      // the same, and requests under way fail (for root; for others it only detaches)
};

// Calls `call` in a process of its own without any descriptors, and waits for it: for what asks or waits for a file
// system that this process may serve itself. A thread that waits for an answer of its own process could not be
// killed, and would keep the descriptors that the answer is awaited on. `call` shares this process' memory: it makes
// system calls, allocates nothing, and returns 0 or an errno value. Returns that, or why there is no process.
int call_apart(const std::function<int()>& call);

// Unmounts what is topmost there, through fusermount3 when this process is not root, and never in this process.
// Returns 0 or an errno value.
int unmount(const std::string& mount_point, UnmountMode mode);

// Writes a number to a file in /sys. False where that is not permitted, or the kernel has no such file.
bool write_setting(const std::string& path, uint64_t value);

// Sets how far the kernel reads ahead and how much dirty data it keeps for the mount. Does nothing
// where that is not permitted.
void tune_mount(const std::string& mount_point);

}  // namespace tiffin::fuse
