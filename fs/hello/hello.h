// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The smallest complete file system: one directory with one file that can be read and rewritten.
// docs/tutorial.md walks through it. Try it: mount.tiffin --fs hello mem:8M MOUNTPOINT
#pragma once

#include "fs/vfs/file_system.h"

namespace tiffin::hello {

// A file system of its own, without a device. Errors: enomem. The caller owns it: unmount(), then
// destroy().
Result<vfs::FileSystem*> create();
void destroy(vfs::FileSystem* file_system);

}  // namespace tiffin::hello
