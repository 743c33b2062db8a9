// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The mount option kernel: the same file system by the kernel's module (docs/kernel.md), and not through FUSE. mount(8) does it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fuse/host/device_address.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

// Whether the module has what is mounted on `mount_point`.
bool is_kernel_mount(const std::string& mount_point);

// For root: mounts a block device or image that no other process has open, with the arguments of -o as they were given. The
// problem says who has it, or what the kernel lacks, and that FUSE remains.
std::optional<Problem> mount_in_kernel(const DeviceAddress& address, const std::string& mount_point,
                                       bool read_only,
                                       const std::vector<std::string>& option_texts);
// Changes such a mount: -o remount.
std::optional<Problem> remount_in_kernel(const std::string& mount_point,
                                         const std::vector<std::string>& option_texts);

}  // namespace tiffin::fuse
