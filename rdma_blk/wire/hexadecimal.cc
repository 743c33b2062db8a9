// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/wire/hexadecimal.h"

namespace tiffin::rdma_blk {
namespace {

int digit_value(char digit) {
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

}  // namespace

std::string to_hexadecimal(ByteSpan bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const unsigned char byte : bytes) {
        text += kDigits[byte >> 4];
        text += kDigits[byte & 15];
    }
    return text;
}

bool from_hexadecimal(std::string_view text, MutableByteSpan bytes) {
    if (text.size() != bytes.size() * 2) {
        return false;
    }
    for (size_t index = 0; index < bytes.size(); index++) {
        const int high = digit_value(text[index * 2]);
        const int low = digit_value(text[index * 2 + 1]);
        if (high < 0 || low < 0) {
            return false;
        }
        bytes[index] = static_cast<unsigned char>(high * 16 + low);
    }
    return true;
}

}  // namespace tiffin::rdma_blk
