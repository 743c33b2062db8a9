// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Text for people, built without a heap: log lines and short labels.
//
//     log_line(host::LogLevel::error, "node ", node, ": bad checksum in block ", Hex{block});
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "fs/vfs/host.h"
#include "fs/vfs/types.h"

namespace tiffin {

// Log lines are cut to this many characters.
inline constexpr size_t kLogLineMaximumBytes = 240;

// A number to be written in hexadecimal, as 0x2f.
struct Hex {
    uint64_t value;
};

// Builds text in the caller's memory; what does not fit is cut off and the text then
// ends with "...". Always terminated. Not for use by several threads at once.
class TextWriter {
  public:
    // `capacity_bytes` includes the terminator and is at least 4.
    TextWriter(char* text, size_t capacity_bytes) : text_(text), capacity_(capacity_bytes) {
        text_[0] = '\0';
    }
    TextWriter(const TextWriter&) = delete;
    TextWriter& operator=(const TextWriter&) = delete;

    // Text as it is; nullptr is written as "(null)".
    void append(const char* text);
    // A name from a disk or a user: control characters and backslashes are written as \xNN, so that
    // it cannot forge lines or drive a terminal.
    void append(vfs::Name name);
    void append(Hex number) { append_hex(number.value); }
    void append(char character) { put(character); }
    void append(bool value) { append(value ? "true" : "false"); }
    template <typename T>
    requires std::is_integral_v<T>
    void append(T number) {
        if constexpr (std::is_signed_v<T>) {
            append_signed(number);
        } else {
            append_unsigned(number);
        }
    }

    void append_unsigned(uint64_t number);
    void append_signed(int64_t number);
    // With "0x" in front, without leading zeros.
    void append_hex(uint64_t number);

    const char* c_str() const { return text_; }
    size_t size_bytes() const { return size_; }
    bool truncated() const { return truncated_; }

  private:
    void put(char character);

    char* text_;
    size_t capacity_;
    size_t size_ = 0;
    bool truncated_ = false;
};

// A TextWriter with room for N characters of its own.
template <size_t N>
class TextBuffer : public TextWriter {
  public:
    static_assert(N >= 3, "a truncated text ends with three dots");
    TextBuffer() : TextWriter(storage_, sizeof(storage_)) {}

  private:
    char storage_[N + 1];
};

// Logs the pieces, one after the other, as one line: const char*, vfs::Name, integers, bool, char
// and Hex. Any thread; no memory is allocated.
template <typename... Pieces>
void log_line(host::LogLevel level, Pieces... pieces) {
    TextBuffer<kLogLineMaximumBytes> line;
    (line.append(pieces), ...);
    host::log(level, line.c_str());
}

}  // namespace tiffin
