// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/backing_check.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {
namespace {

using host::kPageBytes;

constexpr uint64_t kCheckedBytes = uint64_t{1} << 20;
// docs/format.md: a superblock begins with it, in one of the first two blocks or in both.
constexpr std::string_view kTiffinfsMagic = "TIFFINFS";

bool is_same(const struct stat& status, const std::string& path) {
    struct stat other {};
    if (path.empty() || stat(path.c_str(), &other) != 0 ||
        S_ISBLK(status.st_mode) != S_ISBLK(other.st_mode)) {
        return false;
    }
    return S_ISBLK(status.st_mode) ? status.st_rdev == other.st_rdev
                                   : status.st_dev == other.st_dev && status.st_ino == other.st_ino;
}

// The kernel adds a line feed; a name may have others.
std::string text_in(const std::string& path) {
    std::ifstream file(path);
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (!text.empty() && text.back() == '\n') {
        text.pop_back();
    }
    return text;
}

// Without the escapes (\040) of the kernel's tables.
std::string unescaped(std::string_view text) {
    const auto is_octal = [](char letter) { return letter >= '0' && letter <= '7'; };
    std::string plain;
    for (size_t at = 0; at < text.size(); at++) {
        const std::string_view digits = text.substr(std::min(at + 1, text.size()), 3);
        if (text[at] == '\\' && digits.size() == 3 &&
            std::all_of(digits.begin(), digits.end(), is_octal)) {
            plain += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 +
                                       (digits[2] - '0'));
            at += 3;
        } else {
            plain += text[at];
        }
    }
    return plain;
}

// Returns the bytes that were read: fewer at the end only.
Result<size_t> read_piece(int descriptor, unsigned char* buffer, size_t bytes, uint64_t offset) {
    while (true) {
        const ssize_t count = pread(descriptor, buffer, bytes, static_cast<off_t>(offset));
        if (count >= 0) {
            return static_cast<size_t>(count);
        }
        if (errno != EINTR) {
            return Error::eio;
        }
    }
}

bool has_magic(const unsigned char* block, size_t bytes) {
    return bytes >= kTiffinfsMagic.size() &&
           std::memcmp(block, kTiffinfsMagic.data(), kTiffinfsMagic.size()) == 0;
}

}  // namespace

std::string find_user_of_backing(const struct stat& status) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/sys/block", ignored)) {
        const std::string name = entry.path().filename();
        if (name.rfind("loop", 0) == 0 &&
            is_same(status, text_in(entry.path() / "loop/backing_file"))) {
            return "/dev/" + name;
        }
    }
    std::ifstream swaps("/proc/swaps");
    for (std::string line; std::getline(swaps, line);) {
        if (is_same(status,
                    unescaped(std::string_view(line).substr(0, line.find_first_of(" \t"))))) {
            return "swap space";
        }
    }
    return {};
}

Result<bool> holds_foreign_data(int descriptor, uint64_t size_bytes, unsigned char* buffer,
                                size_t buffer_bytes) {
    const uint64_t last_begin =
        size_bytes > kCheckedBytes ? (size_bytes - kCheckedBytes) / kPageBytes * kPageBytes : 0;
    bool has_data = false;
    for (uint64_t offset = 0; offset < size_bytes;) {
        if (offset >= kCheckedBytes && offset < last_begin) {
            offset = last_begin;
        }
        const size_t count = TRY(read_piece(descriptor, buffer, buffer_bytes, offset));
        if (count == 0) {
            break;
        }
        if (offset == 0 &&
            (has_magic(buffer, count) ||
             (count > kPageBytes && has_magic(buffer + kPageBytes, count - kPageBytes)))) {
            return false;
        }
        has_data = has_data || std::any_of(buffer, buffer + count,
                                           [](unsigned char byte) { return byte != 0; });
        offset += count;
    }
    return has_data;
}

}  // namespace tiffin::rdma_blk
