// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Sizes as people write them: the one parser of all programs.
#pragma once

#include <cstdint>
#include <string_view>

#include "fs/vfs/result.h"

namespace tiffin::rdma_blk {

// "4096", "64k", "1.5G", "100MiB", "100MB": a number of bytes, or of 1024, 1024^2, 1024^3, 1024^4 bytes with K, M, G, T
// (either case, "iB" may follow), or of powers of 1000 where only "B" follows. Before a suffix up to six decimals may
// stand; the result is rounded down. No signs or spaces. Errors: einval, no such text; erange, too large.
Result<uint64_t> parse_byte_size(std::string_view text);

}  // namespace tiffin::rdma_blk
