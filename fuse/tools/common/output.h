// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Standard output, which may lead nowhere: to a full disk, or to a reader that has ended. A tool does what it was asked for
// all the same, and says at the end what could not be written.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace tiffin::fuse {

// As fmt::print(), which throws where the text cannot be written.
template <typename... Arguments>
void print_text(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    const std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
    (void)std::fwrite(text.data(), 1, text.size(), stdout);
}

// Whether everything that was printed has been written.
[[nodiscard]] inline bool flush_output() {
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
}
inline constexpr const char* kOutputLost =
    "standard output cannot be written: not all that was to be said has been";

}  // namespace tiffin::fuse
