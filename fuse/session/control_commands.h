// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How the tiffin command talks to a mounted file system: ioctls on any file or directory of the
// mount, usually its root. Layouts are fixed; a changed command gets a new number.
//
// A user that can open a file may ask for texts and statistics; the rest is for root and the user that
// mounted. A file system that is not Tiffin's answers ENOTTY.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace tiffin::fuse {

inline constexpr unsigned kControlType = 0xF7;

// What texts a mount can give.
enum class TextKind : uint32_t {
    status = 0,  // lines "key: value": of the host first, then of the file system
    version = 1,
};

// In: kind, offset. Out: a piece of the text from there, and the size of the whole.
struct TextCommand {
    uint32_t kind = 0;
    uint32_t offset_bytes = 0;
    uint32_t total_bytes = 0;
    uint32_t piece_bytes = 0;
    char piece[4080] = {};
};
static_assert(sizeof(TextCommand) == 4096);
inline constexpr unsigned long kTextCommand = _IOWR(kControlType, 1, TextCommand);

// In: operation, a number from 0 to operation_count - 1. Out: the rest.
struct StatisticsCommand {
    static constexpr uint32_t kBuckets = 64;

    uint32_t operation = 0;
    uint32_t operation_count = 0;
    char name[24] = {};
    uint64_t count = 0;
    uint64_t errors = 0;
    uint64_t bytes = 0;
    uint64_t total_ns = 0;
    uint64_t buckets[kBuckets] = {};  // see OperationTotals
};
static_assert(sizeof(StatisticsCommand) == 576);
inline constexpr unsigned long kStatisticsCommand = _IOWR(kControlType, 2, StatisticsCommand);

// In and out: see vfs::ScrubProgress. All zero at the start; pass back what came until finished.
struct ScrubCommand {
    uint64_t cursor[4] = {};
    uint64_t checked_bytes = 0;
    uint64_t total_bytes = 0;
    uint64_t errors_found = 0;
    uint64_t finished = 0;
};
static_assert(sizeof(ScrubCommand) == 64);
inline constexpr unsigned long kScrubCommand = _IOWR(kControlType, 3, ScrubCommand);

// In: the state that the file system shall have.
struct RemountCommand {
    uint32_t read_only = 0;
    uint32_t reserved = 0;
};
static_assert(sizeof(RemountCommand) == 8);
inline constexpr unsigned long kRemountCommand = _IOW(kControlType, 4, RemountCommand);

// Out: see vfs::Growth.
struct GrowCommand {
    uint64_t from_bytes = 0;
    uint64_t to_bytes = 0;
};
static_assert(sizeof(GrowCommand) == 16);
inline constexpr unsigned long kGrowCommand = _IOR(kControlType, 5, GrowCommand);

// In: a link of the session with the memory server is added, or removed; the error says why not (RemoteMemory::add_link()).
struct LinkCommand {
    uint16_t adds = 0;  // 0: it is removed
    uint16_t port = 0;
    char host[256] = {};  // terminated
};
static_assert(sizeof(LinkCommand) == 260);
inline constexpr unsigned long kLinkCommand = _IOW(kControlType, 6, LinkCommand);

}  // namespace tiffin::fuse
