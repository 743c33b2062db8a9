// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a device holds already, so that it is not lost by a slip of the fingers.
#pragma once

#include <optional>
#include <string>

#include "fs/vfs/block_device.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

// What is on `device`, which was opened from the file at `path` (empty: it is no file): tiffinfs, or a file
// system, a part of a volume or a partition table that libblkid knows, in words that go on "it holds".
// nullopt when nothing is recognised; for a MemoryDevice nothing is looked for but tiffinfs.
OrProblem<std::optional<std::string>> find_known_contents(vfs::BlockDevice& device,
                                                          const std::string& path);

// Erases the signatures of other systems that a new file system has left at `path`, a file or disk that the caller has open:
// libblkid would take it for theirs.
std::optional<Problem> erase_other_signatures(const std::string& path);

}  // namespace tiffin::fuse
