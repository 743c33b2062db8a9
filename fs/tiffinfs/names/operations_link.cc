// SPDX-License-Identifier: MIT OR GPL-2.0-only
// More names for what exists, and first names for temporary files.
#include "fs/tiffinfs/names/directory.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/lock_set.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// Gives a node one more name.
class Linker {
  public:
    Linker(TiffinFileSystem& file_system, Object& object, Object& parent, vfs::Name name)
        : file_system_(file_system), object_(object), parent_(parent), name_(name) {}

    Result<vfs::Attributes> run();

  private:
    Result<uint64_t> choose_place() REQUIRES(object_.state, parent_.state);
    Result<uint64_t> commit(uint64_t entry_offset) REQUIRES(object_.state, parent_.state);

    TiffinFileSystem& file_system_;
    Object& object_;
    Object& parent_;
    vfs::Name name_;
};

Result<uint64_t> Linker::choose_place() {
    TRY(check_alive(object_));
    TRY(check_entry_change(parent_, EntryChange::add));
    if (is_too_long(name_)) {
        return Error::enametoolong;
    }
    if (is_dot(name_) || is_dot_dot(name_)) {
        return Error::eexist;
    }
    EntryPlace place = TRY(find_entry(file_system_.volume(), parent_.node, name_, true));
    if (place.found) {
        return Error::eexist;
    }
    if (object_.is_directory()) {
        return Error::eperm;
    }
    TRY(check_removable(object_));  // the same flags forbid a new name
    if (object_.inode.link_count == 0 && !object_.linkable) {
        return Error::enoent;
    }
    if (object_.inode.link_count >= kMaximumFileLinks) {
        return Error::emlink;
    }
    return place.offset;
}

Result<uint64_t> Linker::commit(uint64_t entry_offset) {
    const vfs::Timestamp now = Volume::now();
    InodeValue parent_inode = parent_.inode;
    count_entry(parent_inode, 1, now);
    InodeValue inode = object_.inode;
    const bool was_temporary = inode.link_count == 0;
    inode.link_count++;
    set_change_time(inode, now);
    inode.inode_flags &= ~inode_flag::orphan;

    Transaction transaction(file_system_.volume());
    TRY(transaction.begin(SpacePriority::normal, {.scattered = 4}));
    TRY(stage_entry(transaction, parent_.node, entry_offset, object_.node, inode.mode, name_));
    TRY(stage_inode(transaction, parent_, parent_inode));
    TRY(stage_inode(transaction, object_, inode));
    if (was_temporary) {
        TRY(transaction.erase(make_key(kVolumeNode, Kind::orphan, object_.node)));
    }
    TRY(transaction.prepare());
    const uint64_t ticket = transaction.commit();
    raise_ticket(object_, ticket);
    raise_ticket(parent_, ticket);
    parent_.inode = parent_inode;
    object_.inode = inode;
    if (was_temporary) {
        object_.linkable = false;
        file_system_.objects().cancel_reclaim(object_);
    }
    return ticket;
}

Result<vfs::Attributes> Linker::run() {
    TRY(file_system_.objects().add_reference(object_.node));
    vfs::Attributes attributes;
    const auto add_link = [&]() -> Result<void> {
        uint64_t ticket = 0;
        {
            ObjectLockSet locks;
            locks.add(object_);
            locks.add(parent_);
            locks.lock();
            locks.assert_held(object_);
            locks.assert_held(parent_);
            const uint64_t entry_offset = TRY(choose_place());
            ticket = TRY(commit(entry_offset));
            attributes = attributes_of(object_);
        }
        return file_system_.finish(ticket);
    };
    const Result<void> added = add_link();
    if (!added.ok()) {
        file_system_.forget(object_.node, 1);
        return added.error();
    }
    return attributes;
}

}  // namespace

Result<vfs::Attributes> TiffinFileSystem::link(const vfs::Caller& /*caller*/, vfs::NodeId node,
                                               vfs::NodeId new_parent, vfs::Name new_name) {
    TRY(volume_->check_writable());
    if (new_name.size_bytes == 0) {
        return Error::enoent;
    }
    ObjectPin pin = TRY(objects_.get(node));
    ObjectPin parent_pin = TRY(objects_.get(new_parent));
    return volume_->with_room(SpacePriority::normal, [&] {
        Linker linker(*this, *pin, *parent_pin, new_name);
        return linker.run();
    });
}

}  // namespace tiffin::tiffinfs
