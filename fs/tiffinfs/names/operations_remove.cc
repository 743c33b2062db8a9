// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Taking names away.
#include "fs/tiffinfs/names/directory.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/lock_set.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// Removes one name from one directory.
class Remover {
  public:
    Remover(TiffinFileSystem& file_system, Object& parent, vfs::Name name, bool is_directory)
        : file_system_(file_system),
          volume_(file_system.volume()),
          parent_(parent),
          name_(name),
          wants_directory_(is_directory) {}

    Result<void> run();

  private:
    Result<bool> find_and_lock();
    Result<void> check(const Object& child) REQUIRES(parent_.state, child.state);
    Result<void> commit(Object& child) REQUIRES(parent_.state, child.state);

    TiffinFileSystem& file_system_;
    Volume& volume_;
    Object& parent_;
    vfs::Name name_;
    const bool wants_directory_;

    ObjectPin child_;
    EntryPlace place_;
    uint64_t ticket_ = 0;
    ObjectLockSet locks_;  // released before the pin above
};

// Finds the entry and locks the directory and what it names. False: it must be tried again, with
// the object in child_, which had to be locked first.
Result<bool> Remover::find_and_lock() {
    locks_.release();
    locks_.add(parent_);
    if (child_) {
        locks_.add(*child_);
    }
    locks_.lock();
    locks_.assert_held(parent_);
    TRY(check_entry_change(parent_, EntryChange::remove));
    if (is_too_long(name_)) {
        return Error::enametoolong;
    }
    place_ = TRY(find_entry(volume_, parent_.node, name_, false));
    if (!place_.found) {
        return Error::enoent;
    }
    if (child_ && child_->node == place_.node) {
        return true;
    }
    Result<ObjectPin> found = file_system_.objects().get(place_.node);
    if (!found.ok()) {
        return found.error() == Error::estale
                   ? volume_.report_damage("an entry leads to no inode", parent_.node, place_.node)
                   : found.error();
    }
    // A guess that was wrong stays pinned as long as it is locked.
    if (!child_ && locks_.try_extend(found->get())) {
        child_ = found.release_value();
        return true;
    }
    locks_.release();
    child_ = found.release_value();
    return false;
}

Result<void> Remover::check(const Object& child) {
    if (!check_alive(child).ok() || (child.inode.mode & vfs::mode::type_mask) != place_.type_mode ||
        child.inode.link_count == 0) {
        return volume_.report_damage("an entry names a deleted inode, or one of another type",
                                     parent_.node, place_.node);
    }
    if (child.is_directory() != wants_directory_) {
        return wants_directory_ ? Error::enotdir : Error::eisdir;
    }
    TRY(check_removable(child));
    return wants_directory_ ? check_empty(volume_, child.node, child.inode.size_bytes)
                            : Result<void>();
}

Result<void> Remover::commit(Object& child) {
    const vfs::Timestamp now = Volume::now();
    InodeValue parent_inode = parent_.inode;
    count_entry(parent_inode, -1, now);
    if (wants_directory_) {
        TRY(change_directory_links(volume_, parent_, parent_inode, -1));
    }
    InodeValue inode = child.inode;
    drop_link(inode, now);

    Transaction transaction(volume_);
    TRY(transaction.begin(SpacePriority::privileged, {.scattered = 4}));
    TRY(stage_entry_removal(transaction, parent_.node, place_.offset));
    TRY(stage_inode(transaction, parent_, parent_inode));
    TRY(stage_link_drop(transaction, child, inode));
    TRY(transaction.prepare());
    ticket_ = transaction.commit();
    raise_ticket(parent_, ticket_);
    raise_ticket(child, ticket_);
    parent_.inode = parent_inode;
    child.inode = inode;
    note_link_drop(file_system_, child);
    return {};
}

Result<void> Remover::run() {
    for (uint32_t attempt = 0; !TRY(find_and_lock()); ++attempt) {
        if (attempt == kMaximumLockAttempts) {
            return Error::ebusy;
        }
    }
    {
        Object& child = *child_;
        locks_.assert_held(parent_);
        locks_.assert_held(child);
        TRY(check(child));
        TRY(commit(child));
    }
    locks_.release();
    return file_system_.finish(ticket_);
}

}  // namespace

Result<void> TiffinFileSystem::unlink(const vfs::Caller& /*caller*/, vfs::NodeId parent,
                                      vfs::Name name) {
    TRY(volume_->check_writable());
    if (is_dot(name) || is_dot_dot(name)) {
        return Error::eisdir;
    }
    ObjectPin pin = TRY(objects_.get(parent));
    Result<void> removed = volume_->with_room(SpacePriority::privileged, [&] {
        Remover remover(*this, *pin, name, false);
        return remover.run();
    });
    wake_reclaim();
    return removed;
}

Result<void> TiffinFileSystem::remove_directory(const vfs::Caller& /*caller*/, vfs::NodeId parent,
                                                vfs::Name name) {
    TRY(volume_->check_writable());
    if (is_dot(name)) {
        return Error::einval;
    }
    if (is_dot_dot(name)) {
        return Error::enotempty;
    }
    ObjectPin pin = TRY(objects_.get(parent));
    Result<void> removed = volume_->with_room(SpacePriority::privileged, [&] {
        Remover remover(*this, *pin, name, true);
        return remover.run();
    });
    wake_reclaim();
    return removed;
}

}  // namespace tiffin::tiffinfs
