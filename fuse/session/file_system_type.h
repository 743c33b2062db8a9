// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How a host learns of a file system that it can mount. The session itself knows none: programs
// hand in a list.
#pragma once

#include <cstdint>
#include <optional>

#include "fs/vfs/file_system.h"

namespace tiffin::fuse {

enum class AccessTimeUpdates : uint8_t { relative, always, never };
enum class ErrorsPolicy : uint8_t { remount_read_only, continue_running };

// What -o says to file systems. Without a value a file system takes its own default.
struct FileSystemOptions {
    bool read_only = false;
    bool no_recovery = false;  // with read_only: what a crash has left is shown as it is
    bool synchronous = false;  // every change is durable when it returns
    AccessTimeUpdates access_times = AccessTimeUpdates::relative;
    ErrorsPolicy errors = ErrorsPolicy::remount_read_only;
    std::optional<uint64_t> cache_bytes;
    std::optional<uint64_t> commit_interval_ms;
};

struct FileSystemType {
    // For --fs.
    const char* name;
    // Whether it lives on a block device; if not, mount() gets nullptr.
    bool needs_device;
    // Makes an empty file system on a new memory device; nullptr when there is nothing to make.
    Result<void> (*make)(vfs::BlockDevice& device);
    // The device outlives the file system.
    Result<vfs::FileSystem*> (*mount)(vfs::BlockDevice* device, const FileSystemOptions& options);
    // After unmount().
    void (*destroy)(vfs::FileSystem* file_system);
};

}  // namespace tiffin::fuse
