// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Texts of clients end up in logs and on terminals.
#pragma once

#include <algorithm>
#include <cstdint>
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

// A holder of whom nothing is heard any more: with how long, and when the next one is let in, if there is room for it.
inline std::string with_silence(const std::string& holder, uint64_t silent_ms, uint64_t timeout_ms,
                                size_t size_bytes) {
    const uint64_t left_ms = timeout_ms - std::min(silent_ms, timeout_ms);
    const std::string text = holder + " (silent for " + std::to_string(silent_ms / 1000) +
                             " s, expires in " + std::to_string((left_ms + 999) / 1000) + " s)";
    return text.size() < size_bytes ? text : holder;
}

}  // namespace tiffin::rdma_blk
