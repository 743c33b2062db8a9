// SPDX-License-Identifier: MIT OR GPL-2.0-only
// From the contract's types to those of libfuse and the system.
#pragma once

#include <sys/stat.h>

#include "fs/vfs/types.h"
#include "fuse/session/libfuse.h"

namespace tiffin::fuse {

// How long the kernel may keep attributes and the name that they are an answer to.
double cache_seconds(const vfs::Attributes& attributes);
struct stat to_stat(const vfs::Attributes& attributes);
fuse_entry_param to_entry(const vfs::Attributes& attributes);
#if TIFFIN_FUSE_HAS_STATX
struct statx to_statx(const vfs::Attributes& attributes);
#endif

inline vfs::Timestamp to_timestamp(const timespec& time) {
    return {time.tv_sec, static_cast<uint32_t>(time.tv_nsec)};
}

// A name as libfuse hands it over.
vfs::Name to_name(const char* text);

}  // namespace tiffin::fuse
