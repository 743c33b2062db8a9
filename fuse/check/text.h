// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Keys, names and times as people read them. Nothing here trusts what it prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/span.h"

namespace tiffin::check {

// "inode", "entry"...; "kind 13" for what does not exist.
std::string kind_text(tiffinfs::Kind kind);
// "(17, extent, 4096)"
std::string key_text(tiffinfs::Key key);
// A name with all bytes that are not printable, quotes and backslashes as \xNN; and in double quotes.
std::string escape_name(std::string_view name);
std::string name_text(std::string_view name);
std::string hex_text(const void* bytes, size_t size_bytes);
// RFC 9562: 8-4-4-4-12 hexadecimal digits.
std::string uuid_text(const uint8_t (&uuid)[16]);
// "2024-05-01T12:00:00.123456789Z"; plain numbers when the year is absurd.
std::string time_text(const tiffinfs::DiskTime& time);
std::string time_text(int64_t nanoseconds_since_1970);
// "drwxr-xr-x"
std::string mode_text(uint32_t mode);

inline std::string_view as_text(ByteSpan bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace tiffin::check
