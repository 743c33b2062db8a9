// SPDX-License-Identifier: MIT OR GPL-2.0-only
// rename: one name moves to another place, replacing or exchanging what is there.
//
// Up to four objects change: both directories, the source (what moves) and the target (what was at the
// new name). A directory that moves to another directory could end up inside itself; so those moves
// take the rename lock, which keeps all parent pointers still, and walk up from the new place first.
#include "fs/tiffinfs/names/directory.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/lock_set.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// One end of the move: a name in a directory.
struct End {
    Object& directory;
    vfs::Name name;
    EntryPlace place;
    ObjectPin pin;  // of what the name stands for; also the guess for the next attempt

    bool is_directory() const { return place.found && place.type_mode == vfs::mode::directory; }
};

class Renamer {
  public:
    // `rename_lock` is the volume's.
    Renamer(TiffinFileSystem& file_system, host::Mutex& rename_lock, const vfs::Caller& caller,
            Object& old_parent, vfs::Name name, Object& new_parent, vfs::Name new_name,
            uint32_t flags)
        : file_system_(file_system),
          volume_(file_system.volume()),
          caller_(caller),
          rename_lock_(rename_lock),
          from_{old_parent, name, {}, {}},
          to_{new_parent, new_name, {}, {}},
          exchange_((flags & vfs::rename_flag::exchange) != 0),
          no_replace_((flags & vfs::rename_flag::no_replace) != 0),
          leaves_whiteout_((flags & vfs::rename_flag::whiteout) != 0) {}

    Result<void> run();

  private:
    enum class Outcome { again, needs_rename_lock, done };

    Result<Outcome> lock_all(bool holds_rename_lock);
    Result<Outcome> try_lock_all(bool holds_rename_lock);
    Result<void> find_ends() REQUIRES(from_.directory.state, to_.directory.state);
    Result<ObjectPin> pin_node(const End& end);
    Result<void> run_with_rename_lock();
    Result<void> check_ancestors();
    Result<bool> is_inside(uint64_t directory, uint64_t ancestor);

    Result<void> apply();
    Result<void> check_types(const Object& source, const Object* target);
    Result<void> check_node(const End& end, const Object& object) REQUIRES_SHARED(object.state);
    Result<void> change_directories(InodeValue& old_parent, InodeValue& new_parent,
                                    vfs::Timestamp now)
        REQUIRES(from_.directory.state, to_.directory.state);
    Result<void> stage_entries(Transaction& transaction, vfs::Timestamp now)
        REQUIRES(from_.directory.state);
    Result<void> stage_whiteout(Transaction& transaction, vfs::Timestamp now)
        REQUIRES(from_.directory.state);
    Result<void> commit(Object& source, Object* target)
        REQUIRES(from_.directory.state, to_.directory.state, source.state);

    bool same_directory() const { return &from_.directory == &to_.directory; }
    // A directory gets another parent.
    bool moves_directory() const {
        return !same_directory() && (from_.is_directory() || (exchange_ && to_.is_directory()));
    }

    TiffinFileSystem& file_system_;
    Volume& volume_;
    const vfs::Caller& caller_;
    host::Mutex& rename_lock_;
    End from_;
    End to_;
    const bool exchange_;
    const bool no_replace_;
    const bool leaves_whiteout_;
    // For which nodes check_ancestors() has looked, under the rename lock that is held.
    uint64_t checked_source_ = 0;
    uint64_t checked_target_ = 0;
    bool nothing_to_do_ = false;
    uint64_t ticket_ = 0;
    ObjectLockSet locks_;  // released before the pins
};

// ---- Finding and locking -----------------------------------------------------------------------

Result<void> Renamer::find_ends() {
    TRY(check_entry_change(from_.directory, EntryChange::remove));
    TRY(check_entry_change(to_.directory, EntryChange::add));
    if (is_too_long(from_.name) || is_too_long(to_.name)) {
        return Error::enametoolong;
    }
    from_.place = TRY(find_entry(volume_, from_.directory.node, from_.name, false));
    if (!from_.place.found) {
        return Error::enoent;
    }
    to_.place = TRY(find_entry(volume_, to_.directory.node, to_.name, !exchange_));
    if (to_.place.found && no_replace_) {
        return Error::eexist;
    }
    if (!to_.place.found && exchange_) {
        return Error::enoent;
    }
    if (to_.place.found) {
        TRY(check_entry_change(to_.directory, EntryChange::remove));
    }
    return {};
}

Result<ObjectPin> Renamer::pin_node(const End& end) {
    Result<ObjectPin> pin = file_system_.objects().get(end.place.node);
    if (!pin.ok() && pin.error() == Error::estale) {
        return volume_.report_damage("an entry leads to no inode", end.directory.node,
                                     end.place.node);
    }
    return pin;
}

// One attempt to find and lock all that changes. What the names stand for is locked after the
// directories when the order allows it; else the pins stay as a guess for the next attempt.
Result<Renamer::Outcome> Renamer::try_lock_all(bool holds_rename_lock) {
    locks_.release();
    locks_.add(from_.directory);
    locks_.add(to_.directory);
    if (from_.pin) {
        locks_.add(*from_.pin);
    }
    if (to_.pin) {
        locks_.add(*to_.pin);
    }
    locks_.lock();
    locks_.assert_held(from_.directory);
    locks_.assert_held(to_.directory);
    TRY(find_ends());
    if (moves_directory() && !holds_rename_lock) {
        return Outcome::needs_rename_lock;
    }
    const bool wrong_guess = (from_.pin && from_.pin->node != from_.place.node) ||
                             (to_.pin && (!to_.place.found || to_.pin->node != to_.place.node));
    if (wrong_guess) {
        locks_.release();
        from_.pin.reset();
        to_.pin.reset();
        return Outcome::again;
    }
    // A pin that is there already is replaced by one on the same object.
    from_.pin = TRY(pin_node(from_));
    if (to_.place.found) {
        to_.pin = TRY(pin_node(to_));
    }
    return locks_.try_extend(from_.pin.get(), to_.pin.get()) ? Outcome::done : Outcome::again;
}

Result<Renamer::Outcome> Renamer::lock_all(bool holds_rename_lock) {
    for (uint32_t attempt = 0; attempt < kMaximumLockAttempts; ++attempt) {
        const Outcome outcome = TRY(try_lock_all(holds_rename_lock));
        if (outcome != Outcome::again) {
            return outcome;
        }
    }
    return Error::ebusy;
}

// ---- Loops -------------------------------------------------------------------------------------

// Whether `directory` is `ancestor` or lies below it. With the rename lock held and no object locked:
// no directory on the way can get another parent.
Result<bool> Renamer::is_inside(uint64_t directory, uint64_t ancestor) {
    uint64_t node = directory;
    // Brent's search for a cycle: parents on a damaged volume may form one.
    uint64_t anchor = node;
    uint64_t steps = 0;
    uint64_t steps_to_next_anchor = 2;
    while (node != vfs::kRootNode) {
        if (node == ancestor) {
            return true;
        }
        Result<ObjectPin> pin = file_system_.objects().get(node);
        if (!pin.ok()) {
            // The way up breaks off only where `directory` has been removed meanwhile.
            return pin.error() == Error::estale ? Error::enoent : pin.error();
        }
        Object& object = **pin;
        BiasedSharedLock lock(object.state, object.node);
        if (!check_directory(object).ok() || object.inode.link_count == 0) {
            return Error::enoent;
        }
        node = object.inode.parent;
        if (node == anchor) {
            return volume_.report_damage("a directory lies inside itself", directory, node);
        }
        if (++steps == steps_to_next_anchor) {
            anchor = node;
            steps = 0;
            steps_to_next_anchor *= 2;
        }
    }
    return false;
}

Result<void> Renamer::check_ancestors() {
    if (from_.is_directory() && TRY(is_inside(to_.directory.node, from_.place.node))) {
        return Error::einval;
    }
    if (exchange_ && to_.is_directory() && TRY(is_inside(from_.directory.node, to_.place.node))) {
        return Error::einval;
    }
    checked_source_ = from_.place.node;
    checked_target_ = to_.place.node;
    return {};
}

// ---- Checks ------------------------------------------------------------------------------------

Result<void> Renamer::check_node(const End& end, const Object& object) {
    if (!check_alive(object).ok() ||
        (object.inode.mode & vfs::mode::type_mask) != end.place.type_mode ||
        object.inode.link_count == 0) {
        return volume_.report_damage("an entry names a deleted inode, or one of another type",
                                     end.directory.node, object.node);
    }
    return check_removable(object);
}

Result<void> Renamer::check_types(const Object& source, const Object* target) {
    if (source.node == to_.directory.node) {
        return Error::einval;
    }
    locks_.assert_held(source);
    TRY(check_node(from_, source));
    if (target == nullptr) {
        return {};
    }
    if (target->node == from_.directory.node) {
        return exchange_ ? Error::einval : Error::enotempty;
    }
    locks_.assert_held(*target);
    TRY(check_node(to_, *target));
    if (exchange_) {
        return {};
    }
    if (source.is_directory() && !target->is_directory()) {
        return Error::enotdir;
    }
    if (!source.is_directory() && target->is_directory()) {
        return Error::eisdir;
    }
    return target->is_directory()
               ? check_empty(file_system_.volume(), target->node, target->inode.size_bytes)
               : Result<void>();
}

// ---- Changing ----------------------------------------------------------------------------------

// Counts of entries and links, and times, of the directories' inodes; `new_parent` counts only when
// they are two.
Result<void> Renamer::change_directories(InodeValue& old_parent, InodeValue& new_parent,
                                         vfs::Timestamp now) {
    const int source_links = from_.is_directory() ? 1 : 0;
    const int target_links = to_.is_directory() ? 1 : 0;
    const int leaving = exchange_ || leaves_whiteout_ ? 0 : -1;
    const int arriving = to_.place.found ? 0 : 1;
    if (same_directory()) {
        count_entry(old_parent, leaving + arriving, now);
        return change_directory_links(volume_, from_.directory, old_parent,
                                      exchange_ ? 0 : -target_links);
    }
    count_entry(old_parent, leaving, now);
    count_entry(new_parent, arriving, now);
    TRY(change_directory_links(volume_, from_.directory, old_parent,
                               exchange_ ? target_links - source_links : -source_links));
    return change_directory_links(volume_, to_.directory, new_parent, source_links - target_links);
}

// A new inode, which no other thread can know before the commit: it becomes an object when its name is found.
Result<void> Renamer::stage_whiteout(Transaction& transaction, vfs::Timestamp now) {
    const uint64_t node = volume_.allocate_node_ids(1);
    if (node > kMaximumNode) {
        return Error::enospc;  // they have run out
    }
    InodeValue inode{};
    inode.mode = vfs::mode::character_device;
    inode.link_count = 1;
    begin_life(volume_, inode, node, from_.directory.inode, caller_, now);
    TRY(transaction.put_value(make_key(node, Kind::inode, 0), inode));
    return stage_entry(transaction, from_.directory.node, from_.place.offset, node, inode.mode,
                       from_.name);
}

Result<void> Renamer::stage_entries(Transaction& transaction, vfs::Timestamp now) {
    TRY(stage_entry(transaction, to_.directory.node, to_.place.offset, from_.place.node,
                    from_.place.type_mode, to_.name));
    if (exchange_) {
        return stage_entry(transaction, from_.directory.node, from_.place.offset, to_.place.node,
                           to_.place.type_mode, from_.name);
    }
    return leaves_whiteout_
               ? stage_whiteout(transaction, now)
               : stage_entry_removal(transaction, from_.directory.node, from_.place.offset);
}

Result<void> Renamer::commit(Object& source, Object* target) {
    const vfs::Timestamp now = Volume::now();
    InodeValue old_parent = from_.directory.inode;
    InodeValue new_parent = to_.directory.inode;
    TRY(change_directories(old_parent, new_parent, now));

    // A replacement must succeed on a full volume too.
    Transaction transaction(volume_);
    TRY(transaction.begin(
        target != nullptr && !leaves_whiteout_ ? SpacePriority::privileged : SpacePriority::normal,
        {.scattered = leaves_whiteout_ ? 8U : 7U}));
    TRY(stage_entries(transaction, now));
    TRY(stage_inode(transaction, from_.directory, old_parent));
    if (!same_directory()) {
        TRY(stage_inode(transaction, to_.directory, new_parent));
    }
    InodeValue source_inode = source.inode;
    set_change_time(source_inode, now);
    source_inode.parent = from_.is_directory() ? to_.directory.node : 0;
    TRY(stage_inode(transaction, source, source_inode));
    InodeValue target_inode{};
    if (target != nullptr) {
        locks_.assert_held(*target);
        target_inode = target->inode;
        if (exchange_) {
            set_change_time(target_inode, now);
            target_inode.parent = to_.is_directory() ? from_.directory.node : 0;
            TRY(stage_inode(transaction, *target, target_inode));
        } else {
            drop_link(target_inode, now);
            TRY(stage_link_drop(transaction, *target, target_inode));
        }
    }
    TRY(transaction.prepare());
    ticket_ = transaction.commit();

    raise_ticket(from_.directory, ticket_);
    raise_ticket(to_.directory, ticket_);
    raise_ticket(source, ticket_);
    from_.directory.inode = old_parent;
    if (!same_directory()) {
        to_.directory.inode = new_parent;
    }
    source.inode = source_inode;
    if (target != nullptr) {
        locks_.assert_held(*target);
        raise_ticket(*target, ticket_);
        target->inode = target_inode;
        if (!exchange_) {
            note_link_drop(file_system_, *target);
        }
    }
    return {};
}

// With everything locked.
Result<void> Renamer::apply() {
    if (to_.place.found && from_.place.node == to_.place.node) {
        nothing_to_do_ = true;
        return {};
    }
    Object& source = *from_.pin;
    Object* const target = to_.place.found ? to_.pin.get() : nullptr;
    locks_.assert_held(from_.directory);
    locks_.assert_held(to_.directory);
    locks_.assert_held(source);
    TRY(check_types(source, target));
    return commit(source, target);
}

Result<void> Renamer::run_with_rename_lock() {
    MutexLock lock(rename_lock_);
    for (uint32_t attempt = 0; attempt < kMaximumLockAttempts; ++attempt) {
        TRY(lock_all(true));
        if (!moves_directory() ||
            (checked_source_ == from_.place.node && checked_target_ == to_.place.node)) {
            const Result<void> applied = apply();
            locks_.release();
            return applied;
        }
        locks_.release();
        TRY(check_ancestors());
    }
    return Error::ebusy;
}

Result<void> Renamer::run() {
    const Outcome outcome = TRY(lock_all(false));
    if (outcome == Outcome::needs_rename_lock) {
        // It comes before the locks of objects.
        locks_.release();
        TRY(run_with_rename_lock());
    } else {
        TRY(apply());
        locks_.release();
    }
    return nothing_to_do_ ? Result<void>() : file_system_.finish(ticket_);
}

}  // namespace

Result<void> TiffinFileSystem::rename(const vfs::Caller& caller, vfs::NodeId parent, vfs::Name name,
                                      vfs::NodeId new_parent, vfs::Name new_name, uint32_t flags) {
    TRY(volume_->check_writable());
    const bool exchanges_only =
        (flags & vfs::rename_flag::exchange) == 0 || flags == vfs::rename_flag::exchange;
    if ((flags & ~vfs::rename_flag::all) != 0 || !exchanges_only || is_dot(name) ||
        is_dot_dot(name) || is_dot(new_name) || is_dot_dot(new_name) || new_name.size_bytes == 0) {
        return Error::einval;
    }
    ObjectPin old_pin = TRY(objects_.get(parent));
    ObjectPin new_pin = TRY(objects_.get(new_parent));
    Result<void> renamed = volume_->with_room(SpacePriority::normal, [&] {
        Renamer renamer(*this, rename_lock_, caller, *old_pin, name, *new_pin, new_name, flags);
        return renamer.run();
    });
    wake_reclaim();
    return renamed;
}

}  // namespace tiffin::tiffinfs
