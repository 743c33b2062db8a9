// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The vocabulary of the contract: nodes, attributes, names, flags. Numbers follow Linux's ABI where
// one exists (mode bits, rename, fallocate and seek flags), so that hosts translate nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/host.h"
#include "fs/vfs/span.h"

namespace tiffin::vfs {

// The persistent identity of a file, directory or other object: never 0, never used again after the
// object is gone. The root directory is node 1.
using NodeId = uint64_t;
inline constexpr NodeId kRootNode = 1;

// What open() of a file system that keeps state per open file returns; 0 for all others.
using Handle = uint64_t;

inline constexpr size_t kNameMaxBytes = 255;
inline constexpr size_t kSymlinkMaxBytes = 4095;
inline constexpr size_t kXattrNameMaxBytes = 255;
inline constexpr size_t kXattrValueMaxBytes = 65536;
inline constexpr uint32_t kBlockBytes = 4096;

// A view of a name or other text, which it does not own; not terminated.
struct Name {
    const char* data = nullptr;
    size_t size_bytes = 0;

    constexpr Name() = default;
    constexpr Name(const char* text, size_t size) : data(text), size_bytes(size) {}
    template <size_t N>
    constexpr Name(const char (&literal)[N]) : data(literal), size_bytes(N - 1) {}  // NOLINT

    constexpr bool operator==(const Name& other) const {
        return size_bytes == other.size_bytes &&
               (size_bytes == 0 || __builtin_memcmp(data, other.data, size_bytes) == 0);
    }
};

struct Timestamp {
    int64_t seconds = 0;
    uint32_t nanoseconds = 0;  // 0 to 999,999,999

    constexpr bool operator==(const Timestamp&) const = default;
    constexpr bool operator<(const Timestamp& other) const {
        return seconds != other.seconds ? seconds < other.seconds : nanoseconds < other.nanoseconds;
    }
};

// Mode bits as in <sys/stat.h>.
namespace mode {
inline constexpr uint32_t type_mask = 0170000;
inline constexpr uint32_t socket = 0140000;
inline constexpr uint32_t symlink = 0120000;
inline constexpr uint32_t regular = 0100000;
inline constexpr uint32_t block_device = 0060000;
inline constexpr uint32_t directory = 0040000;
inline constexpr uint32_t character_device = 0020000;
inline constexpr uint32_t fifo = 0010000;
inline constexpr uint32_t set_user_id = 04000;
inline constexpr uint32_t set_group_id = 02000;
inline constexpr uint32_t sticky = 01000;
inline constexpr uint32_t group_execute = 00010;
inline constexpr uint32_t permission_mask = 07777;

constexpr bool is_directory(uint32_t value) { return (value & type_mask) == directory; }
constexpr bool is_regular(uint32_t value) { return (value & type_mask) == regular; }
constexpr bool is_symlink(uint32_t value) { return (value & type_mask) == symlink; }
constexpr bool is_device(uint32_t value) {
    return (value & type_mask) == block_device || (value & type_mask) == character_device;
}
}  // namespace mode

// File flags as FS_IOC_GETFLAGS reports them (linux/fs.h).
namespace file_flag {
inline constexpr uint32_t immutable = 0x10;
inline constexpr uint32_t append_only = 0x20;
inline constexpr uint32_t no_dump = 0x40;
inline constexpr uint32_t no_atime = 0x80;
inline constexpr uint32_t settable = immutable | append_only | no_dump | no_atime;
}  // namespace file_flag

// What else a node has that a host may want to know without asking for it.
namespace attribute_trait {
inline constexpr uint32_t xattrs = 1U
                                   << 0;  // may have extended attributes; without: there are none
inline constexpr uint32_t capability = 1U << 1;  // security.capability
inline constexpr uint32_t access_acl = 1U << 2;
inline constexpr uint32_t default_acl = 1U << 3;
// A name of it was taken away within the last minute, and others are left. A host in front of a kernel that counts links by
// itself must not let it keep these attributes: see docs/fuse.md, "Link counts".
inline constexpr uint32_t name_lost = 1U << 4;
// A regular file whose content, if it is small, lies within the inode and takes no blocks.
inline constexpr uint32_t inline_content = 1U << 5;
}  // namespace attribute_trait

struct Attributes {
    NodeId node = 0;
    uint64_t generation = 0;  // with the id, the identity in exported file handles
    uint32_t mode = 0;        // type and permissions
    uint32_t link_count = 0;
    uint32_t user_id = 0;
    uint32_t group_id = 0;
    uint32_t device_major = 0;  // block and character devices
    uint32_t device_minor = 0;
    uint64_t size_bytes = 0;
    uint64_t allocated_bytes = 0;
    uint32_t flags = 0;   // file_flag
    uint32_t traits = 0;  // attribute_trait
    // Grows with every change but of the access time alone (with the change time as it is), and is durable with it
    // (i_version; NFS' change attribute).
    // Writes with write_flag::keep_times do not move it: the times that the host sends for them do.
    uint64_t change_counter = 0;
    Timestamp access_time;
    Timestamp modification_time;
    Timestamp change_time;
    Timestamp birth_time;
};

// The user for which names, attributes and extended attributes are changed. (Content is written back without one.) The
// host has already checked permissions (the kernel's VFS does; FUSE mounts with default_permissions): file systems use
// this for ownership of what is created.
struct Caller {
    uint32_t user_id = 0;
    uint32_t group_id = 0;
    uint32_t umask = 0;  // applied by the file system unless a default ACL overrides it
};

// An extended attribute that a node is made with.
struct InitialXattr {
    Name name;
    ByteSpan value;
};
// Of one node: how many, and names and values together.
inline constexpr size_t kInitialXattrsMaximum = 8;
inline constexpr size_t kInitialXattrsMaxBytes = 4096;

// A change of attributes: only members whose bit is in `valid` count.
struct AttributeChange {
    enum Valid : uint32_t {
        mode_bit = 1U << 0,
        user_id_bit = 1U << 1,
        group_id_bit = 1U << 2,
        size_bit = 1U << 3,
        access_time_bit = 1U << 4,
        modification_time_bit = 1U << 5,
        // Write-back hosts pass the time they have shown already. It does not move back: a change may have been later.
        change_time_bit = 1U << 6,
        access_now_bit = 1U << 7,  // set the time to now
        modification_now_bit = 1U << 8,
        // Clear set-user-id, set-group-id (if the group may execute) and file capabilities.
        kill_privileges_bit = 1U << 9,
        // With the former: set-group-id also where the group may not execute. What a host says of callers that are
        // not in the file's group; directories keep the bit.
        kill_set_group_id_bit = 1U << 10,
    };
    uint32_t valid = 0;
    uint32_t mode = 0;  // permission bits only
    uint32_t user_id = 0;
    uint32_t group_id = 0;
    uint64_t size_bytes = 0;
    Timestamp access_time;
    Timestamp modification_time;
    Timestamp change_time;
};

// Flags of rename(), as renameat2's.
namespace rename_flag {
inline constexpr uint32_t no_replace = 1;
inline constexpr uint32_t exchange = 2;
// Leaves a character device 0:0 where the name was: what union file systems take for "removed here".
inline constexpr uint32_t whiteout = 4;
inline constexpr uint32_t all = no_replace | exchange | whiteout;
}  // namespace rename_flag

// Modes of allocate(), as fallocate's.
namespace allocate_flag {
inline constexpr uint32_t keep_size = 0x01;
inline constexpr uint32_t punch_hole = 0x02;  // only with keep_size
inline constexpr uint32_t collapse_range = 0x08;
inline constexpr uint32_t zero_range = 0x10;
inline constexpr uint32_t insert_range = 0x20;
}  // namespace allocate_flag

enum class SeekTarget : uint8_t { data, hole };

// Flags of write() and begin_write().
namespace write_flag {
// Write-back of the host's page cache: what a program was told is written already, and what the host
// will not send again. It was permitted when it came to the cache, and is never answered short: see
// FileSystem::write().
inline constexpr uint32_t write_back = 1U << 0;
// Clear set-user-id, set-group-id and file capabilities.
inline constexpr uint32_t kill_privileges = 1U << 1;
// Write at the end of file, whatever offset was given.
inline constexpr uint32_t append = 1U << 2;
// Durable before it returns (O_SYNC, O_DSYNC).
inline constexpr uint32_t synchronous = 1U << 3;
// No time stamps are set: the host sends them as attributes.
inline constexpr uint32_t keep_times = 1U << 4;
// The buffers may change while they are written (a program's own memory, a mapped page without stable pages):
// ContentWriter copies them first, so that what is stored and its checksum are of the same bytes.
inline constexpr uint32_t unstable_buffers = 1U << 5;
// Each block of the write has been promised room: see FileSystem::promise().
inline constexpr uint32_t promised = 1U << 6;
}  // namespace write_flag

// Flags of set_xattr(), as setxattr's.
namespace xattr_flag {
inline constexpr uint32_t create = 1;
inline constexpr uint32_t replace = 2;
// The caller may not keep set-group-id when an ACL changes (FUSE_SETXATTR_ACL_KILL_SGID).
inline constexpr uint32_t kill_set_group_id = 1U << 16;
}  // namespace xattr_flag

struct FileSystemStatistics {
    uint32_t block_bytes = kBlockBytes;
    uint64_t total_blocks = 0;
    uint64_t free_blocks = 0;
    uint64_t available_blocks = 0;  // to all users, without the file system's own reserve
    uint64_t total_nodes = 0;
    uint64_t free_nodes = 0;
    uint64_t file_system_id = 0;
    uint32_t name_max_bytes = kNameMaxBytes;
};

// One entry of a directory, as read_directory() hands it out.
struct DirectoryEntry {
    Name name;  // valid only during the call
    NodeId node = 0;
    uint32_t type_mode = 0;    // the type bits of the mode
    uint64_t next_cookie = 0;  // where reading goes on after this entry; 0 is the start, below 2^63
    const Attributes* attributes = nullptr;  // only when they were asked for
};

// Receives entries. add() returns false when there is no room: the entry was not taken and reading
// stops. It is called without any lock, so it may sleep and copy to memory that can fault; it must not
// call back into the file system.
class DirectorySink {
  public:
    virtual bool add(const DirectoryEntry& entry) = 0;

  protected:
    ~DirectorySink() = default;
};

// Receives nodes. Called without any lock, so it may sleep, and the host may call the file system meanwhile.
class NodeSink {
  public:
    virtual void add(Span<const NodeId> nodes) = 0;

  protected:
    ~NodeSink() = default;
};

// Receives bytes of unknown number, such as a list of names. append() returns false when full.
class ByteSink {
  public:
    virtual bool append(const void* data, size_t size_bytes) = 0;

  protected:
    ~ByteSink() = default;
};

// ---- The lower data path: see file_system.h ---------------------------------------------------

enum class SegmentKind : uint8_t {
    device,     // on the block device, at device_offset_bytes
    zeros,      // a hole
    unwritten,  // zeros, with blocks reserved for what will be written there, at device_offset_bytes
    memory,     // inline data, at `memory`, valid until release_read()
};

struct ReadSegment {
    SegmentKind kind = SegmentKind::zeros;
    uint64_t file_offset_bytes = 0;
    uint64_t length_bytes = 0;
    uint64_t device_offset_bytes = 0;
    const unsigned char* memory = nullptr;
    uint32_t first_checksum = 0;  // index into ReadMapping::checksums
};

// Where a range of a file is. About 3 KiB: hosts keep it in a request, not on a kernel stack.
struct ReadMapping {
    static constexpr size_t kMaxSegments = 32;
    static constexpr size_t kMaxBlocks = 257;  // 1 MiB at any alignment
    static constexpr size_t kMaxInlineBytes = 1024;

    NodeId node = 0;
    uint64_t file_size_bytes = 0;  // when the mapping was made
    uint64_t offset_bytes = 0;     // of the first segment: the request rounded down to a block
    uint64_t length_bytes = 0;     // covered, in whole blocks; may be less than was asked for
    uint32_t segment_count = 0;
    uint32_t reader_token = 0;  // for the file system: keeps the mapped blocks from reuse
    bool active = false;
    // Set by the caller: it holds another mapping until this one is made.
    bool follows_another = false;
    // Set by the caller, to list extents: blocks that are reserved behind the end of file are mapped, too.
    bool includes_behind_end = false;
    ReadSegment segments[kMaxSegments];
    union {
        uint32_t checksums[kMaxBlocks];  // CRC32C of each mapped block on the device
        unsigned char inline_data[kMaxInlineBytes];
    };
};

struct WriteSegment {
    uint64_t device_offset_bytes = 0;
    uint64_t length_bytes = 0;  // whole blocks
};

// A write, between begin_write() and end_write(): the claim of its range, and room on the device for one part of it at a
// time. About 600 bytes; stays at one address.
struct WriteGrant {
    static constexpr size_t kMaxSegments = 16;
    static constexpr size_t kMaxBlocks = 256;
    static constexpr size_t kMaxContentBytes = 1024;
    // Room for a lock as well, which is larger in a host that debugs its locks.
    static constexpr size_t kStateBytes = 200 + host::kLockStorageBytes;

    WriteGrant() = default;
    WriteGrant(const WriteGrant&) = delete;
    WriteGrant& operator=(const WriteGrant&) = delete;

    // From begin_write() on.
    NodeId node = 0;
    uint64_t start_bytes = 0;  // with write_flag::append: where the file ended
    uint64_t end_bytes = 0;
    uint32_t flags = 0;  // write_flag
    bool active = false;

    // From grant_write() to commit_write().
    bool granted = false;
    // The part that was granted. Its segments hold all blocks that it touches, in their order. What else the first and
    // the last block hold is read before (map_read), and written with the part.
    uint64_t offset_bytes = 0;
    uint64_t length_bytes = 0;
    // The part is so small that the file system keeps its bytes itself: there are no segments.
    bool takes_content = false;
    uint32_t segment_count = 0;
    WriteSegment segments[kMaxSegments];

    // Of the file system.
    alignas(16) unsigned char state[kStateBytes];
};

// ---- Maintenance -------------------------------------------------------------------------------

// Progress of an online scrub; pass it back unchanged to go on.
struct ScrubProgress {
    uint64_t cursor[4] = {};     // opaque; all zero at the start
    uint64_t checked_bytes = 0;  // so far
    uint64_t total_bytes = 0;    // estimate of the whole
    uint64_t errors_found = 0;   // each one also went to the log
    bool finished = false;
};

// The size of a volume before and after FileSystem::grow().
struct Growth {
    uint64_t from_bytes = 0;
    uint64_t to_bytes = 0;
};

enum class ShutdownMode : uint32_t {  // as FS_IOC_SHUTDOWN
    flush_all = 0,                    // commit everything, then stop
    flush_journal = 1,
    discard = 2,  // stop at once: what is not durable yet is lost
};

}  // namespace tiffin::vfs
