// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How the tiffin command talks to a mounted file system: ioctls on any file or directory of the
// mount, usually its root. Layouts are fixed; a changed command gets a new number.
//
// A user that can open a file may ask for texts and statistics; the rest is for root and the user that
// mounted. A file system that is not Tiffin's answers ENOTTY.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

#include "fs/vfs/control_format.h"

namespace tiffin::fuse {

inline constexpr unsigned kControlType = TIFFIN_CONTROL_TYPE;

// What texts a mount can give.
enum class TextKind : uint32_t {
    status = TIFFIN_TEXT_STATUS,
    version = TIFFIN_TEXT_VERSION,
};

// Of fs/vfs/control_format.h, and zero when they are made.
struct TextCommand : tiffin_text_command {
    TextCommand() : tiffin_text_command() {}
};
inline constexpr unsigned long kTextCommand = TIFFIN_CONTROL_TEXT;

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

struct ScrubCommand : tiffin_scrub_command {
    ScrubCommand() : tiffin_scrub_command() {}
};
inline constexpr unsigned long kScrubCommand = TIFFIN_CONTROL_SCRUB;

// In: the state that the file system shall have.
struct RemountCommand {
    uint32_t read_only = 0;
    uint32_t reserved = 0;
};
static_assert(sizeof(RemountCommand) == 8);
inline constexpr unsigned long kRemountCommand = _IOW(kControlType, 4, RemountCommand);
// The error of a remount that has been done: the file system is read-only, but part of what had been written before is lost.
inline constexpr Error kReadOnlyWithLoss = Error::enodata;

struct GrowCommand : tiffin_grow_command {
    GrowCommand() : tiffin_grow_command() {}
    GrowCommand(uint64_t from, uint64_t to) : tiffin_grow_command{from, to} {}
};
inline constexpr unsigned long kGrowCommand = TIFFIN_CONTROL_GROW;

// In: a link of the session with the memory server is added, or removed; the error says why not (RemoteMemory::add_link()).
struct LinkCommand {
    uint16_t adds = 0;  // 0: it is removed
    uint16_t port = 0;
    char host[256] = {};  // terminated
};
static_assert(sizeof(LinkCommand) == 260);
inline constexpr unsigned long kLinkCommand = _IOW(kControlType, 6, LinkCommand);

}  // namespace tiffin::fuse
