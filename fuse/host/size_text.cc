// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/size_text.h"

#include <charconv>

namespace tiffin::fuse {
namespace {

// The power of two that a suffix stands for, or -1.
int suffix_shift(std::string_view suffix) {
    if (suffix.empty()) {
        return 0;
    }
    if (suffix.size() != 1 && suffix.substr(1) != "iB") {
        return -1;
    }
    switch (suffix[0]) {
        case 'k':
        case 'K':
            return 10;
        case 'm':
        case 'M':
            return 20;
        case 'g':
        case 'G':
            return 30;
        case 't':
        case 'T':
            return 40;
        default:
            return -1;
    }
}

}  // namespace

OrProblem<uint64_t> parse_size(std::string_view text) {
    const std::string quoted = "\"" + std::string(text) + "\"";
    uint64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc::invalid_argument) {
        return Problem{quoted +
                       " is not a size: write a number of bytes, or a number with K, M, G "
                       "or T, such as 512M"};
    }
    const int shift = suffix_shift(std::string_view(rest, static_cast<size_t>(end - rest)));
    if (shift < 0) {
        return Problem{quoted +
                       " is not a size: after the number only K, M, G or T may follow, "
                       "such as in 512M"};
    }
    if (error == std::errc::result_out_of_range || number > (UINT64_MAX >> shift)) {
        return Problem{"the size " + quoted + " is too large", Error::erange};
    }
    return number << shift;
}

std::string format_size(uint64_t size_bytes) {
    static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    uint64_t whole = size_bytes;
    uint64_t remainder = 0;  // of 1024
    while (whole >= 1024) {
        remainder = whole % 1024;
        whole /= 1024;
        ++unit;
    }
    std::string text = std::to_string(whole);
    const uint64_t tenths = remainder * 10 / 1024;
    if (tenths != 0) {
        text += "." + std::to_string(tenths);
    }
    return text + " " + kUnits[unit];
}

}  // namespace tiffin::fuse
