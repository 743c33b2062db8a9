// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Texts of clients end up in logs and on terminals.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>

namespace tiffin::rdma_blk {

// What stands at `text`, of at most `size_bytes`, up to a zero; control characters as "?".
inline std::string printable(const char* text, size_t size_bytes) {
    std::string result(text, strnlen(text, size_bytes));
    std::replace_if(
        result.begin(), result.end(), [](char letter) { return letter >= 0 && letter < 32; }, '?');
    return result;
}

}  // namespace tiffin::rdma_blk
