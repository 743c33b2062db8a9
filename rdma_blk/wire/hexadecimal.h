// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Bytes as text and back: keys and UUIDs in files and answers.
#pragma once

#include <string>
#include <string_view>

#include "fs/vfs/span.h"

namespace tiffin::rdma_blk {

std::string to_hexadecimal(ByteSpan bytes);
// False unless `text` has exactly two digits for each byte.
bool from_hexadecimal(std::string_view text, MutableByteSpan bytes);

}  // namespace tiffin::rdma_blk
