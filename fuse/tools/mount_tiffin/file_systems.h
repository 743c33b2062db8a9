// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The one place where the host learns which file systems there are.
#pragma once

#include "fs/vfs/span.h"
#include "fuse/session/file_system_type.h"

namespace tiffin::fuse {

// The default first.
Span<const FileSystemType> file_systems();

}  // namespace tiffin::fuse
