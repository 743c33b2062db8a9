// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Text of lines "key: value", in which mounts, file systems and devices say how they are: collecting it, and reading it.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "fs/vfs/types.h"

namespace tiffin::fuse {

// For vfs::FileSystem::describe().
class TextSink final : public vfs::ByteSink {
  public:
    bool append(const void* data, size_t size_bytes) override {
        text.append(static_cast<const char*>(data), size_bytes);
        return true;
    }

    std::string text;
};

// Calls function(key, value), both std::string_view, for each line in turn; others than "key: value" are skipped. A key may
// have colons, but no space behind them.
template <typename Function>
void for_each_status_line(std::string_view text, Function function) {
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        const size_t colon = line.find(": ");
        if (colon != std::string_view::npos) {
            function(line.substr(0, colon), line.substr(colon + 2));
        }
    }
}

// A value that is a whole number, and nothing else.
inline std::optional<uint64_t> whole_number(std::string_view value) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    return error == std::errc() && end == value.data() + value.size() ? std::optional(number)
                                                                      : std::nullopt;
}

}  // namespace tiffin::fuse
