// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The version that every program of the user-space host reports; the same as in CMakeLists.txt.
#pragma once

namespace tiffin::fuse {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace tiffin::fuse
