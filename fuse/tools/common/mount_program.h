// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The whole of mount.tiffin, but for the list of file systems: a program that knows others (a test)
// hands in another list.
#pragma once

#include "fs/vfs/span.h"
#include "fuse/session/file_system_type.h"

namespace tiffin::fuse {

// Mounts as the command line says; returns the exit status of mount(8): 0, 1 (usage), 32 (failure).
// The first type is the default of --fs. Call before any thread is started.
int mount_program(int argc, char** argv, Span<const FileSystemType> types);

}  // namespace tiffin::fuse
