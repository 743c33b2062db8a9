// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/mkfs_tiffin/uuid.h"

#include <string>

namespace tiffin::fuse {
namespace {

int digit_value(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

OrProblem<Uuid> parse_uuid(std::string_view text) {
    const Problem problem{"\"" + std::string(text) +
                          "\" is not a UUID: write 8-4-4-4-12 hexadecimal digits, not all zero"};
    constexpr size_t kTextLength = 36;
    if (text.size() != kTextLength) {
        return problem;
    }
    Uuid uuid{};
    size_t digits = 0;
    for (size_t i = 0; i < text.size(); ++i) {
        const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
        const int value = digit_value(text[i]);
        if (hyphen ? text[i] != '-' : value < 0) {
            return problem;
        }
        if (!hyphen) {
            uuid[digits / 2] = static_cast<uint8_t>(uuid[digits / 2] << 4 | value);
            ++digits;
        }
    }
    if (uuid == Uuid{}) {
        return problem;
    }
    return uuid;
}

}  // namespace tiffin::fuse
