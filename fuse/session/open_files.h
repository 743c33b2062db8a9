// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Opening, for the operations that do it.
#pragma once

#include "fs/vfs/file_system.h"
#include "fuse/session/libfuse.h"
#include "fuse/session/session.h"

namespace tiffin::fuse {

// Opens `node` in the file system, if it wants to know, and sets the handle and the caching flags of
// `file` (whose flags are those of open(2)). Returns whether the file system has a handle to release.
Result<bool> open_file(Session& session, vfs::NodeId node, fuse_file_info& file);

}  // namespace tiffin::fuse
