// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the operations on names and attributes share: checks, times, and references.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/object.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

// Hard links of a file; that of ext4, which programs are known to live with. Sub-directories are
// bounded by the link count's width only.
inline constexpr uint32_t kMaximumFileLinks = 65000;
inline constexpr uint32_t kMaximumDirectoryLinks = 0xffffffff;

// ---- Checks ------------------------------------------------------------------------------------

// Errors: estale (deleted, or not there yet).
Result<void> check_alive(const Object& object) REQUIRES_SHARED(object.state);
// Errors: estale, enotdir.
Result<void> check_directory(const Object& object) REQUIRES_SHARED(object.state);

enum class EntryChange : uint8_t { add, remove };
// That entries may be added to or removed from a directory. Errors: estale, enotdir, enoent (it was
// removed itself), eperm (immutable; append-only when something goes).
Result<void> check_entry_change(const Object& directory, EntryChange change)
    REQUIRES_SHARED(directory.state);

// That a name of `object` may go away. Errors: eperm.
Result<void> check_removable(const Object& object) REQUIRES_SHARED(object.state);

constexpr bool is_too_long(vfs::Name name) { return name.size_bytes > vfs::kNameMaxBytes; }

// ---- Changes -----------------------------------------------------------------------------------

// Stages `inode` as the inode of `object`.
Result<void> stage_inode(Transaction& transaction, const Object& object, const InodeValue& inode);

// One entry more or less in the directory whose inode this is: size, modification and change time.
void count_entry(InodeValue& directory, int change, vfs::Timestamp now);

// What count_entry() has changed becomes the directory's. The caller holds `count`, and the state shared; exclusively, if
// the link count has changed.
void keep_entry_count(Object& directory, const InodeValue& inode) REQUIRES(*directory.count);

// Remembers a transaction of the object for fsync: as soon as it is committed, before other threads can see what it has
// changed and ask for that to be made durable. Any thread.
inline void raise_ticket(Object& object, uint64_t ticket) {
    uint64_t last = object.last_ticket.load(std::memory_order_relaxed);
    while (last < ticket && !object.last_ticket.compare_exchange_weak(last, ticket)) {
    }
}

// Adds `change` to a directory's link count. Errors: emlink; euclean (below what "." and the parent's
// entry make).
Result<void> change_directory_links(Volume& volume, const Object& directory, InodeValue& inode,
                                    int change);

// Owner, times and generation of the inode of a new node.
void begin_life(Volume& volume, InodeValue& inode, uint64_t node, const InodeValue& parent,
                const vfs::Caller& caller, vfs::Timestamp now);

// Takes one link from an inode, all of a directory's. `stage_link_drop` stages it: without links it
// becomes an orphan. Two scattered changes at most. `note_link_drop` follows the commit.
void drop_link(InodeValue& inode, vfs::Timestamp now);
Result<void> stage_link_drop(Transaction& transaction, const Object& object,
                             const InodeValue& inode);
void note_link_drop(TiffinFileSystem& file_system, Object& object) REQUIRES(object.state);

// Clears the bits that give rights to programs that run a changed file: set-user-id, and set-group-id where the
// group may execute (elsewhere that bit means mandatory locking).
constexpr uint32_t without_privileges(uint32_t mode) {
    if (vfs::mode::is_directory(mode)) {
        return mode;
    }
    mode &= ~vfs::mode::set_user_id;
    return (mode & vfs::mode::group_execute) != 0 ? mode & ~vfs::mode::set_group_id : mode;
}

// Reading `object` has succeeded: moves its access time as the mount's policy and its flags say.
// Without a state lock held. A failure only goes to the log.
void touch_access_time(TiffinFileSystem& file_system, Object& object);

// ---- References ----------------------------------------------------------------------------------

// Pins the node that an entry of a directory names, and adds a reference. The caller holds the
// directory's state lock, so that the node cannot lose this link meanwhile. Errors: euclean (the
// entry leads nowhere), eio, enomem.
Result<ObjectPin> get_referenced(TiffinFileSystem& file_system, uint64_t directory, uint64_t node);

// The attributes of a referenced object, whose type an entry gives as `type_mode` (0: not known). On
// failure the reference is dropped. Errors: estale, euclean (the types differ).
Result<vfs::Attributes> referenced_attributes(TiffinFileSystem& file_system, Object& object,
                                              uint32_t type_mode);

}  // namespace tiffin::tiffinfs
