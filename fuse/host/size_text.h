// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Sizes as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fuse/host/problem.h"

namespace tiffin::fuse {

// As rdma_blk/wire/byte_size.h says.
OrProblem<uint64_t> parse_size(std::string_view text);

// "0 B", "512 B", "1.5 KiB", "64 GiB": at most one decimal, rounded down.
std::string format_size(uint64_t size_bytes);

}  // namespace tiffin::fuse
