// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/convert.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <cstring>

#include "fuse/session/tuning.h"

namespace tiffin::fuse {
namespace {

constexpr uint64_t kSectorBytes = 512;  // the unit of st_blocks, whatever the block size

timespec to_timespec(const vfs::Timestamp& time) {
    return {time.seconds, static_cast<long>(time.nanoseconds)};
}

#if TIFFIN_FUSE_HAS_STATX
statx_timestamp to_statx_timestamp(const vfs::Timestamp& time) {
    statx_timestamp result{};
    result.tv_sec = time.seconds;
    result.tv_nsec = time.nanoseconds;
    return result;
}
#endif

// In sectors. A file may have data that only the kernel has yet, which keeps what is said here: without any blocks, tar
// would take it for one hole, and never read it.
uint64_t sectors_of(const vfs::Attributes& attributes) {
    const bool is_regular = (attributes.mode & vfs::mode::type_mask) == vfs::mode::regular;
    return std::max<uint64_t>(attributes.allocated_bytes / kSectorBytes, is_regular ? 1 : 0);
}

}  // namespace

struct stat to_stat(const vfs::Attributes& attributes) {
    struct stat status {};
    status.st_ino = attributes.node;
    status.st_mode = attributes.mode;
    status.st_nlink = attributes.link_count;
    status.st_uid = attributes.user_id;
    status.st_gid = attributes.group_id;
    if (vfs::mode::is_device(attributes.mode)) {
        status.st_rdev = makedev(attributes.device_major, attributes.device_minor);
    }
    status.st_size = static_cast<off_t>(attributes.size_bytes);
    status.st_blksize = vfs::kBlockBytes;
    status.st_blocks = static_cast<blkcnt_t>(sectors_of(attributes));
    status.st_atim = to_timespec(attributes.access_time);
    status.st_mtim = to_timespec(attributes.modification_time);
    status.st_ctim = to_timespec(attributes.change_time);
    return status;
}

double cache_seconds(const vfs::Attributes& attributes) {
    return (attributes.traits & vfs::attribute_trait::name_lost) == 0 ? kCacheSeconds : 0;
}

fuse_entry_param to_entry(const vfs::Attributes& attributes) {
    fuse_entry_param entry{};
    entry.ino = attributes.node;
    // The protocol's root has none: other kernels than the latest take it for damaged by another one.
    entry.generation = attributes.node == vfs::kRootNode ? 0 : attributes.generation;
    entry.attr = to_stat(attributes);
    entry.attr_timeout = cache_seconds(attributes);
    entry.entry_timeout = entry.attr_timeout;
    return entry;
}

#if TIFFIN_FUSE_HAS_STATX
struct statx to_statx(const vfs::Attributes& attributes) {
    struct statx status {};
    status.stx_mask = STATX_BASIC_STATS | STATX_BTIME;
    status.stx_blksize = vfs::kBlockBytes;
    status.stx_attributes_mask = STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND | STATX_ATTR_NODUMP;
    if ((attributes.flags & vfs::file_flag::immutable) != 0) {
        status.stx_attributes |= STATX_ATTR_IMMUTABLE;
    }
    if ((attributes.flags & vfs::file_flag::append_only) != 0) {
        status.stx_attributes |= STATX_ATTR_APPEND;
    }
    if ((attributes.flags & vfs::file_flag::no_dump) != 0) {
        status.stx_attributes |= STATX_ATTR_NODUMP;
    }
    status.stx_nlink = attributes.link_count;
    status.stx_uid = attributes.user_id;
    status.stx_gid = attributes.group_id;
    status.stx_mode = static_cast<uint16_t>(attributes.mode);
    status.stx_ino = attributes.node;
    status.stx_size = attributes.size_bytes;
    status.stx_blocks = sectors_of(attributes);
    status.stx_atime = to_statx_timestamp(attributes.access_time);
    status.stx_btime = to_statx_timestamp(attributes.birth_time);
    status.stx_ctime = to_statx_timestamp(attributes.change_time);
    status.stx_mtime = to_statx_timestamp(attributes.modification_time);
    if (vfs::mode::is_device(attributes.mode)) {
        status.stx_rdev_major = attributes.device_major;
        status.stx_rdev_minor = attributes.device_minor;
    }
    return status;
}
#endif

vfs::Name to_name(const char* text) { return {text, std::strlen(text)}; }

}  // namespace tiffin::fuse
