// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Serving one mount, from opening the device to closing it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fuse/host/problem.h"
#include "fuse/session/file_system_type.h"
#include "fuse/session/options.h"

namespace tiffin::fuse {

// A mount that has been checked and can be made.
struct MountTask {
    std::string program;  // for messages
    const FileSystemType* type = nullptr;
    std::string device;       // an address with absolute paths
    std::string mount_point;  // absolute
    std::string source;       // what /proc/mounts shows
    MountOptions options;
    std::vector<std::string> kernel_options;
    std::string option_text;  // as the user wrote it
    bool foreground = false;
};

// Mounts and serves. In the background it returns when the mount answers; in the foreground when it
// has ended. Waits a while for another process that is about to close the device. Call before any
// thread is started.
std::optional<Problem> serve_mount(const MountTask& task);

}  // namespace tiffin::fuse
