// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/base/text.h"

namespace tiffin {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

}  // namespace

void TextWriter::put(char character) {
    if (size_ + 1 < capacity_) {
        text_[size_++] = character;
        text_[size_] = '\0';
        return;
    }
    if (!truncated_) {
        truncated_ = true;
        for (size_t i = size_ - 3; i < size_; ++i) {
            text_[i] = '.';
        }
    }
}

void TextWriter::append(const char* text) {
    for (const char* next = text != nullptr ? text : "(null)"; *next != '\0' && !truncated_;
         ++next) {
        put(*next);
    }
}

void TextWriter::append(vfs::Name name) {
    for (size_t i = 0; i < name.size_bytes && !truncated_; ++i) {
        const auto byte = static_cast<unsigned char>(name.data[i]);
        if (byte >= 0x20 && byte != 0x7f && byte != '\\') {
            put(name.data[i]);
            continue;
        }
        put('\\');
        put('x');
        put(kDigits[byte >> 4]);
        put(kDigits[byte & 15]);
    }
}

void TextWriter::append_unsigned(uint64_t number) {
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = kDigits[number % 10];
        number /= 10;
    } while (number != 0);
    while (count > 0) {
        put(digits[--count]);
    }
}

void TextWriter::append_signed(int64_t number) {
    if (number < 0) {
        put('-');
        // Negated as unsigned: the smallest int64_t has no positive counterpart.
        append_unsigned(uint64_t{0} - static_cast<uint64_t>(number));
        return;
    }
    append_unsigned(static_cast<uint64_t>(number));
}

void TextWriter::append_hex(uint64_t number) {
    append("0x");
    int shift = 60;
    while (shift > 0 && (number >> shift) == 0) {
        shift -= 4;
    }
    for (; shift >= 0; shift -= 4) {
        put(kDigits[(number >> shift) & 15]);
    }
}

}  // namespace tiffin
