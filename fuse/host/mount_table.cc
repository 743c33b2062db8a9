// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/mount_table.h"

#include <fstream>
#include <optional>
#include <sstream>

namespace tiffin::fuse {
namespace {

// mountinfo writes blanks and backslashes as octal numbers.
std::string unescape(const std::string& text) {
    std::string result;
    for (size_t i = 0; i < text.size(); ++i) {
        auto digit = [&](size_t at) {
            return at < text.size() && text[at] >= '0' && text[at] <= '7';
        };
        if (text[i] == '\\' && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
            result += static_cast<char>(((text[i + 1] - '0') << 6) | ((text[i + 2] - '0') << 3) |
                                        (text[i + 3] - '0'));
            i += 3;
        } else {
            result += text[i];
        }
    }
    return result;
}

// ID PARENT MAJOR:MINOR ROOT MOUNT_POINT OPTIONS [TAG...] - TYPE SOURCE SUPER_OPTIONS
std::optional<MountEntry> parse_mount(const std::string& line) {
    std::istringstream fields(line);
    MountEntry entry;
    std::string skipped;
    fields >> skipped >> skipped >> entry.device_number >> entry.root >> entry.mount_point >>
        entry.options;
    while (fields >> skipped && skipped != "-") {
    }
    if (!(fields >> entry.type >> entry.source)) {
        return std::nullopt;
    }
    fields >> entry.super_options;
    entry.root = unescape(entry.root);
    entry.mount_point = unescape(entry.mount_point);
    entry.source = unescape(entry.source);
    return entry;
}

}  // namespace

bool is_fuse(const MountEntry& entry) {
    return entry.type == "fuse" || entry.type.starts_with("fuse.");
}

std::vector<MountEntry> read_mounts() {
    std::vector<MountEntry> mounts;
    std::ifstream file("/proc/self/mountinfo");
    std::string line;
    while (std::getline(file, line)) {
        if (std::optional<MountEntry> entry = parse_mount(line)) {
            mounts.push_back(*entry);
        }
    }
    return mounts;
}

}  // namespace tiffin::fuse
