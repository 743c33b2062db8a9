// SPDX-License-Identifier: MIT OR GPL-2.0-only
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/types.h"

namespace tiffin {

inline constexpr uint64_t kMiB = 1U << 20;
inline constexpr size_t kBlock = vfs::kBlockBytes;

}  // namespace tiffin
