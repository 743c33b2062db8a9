// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A solution of the exercise in docs/tutorial.md: fs/hello with files that come and go.
#pragma once

#include "fs/vfs/file_system.h"

namespace tiffin::shelf {

// A file system of its own, without a device. Errors: enomem. The caller owns it: unmount(), then
// destroy().
Result<vfs::FileSystem*> create();
void destroy(vfs::FileSystem* file_system);

}  // namespace tiffin::shelf
