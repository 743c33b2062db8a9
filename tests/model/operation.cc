// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/model/operation.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace tiffin::model {

namespace {

struct KindEntry {
    const char* name;
    uint32_t weight;
};
constexpr KindEntry kKinds[] = {
    {"open", 80},        {"open_temporary", 8}, {"close", 20},          {"write", 150},
    {"append", 30},      {"read", 60},          {"truncate_file", 30},  {"truncate_path", 20},
    {"allocate", 60},    {"copy", 25},          {"fsync", 15},          {"seek", 10},
    {"stat", 30},        {"stat_file", 15},     {"list", 15},           {"link", 25},
    {"link_file", 8},    {"unlink", 40},        {"make_directory", 30}, {"remove_directory", 20},
    {"rename", 60},      {"make_symlink", 15},  {"read_symlink", 5},    {"make_node", 8},
    {"change_mode", 15}, {"change_owner", 15},  {"set_times", 10},      {"set_xattr", 25},
    {"get_xattr", 15},   {"list_xattr", 8},     {"remove_xattr", 12},   {"set_flags", 12},
    {"synchronize", 4},
};
static_assert(std::size(kKinds) == static_cast<size_t>(OperationKind::count));

const std::array<std::string, 7> kNames = {
    "a", "b", "c", "d", "e", std::string(255, 'L'), "name \xff\x01 of bytes"};
const std::array<std::string, 5> kXattrNames = {"user.a", "user.b", "trusted.c", "security.tiffin",
                                                "user." + std::string(250, 'x')};

constexpr int64_t kBlock = 4096;

std::string short_path(const std::string& path) {
    std::string text;
    for (char byte : path) {
        text += byte > 32 && byte < 127 ? byte : '?';
    }
    for (size_t at = 0; (at = text.find_first_of("Lx", at)) != std::string::npos; ++at) {
        size_t end = std::min(text.find_first_not_of(text[at], at), text.size());
        if (end - at > 200) {
            text.replace(at, end - at, text[at] == 'L' ? "LONG" : "long");
        }
    }
    return text.empty() ? "/" : text;
}

}  // namespace

std::string Operation::text() const {
    std::string line = kKinds[static_cast<size_t>(kind)].name;
    line += " " + short_path(path);
    if (!other.empty()) {
        line += " " + short_path(other);
    }
    line += " slot " + std::to_string(slot) + "," + std::to_string(other_slot) + " offset " +
            std::to_string(offset) + "," + std::to_string(other_offset) + " length " +
            std::to_string(length) + " flags " + std::to_string(flags) + " number " +
            std::to_string(number) + (as_user ? " as user" : "");
    return line;
}

OperationKind Generator::choose_kind() {
    static const uint32_t total =
        std::accumulate(std::begin(kKinds), std::end(kKinds), 0U,
                        [](uint32_t sum, const KindEntry& entry) { return sum + entry.weight; });
    uint64_t left = below(total);
    for (size_t i = 0; i < std::size(kKinds); ++i) {
        if (left < kKinds[i].weight) {
            return static_cast<OperationKind>(i);
        }
        left -= kKinds[i].weight;
    }
    return OperationKind::stat;
}

// Few names, so that operations meet each other's results.
std::string Generator::choose_path() {
    uint64_t depth = below(10);
    size_t components = depth < 5 ? 1 : depth < 9 ? 2 : 3;
    std::string path;
    for (size_t i = 0; i < components; ++i) {
        uint64_t choice = below(14);
        path += (i > 0 ? "/" : "") + kNames[choice < 12 ? choice % 5 : choice - 7];
    }
    return path;
}

int64_t Generator::choose_offset() {
    switch (below(10)) {
        case 0:
            return 0;
        case 1:
        case 2:
            return static_cast<int64_t>(below(1200));
        case 3:
        case 4:
            return static_cast<int64_t>(below(20)) * kBlock;
        case 5:
            return static_cast<int64_t>(below(20)) * kBlock + static_cast<int64_t>(below(5)) - 2 +
                   2;
        case 6:
            return static_cast<int64_t>(below(3'000'000));
        case 7:
            if (options_.far_offsets && below(10) == 0) {
                return (int64_t{1} << (32 + below(12))) + static_cast<int64_t>(below(10000));
            }
            return static_cast<int64_t>(below(1'000'000));
        default:
            return static_cast<int64_t>(below(100'000));
    }
}

int64_t Generator::choose_length() {
    switch (below(8)) {
        case 0:
            return static_cast<int64_t>(below(10)) + 1;
        case 1:
        case 2:
            return static_cast<int64_t>(below(1500)) + 1;
        case 3:
            return static_cast<int64_t>(below(8) + 1) * kBlock;
        case 4:
            return static_cast<int64_t>(below(150'000)) + 1;
        default:
            return static_cast<int64_t>(below(12'000)) + 1;
    }
}

void Generator::fill_open(Operation& operation) {
    constexpr uint32_t access[] = {O_RDWR, O_RDWR, O_RDWR, O_RDONLY, O_WRONLY};
    operation.flags = access[below(5)];
    if (below(10) < 8) {
        operation.flags |= O_CREAT;
    }
    if (below(20) == 0) {
        operation.flags |= O_EXCL;
    }
    if (below(8) == 0) {
        operation.flags |= O_TRUNC;
    }
    if (below(12) == 0) {
        operation.flags |= O_DIRECTORY;
    }
    if (below(12) == 0) {
        operation.flags |= O_NOFOLLOW;
    }
    if ((operation.flags & O_CREAT) != 0 && (operation.flags & O_DIRECTORY) != 0) {
        operation.flags &= ~uint32_t{O_DIRECTORY};  // kernels differ on the two together
    }
    if ((operation.flags & O_CREAT) == 0) {
        operation.flags &= ~uint32_t{O_EXCL};  // undefined without
    }
    operation.number = below(2) == 0 ? 0644 : 0600;
}

void Generator::fill_allocate(Operation& operation) {
    constexpr uint32_t modes[] = {0,
                                  FALLOC_FL_KEEP_SIZE,
                                  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                  FALLOC_FL_ZERO_RANGE,
                                  FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                                  FALLOC_FL_COLLAPSE_RANGE,
                                  FALLOC_FL_INSERT_RANGE};
    operation.flags = modes[below(options_.collapse_insert ? 8 : 6)];
    bool whole_blocks =
        (operation.flags & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE)) != 0;
    if (whole_blocks && below(10) != 0) {
        operation.offset = static_cast<int64_t>(below(10)) * kBlock;
        operation.length = static_cast<int64_t>(below(6) + 1) * kBlock;
    }
    // Space far out is not the subject, and would have to be had.
    operation.offset %= 4'000'000;
}

void Generator::fill_xattr(Operation& operation) {
    operation.other = kXattrNames[below(kXattrNames.size())];
    operation.flags = below(6) == 0 ? 1 + static_cast<uint32_t>(below(2)) : 0;
    operation.length = below(40) == 0   ? static_cast<int64_t>(below(65537))
                       : below(10) == 0 ? static_cast<int64_t>(below(5000))
                                        : static_cast<int64_t>(below(200));
}

Operation Generator::next() {
    // Everything is drawn for every operation, used or not: simple, and stable when kinds change.
    Operation operation;
    operation.kind = choose_kind();
    operation.path = choose_path();
    operation.slot = static_cast<int>(below(kSlots));
    operation.other_slot = static_cast<int>(below(kSlots));
    operation.offset = choose_offset();
    operation.other_offset = choose_offset();
    operation.length = choose_length();
    operation.seed = below(UINT64_MAX);
    operation.as_user = options_.ordinary_users && below(5) == 0;
    const uint64_t choice = below(1000);
    switch (operation.kind) {
        case OperationKind::open:
            fill_open(operation);
            break;
        case OperationKind::open_temporary:
            operation.flags = below(4) == 0 ? O_EXCL : 0;
            operation.number = 0600;
            break;
        case OperationKind::allocate:
            fill_allocate(operation);
            break;
        case OperationKind::rename:
            operation.other = choose_path();
            operation.flags = choice < 600 ? 0 : choice < 750 ? 1 : choice < 980 ? 2 : 3;
            break;
        case OperationKind::link:
        case OperationKind::make_symlink:
        case OperationKind::link_file:
            operation.other = choose_path();
            break;
        case OperationKind::make_node: {
            constexpr uint32_t types[] = {S_IFIFO, S_IFSOCK, S_IFCHR, S_IFBLK, S_IFREG};
            operation.number = (options_.special_files ? types[choice % 5] : S_IFREG) | 0640;
            break;
        }
        case OperationKind::change_mode: {
            constexpr uint32_t modes[] = {0644, 0755, 0600, 04755, 06777, 02711, 01777, 0};
            operation.number = modes[choice % 8];
            break;
        }
        case OperationKind::change_owner:
            operation.number = static_cast<uint32_t>(choice % 5);
            break;
        case OperationKind::set_xattr:
        case OperationKind::get_xattr:
        case OperationKind::remove_xattr:
            fill_xattr(operation);
            break;
        case OperationKind::set_flags: {
            constexpr uint32_t flags[] = {0, 0, 0, 0, FS_IMMUTABLE_FL, FS_APPEND_FL, FS_NODUMP_FL};
            operation.flags = options_.file_flags ? flags[choice % 7] : 0;
            break;
        }
        default:
            break;
    }
    return operation;
}

}  // namespace tiffin::model
