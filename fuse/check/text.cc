// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/text.h"

#include <fmt/format.h>
#include <uuid/uuid.h>

#include <ctime>

#include "fs/vfs/types.h"

namespace tiffin::check {

using tiffinfs::Kind;

std::string kind_text(Kind kind) {
    switch (kind) {
        case Kind::inode:
            return "inode";
        case Kind::entry:
            return "entry";
        case Kind::extent:
            return "extent";
        case Kind::xattr:
            return "xattr";
        case Kind::inline_data:
            return "inline-data";
        case Kind::symlink:
            return "symlink";
        case Kind::orphan:
            return "orphan";
        case Kind::intent:
            return "intent";
    }
    return fmt::format("kind {}", static_cast<unsigned>(kind));
}

std::string key_text(tiffinfs::Key key) {
    if (key == tiffinfs::kMinimumKey) {
        return "the first key";
    }
    if (key == tiffinfs::kMaximumKey) {
        return "the last key";
    }
    return fmt::format("({}, {}, {:#x})", key.node, kind_text(key.kind()), key.offset());
}

std::string escape_name(std::string_view name) {
    std::string text;
    for (const char character : name) {
        const auto byte = static_cast<unsigned char>(character);
        if (byte < 0x20 || byte >= 0x7f || byte == '"' || byte == '\\') {
            text += fmt::format("\\x{:02x}", byte);
        } else {
            text += character;
        }
    }
    return text;
}

std::string name_text(std::string_view name) { return '"' + escape_name(name) + '"'; }

std::string hex_text(const void* bytes, size_t size_bytes) {
    std::string text;
    for (size_t i = 0; i < size_bytes; ++i) {
        text += fmt::format("{:02x}", static_cast<const unsigned char*>(bytes)[i]);
    }
    return text;
}

std::string uuid_text(const uint8_t (&uuid)[16]) {
    char text[UUID_STR_LEN];
    uuid_unparse_lower(uuid, text);
    return text;
}

std::string time_text(const tiffinfs::DiskTime& time) {
    // Years 0 to 9999, so that the text has a fixed form.
    constexpr int64_t kFirst = -62167219200;
    constexpr int64_t kLast = 253402300799;
    if (time.seconds < kFirst || time.seconds > kLast || time.nanoseconds > 999999999) {
        return fmt::format("{} s + {} ns", time.seconds, time.nanoseconds);
    }
    const auto seconds = static_cast<time_t>(time.seconds);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", parts.tm_year + 1900,
                       parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                       time.nanoseconds);
}

std::string time_text(int64_t nanoseconds_since_1970) {
    constexpr int64_t kPerSecond = 1000000000;
    int64_t seconds = nanoseconds_since_1970 / kPerSecond;
    int64_t rest = nanoseconds_since_1970 % kPerSecond;
    if (rest < 0) {
        rest += kPerSecond;
        --seconds;
    }
    return time_text(tiffinfs::DiskTime{seconds, static_cast<uint32_t>(rest), 0});
}

std::string mode_text(uint32_t mode) {
    static constexpr char kTypes[] = "?pc?d?b?-?l?s???";
    std::string text(1, kTypes[(mode & vfs::mode::type_mask) >> 12]);
    for (int shift = 6; shift >= 0; shift -= 3) {
        text += (mode >> shift & 4) != 0 ? 'r' : '-';
        text += (mode >> shift & 2) != 0 ? 'w' : '-';
        text += (mode >> shift & 1) != 0 ? 'x' : '-';
    }
    const auto mark = [&](uint32_t bit, size_t position, char set, char set_without) {
        if ((mode & bit) != 0) {
            text[position] = text[position] == 'x' ? set : set_without;
        }
    };
    mark(vfs::mode::set_user_id, 3, 's', 'S');
    mark(vfs::mode::set_group_id, 6, 's', 'S');
    mark(vfs::mode::sticky, 9, 't', 'T');
    return text;
}

}  // namespace tiffin::check
