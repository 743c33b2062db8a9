// SPDX-License-Identifier: MIT OR GPL-2.0-only
#pragma once

#include <chrono>

namespace tiffin::fuse {

// A mount has ended when umount returns, and its process a little later: after it has written what was left on a slow
// disk, or let go of its port, on a busy machine. So long the next mount waits for the device or the port.
inline constexpr auto kReleaseWait = std::chrono::seconds(30);

}  // namespace tiffin::fuse
