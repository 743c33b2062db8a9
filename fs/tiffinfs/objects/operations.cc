// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/objects/operations.h"

#include "fs/base/siphash.h"

namespace tiffin::tiffinfs {
namespace {

constexpr int64_t kRelativeAccessTimeSeconds = int64_t{24} * 60 * 60;

bool access_time_moves(const InodeValue& inode, vfs::Timestamp now, AccessTimePolicy policy) {
    if ((inode.file_flags & vfs::file_flag::no_atime) != 0) {
        return false;
    }
    const vfs::Timestamp accessed = from_disk(inode.access_time);
    switch (policy) {
        case AccessTimePolicy::noatime:
            return false;
        case AccessTimePolicy::strictatime:
            return !(accessed == now);
        case AccessTimePolicy::relatime:
            break;
    }
    return !(from_disk(inode.modification_time) < accessed) ||
           !(from_disk(inode.change_time) < accessed) ||
           // Times from the device may be anything: the difference must not overflow.
           static_cast<int64_t>(static_cast<uint64_t>(now.seconds) -
                                static_cast<uint64_t>(accessed.seconds)) >=
               kRelativeAccessTimeSeconds;
}

}  // namespace

Result<void> check_alive(const Object& object) {
    if (object.deleted || (object.inode.mode & vfs::mode::type_mask) == 0) {
        return Error::estale;
    }
    return {};
}

Result<void> check_directory(const Object& object) {
    TRY(check_alive(object));
    if (!object.is_directory()) {
        return Error::enotdir;
    }
    return {};
}

Result<void> check_entry_change(const Object& directory, EntryChange change) {
    TRY(check_directory(directory));
    if (directory.inode.link_count == 0) {
        return Error::enoent;
    }
    const uint32_t forbidding = change == EntryChange::add
                                    ? vfs::file_flag::immutable
                                    : vfs::file_flag::immutable | vfs::file_flag::append_only;
    if ((directory.inode.file_flags & forbidding) != 0) {
        return Error::eperm;
    }
    return {};
}

Result<void> check_removable(const Object& object) {
    if ((object.inode.file_flags & (vfs::file_flag::immutable | vfs::file_flag::append_only)) !=
        0) {
        return Error::eperm;
    }
    return {};
}

Result<void> stage_inode(Transaction& transaction, const Object& object, const InodeValue& inode) {
    return transaction.put_value(make_key(object.node, Kind::inode, 0), inode);
}

void count_entry(InodeValue& directory, int change, vfs::Timestamp now) {
    // A damaged count stays at zero; the checker sets it right.
    if (change >= 0 || directory.size_bytes > 0) {
        directory.size_bytes += static_cast<uint64_t>(static_cast<int64_t>(change));
    }
    set_time(directory.modification_time, now);
    set_change_time(directory, now);
}

void keep_entry_count(Object& directory, const InodeValue& inode) NO_THREAD_SAFETY_ANALYSIS {
    directory.inode.size_bytes = inode.size_bytes;
    directory.inode.modification_time = inode.modification_time;
    directory.inode.change_time = inode.change_time;
    if (directory.inode.link_count != inode.link_count) {
        directory.inode.link_count = inode.link_count;
    }
}

Result<void> change_directory_links(Volume& volume, const Object& directory, InodeValue& inode,
                                    int change) {
    const int64_t links = int64_t{inode.link_count} + change;
    if (links > int64_t{kMaximumDirectoryLinks}) {
        return Error::emlink;
    }
    if (change != 0 && links < 2) {
        return volume.report_damage("a directory's link count is too small", directory.node,
                                    inode.link_count);
    }
    inode.link_count = static_cast<uint32_t>(links);
    return {};
}

void begin_life(Volume& volume, InodeValue& inode, uint64_t node, const InodeValue& parent,
                const vfs::Caller& caller, vfs::Timestamp now) {
    inode.user_id = caller.user_id;
    inode.group_id =
        (parent.mode & vfs::mode::set_group_id) != 0 ? parent.group_id : caller.group_id;
    set_time(inode.access_time, now);
    set_time(inode.modification_time, now);
    set_time(inode.change_time, now);
    set_time(inode.birth_time, now);
    // Not predictable without the volume's key, and cheap: a create must not wait for randomness.
    const uint64_t seed[3] = {node, static_cast<uint64_t>(now.seconds), now.nanoseconds};
    inode.generation = siphash24(volume.superblock().hash_key, seed, sizeof(seed));
}

void drop_link(InodeValue& inode, vfs::Timestamp now) {
    inode.link_count = vfs::mode::is_directory(inode.mode) ? 0 : inode.link_count - 1;
    inode.inode_flags |= inode.link_count == 0 ? inode_flag::orphan : 0;
    set_change_time(inode, now);
}

Result<void> stage_link_drop(Transaction& transaction, const Object& object,
                             const InodeValue& inode) {
    if (inode.link_count == 0) {
        TRY(transaction.put(make_key(kVolumeNode, Kind::orphan, object.node), {}));
    }
    return stage_inode(transaction, object, inode);
}

void note_link_drop(TiffinFileSystem& file_system, Object& object) {
    if (object.inode.link_count == 0) {
        file_system.objects().queue_for_reclaim(object);
    } else {
        object.name_lost_ns = host::monotonic_ns();
    }
}

namespace {

// Whether a look at `object` moves its access time now.
bool access_time_is_due(TiffinFileSystem& file_system, const Object& object)
    REQUIRES_SHARED(object.state) {
    const AccessTimePolicy policy = file_system.options().access_time;
    if (policy == AccessTimePolicy::noatime || file_system.volume().read_only()) {
        return false;
    }
    const Allocator& allocator = file_system.volume().allocator();
    // Otherwise it is not worth making room for.
    return allocator.has_more_free_than(allocator.kept_blocks(SpacePriority::overwriting)) &&
           check_alive(object).ok() && access_time_moves(inode_of(object), Volume::now(), policy);
}

}  // namespace

void touch_access_time(TiffinFileSystem& file_system, Object& object) {
    if (file_system.options().access_time == AccessTimePolicy::noatime) {
        return;
    }
    {
        BiasedSharedLock lock(object.state, object.node);
        if (!access_time_is_due(file_system, object)) {
            return;
        }
    }
    const vfs::Timestamp now = Volume::now();
    uint64_t ticket = 0;
    const auto update = [&]() -> Result<void> {
        BiasedExclusiveLock lock(object.state, object.node);
        TRY(check_alive(object));
        Transaction transaction(file_system.volume());
        TRY(transaction.begin(SpacePriority::overwriting, {.scattered = 1}));
        InodeValue inode = object.inode;
        set_time(inode.access_time, now);
        TRY(stage_inode(transaction, object, inode));
        TRY(transaction.prepare());
        ticket = transaction.commit();
        raise_ticket(object, ticket);
        object.inode = inode;
        return {};
    };
    if (update().ok()) {
        (void)file_system.finish(ticket);
    }
}

Result<ObjectPin> get_referenced(TiffinFileSystem& file_system, uint64_t directory, uint64_t node) {
    Result<ObjectPin> pin = file_system.objects().get_referenced(node);
    if (!pin.ok() && pin.error() == Error::estale) {
        return file_system.volume().report_damage("an entry leads to no inode", directory, node);
    }
    return pin;
}

Result<vfs::Attributes> referenced_attributes(TiffinFileSystem& file_system, Object& object,
                                              uint32_t type_mode) {
    const auto read = [&]() -> Result<vfs::Attributes> {
        BiasedSharedLock lock(object.state, object.node);
        TRY(check_alive(object));
        if (type_mode != 0 && (object.inode.mode & vfs::mode::type_mask) != type_mode) {
            return file_system.volume().report_damage("an entry's type is not its inode's",
                                                      object.node, type_mode);
        }
        return attributes_of(object);
    };
    Result<vfs::Attributes> attributes = read();
    if (!attributes.ok()) {
        file_system.forget(object.node, 1);
    }
    return attributes;
}

}  // namespace tiffin::tiffinfs
