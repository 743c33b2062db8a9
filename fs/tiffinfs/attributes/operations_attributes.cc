// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Attributes: reading and changing them.
#include <utility>

#include "fs/tiffinfs/attributes/acl.h"
#include "fs/tiffinfs/attributes/xattr.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

using Change = vfs::AttributeChange;

constexpr uint32_t kOwnerBits = Change::user_id_bit | Change::group_id_bit;
// What a host that caches writes sends for them afterwards. A program that sets times names the access
// time as well, in all but odd cases.
constexpr uint32_t kWriteTimeBits = Change::modification_time_bit | Change::change_time_bit;

bool is_time(vfs::Timestamp time) { return time.nanoseconds < 1000000000; }

// One call of set_attributes().
class AttributeChanger {
  public:
    AttributeChanger(TiffinFileSystem& file_system, Object& object, const Change& change)
        : file_system_(file_system), object_(object), change_(change), now_(Volume::now()) {}

    Result<vfs::Attributes> run();

  private:
    bool has(uint32_t bits) const { return (change_.valid & bits) != 0; }
    bool gives_times() const;
    Result<vfs::Attributes> run_with_size();
    Result<vfs::Attributes> run_without_size();
    Result<void> check() REQUIRES(object_.state);
    Result<void> check_flags() REQUIRES(object_.state);
    void change_inode(InodeValue& inode);
    bool needs_xattr_change() const REQUIRES(object_.state);
    Result<void> load_acl() REQUIRES(object_.state);
    Result<void> stage_acl(Transaction& transaction, uint32_t mode) REQUIRES(object_.state);
    Result<uint64_t> commit() REQUIRES(object_.state);

    TiffinFileSystem& file_system_;
    Object& object_;
    const Change& change_;
    const vfs::Timestamp now_;
    HeapBytes acl_;  // the access ACL, when the mode's change is one of its too
    XattrPlace acl_place_;
};

// Whether times are set by hand. A host that caches writes keeps modification times itself: from there
// "now" for both times comes as "now" for one of them, and the other one is that of the change.
bool AttributeChanger::gives_times() const {
    if (has(Change::access_time_bit)) {
        return true;
    }
    const bool now = has(Change::access_now_bit) && has(Change::change_time_bit) &&
                     change_.modification_time == change_.change_time;
    return has(Change::modification_time_bit) && !now;
}

// Immutable files change in nothing, append-only files in nothing but times "now". A host that sends
// the times of writes that were legal when they were made is not refused.
Result<void> AttributeChanger::check_flags() {
    const uint32_t flags = object_.inode.file_flags;
    if ((flags & (vfs::file_flag::immutable | vfs::file_flag::append_only)) == 0 ||
        (has(Change::change_time_bit) && (change_.valid & ~uint32_t{kWriteTimeBits}) == 0)) {
        return {};
    }
    if ((flags & vfs::file_flag::immutable) != 0 ||
        has(Change::mode_bit | kOwnerBits | Change::size_bit) || gives_times()) {
        return Error::eperm;
    }
    return {};
}

Result<void> AttributeChanger::check() {
    TRY(check_alive(object_));
    if (has(Change::size_bit)) {
        if (!object_.is_regular()) {
            return object_.is_directory() ? Error::eisdir : Error::einval;
        }
        if (change_.size_bytes > kMaximumFileBytes) {
            return Error::efbig;
        }
    }
    if ((has(Change::access_time_bit) && !is_time(change_.access_time)) ||
        (has(Change::modification_time_bit) && !is_time(change_.modification_time)) ||
        (has(Change::change_time_bit) && !is_time(change_.change_time))) {
        return Error::einval;
    }
    return check_flags();
}

// Everything but the size and what lies in extended attributes.
void AttributeChanger::change_inode(InodeValue& inode) {
    if (has(Change::user_id_bit)) {
        inode.user_id = change_.user_id;
    }
    if (has(Change::group_id_bit)) {
        inode.group_id = change_.group_id;
    }
    if (has(Change::mode_bit)) {
        inode.mode =
            (inode.mode & vfs::mode::type_mask) | (change_.mode & vfs::mode::permission_mask);
    }
    if (has(Change::kill_privileges_bit) || (has(kOwnerBits) && !has(Change::mode_bit))) {
        inode.mode = without_privileges(inode.mode);
        if (has(Change::kill_set_group_id_bit) && !vfs::mode::is_directory(inode.mode)) {
            inode.mode &= ~vfs::mode::set_group_id;
        }
    }
    if (has(Change::access_time_bit)) {
        set_time(inode.access_time, change_.access_time);
    } else if (has(Change::access_now_bit)) {
        set_time(inode.access_time, now_);
    }
    if (has(Change::modification_time_bit)) {
        set_time(inode.modification_time, change_.modification_time);
    } else if (has(Change::modification_now_bit | Change::size_bit)) {
        set_time(inode.modification_time, now_);
    }
    const vfs::Timestamp change_time = has(Change::change_time_bit) ? change_.change_time : now_;
    // The times of a write may come behind a change that was made after it. An access time that a host gives with the change
    // time as it was is no change at all.
    if (!has(Change::change_time_bit) || from_disk(inode.change_time) < change_time) {
        set_change_time(inode, change_time);
    } else if ((change_.valid & ~(Change::access_time_bit | Change::change_time_bit)) != 0) {
        count_change(inode);
    }
}

bool AttributeChanger::needs_xattr_change() const {
    const uint32_t flags = object_.inode.inode_flags;
    return ((flags & inode_flag::has_access_acl) != 0 && has(Change::mode_bit)) ||
           ((flags & inode_flag::has_capability) != 0 &&
            has(kOwnerBits | Change::kill_privileges_bit));
}

Result<void> AttributeChanger::load_acl() {
    if ((object_.inode.inode_flags & inode_flag::has_access_acl) == 0 || !has(Change::mode_bit)) {
        return {};
    }
    Volume& volume = file_system_.volume();
    acl_place_ = TRY(find_xattr(volume, object_.node, kAccessAclName, false));
    if (!acl_place_.found) {
        return {};
    }
    TRY(read_xattr(volume, object_.node, kAccessAclName, acl_));
    Result<uint32_t> entries = check_acl(acl_.bytes());
    if (!entries.ok() || entries.value() == 0) {
        return volume.report_damage("an access ACL is malformed", object_.node, acl_place_.offset);
    }
    return {};
}

Result<void> AttributeChanger::stage_acl(Transaction& transaction, uint32_t mode) {
    if (acl_.empty()) {
        return {};
    }
    apply_mode_to_acl(acl_.bytes(), mode);
    return stage_xattr(transaction, object_.node, acl_place_, kAccessAclName, acl_.bytes());
}

// Changes everything but the size.
Result<uint64_t> AttributeChanger::commit() {
    TRY(load_acl());
    TransactionSize size{.scattered = 2};
    if (!acl_.empty()) {
        size.contiguous_bytes = xattr_change_bytes(kAccessAclName, acl_.bytes().size(), acl_place_);
    }
    InodeValue inode = object_.inode;
    change_inode(inode);
    Transaction transaction(file_system_.volume());
    TRY(transaction.begin(SpacePriority::overwriting, size));
    if (has(kOwnerBits | Change::kill_privileges_bit)) {
        const uint32_t mode = inode.mode;
        TRY(file_system_.stage_kill_privileges(object_, inode, transaction));
        inode.mode = mode;  // change_inode() knows better: a mode may have been given
    }
    TRY(stage_acl(transaction, inode.mode));
    TRY(stage_inode(transaction, object_, inode));
    TRY(transaction.prepare());
    const uint64_t ticket = transaction.commit();
    raise_ticket(object_, ticket);
    object_.inode = inode;
    return ticket;
}

Result<vfs::Attributes> AttributeChanger::run_without_size() {
    vfs::Attributes attributes;
    uint64_t ticket = 0;
    {
        BiasedExclusiveLock lock(object_.state, object_.node);
        TRY(check());
        ticket = TRY(commit());
        attributes = attributes_of(object_);
    }
    TRY(file_system_.finish(ticket));
    return attributes;
}

Result<vfs::Attributes> AttributeChanger::run_with_size() {
    RangeClaim claim;
    TRY(file_system_.claim_blocks(object_, change_.size_bytes / kBlockBytes, RangeClaim::kEndOfFile,
                                  claim));
    ClaimScope claimed(object_.claims, claim);
    BiasedExclusiveLock lock(object_.state, object_.node);
    TRY(check());
    if (needs_xattr_change()) {
        // A transaction of its own, and the first one: should the size then fail to change, rights
        // have gone that were to go, but none are left that were not.
        TRY(commit());
    }
    InodeValue inode = object_.inode;
    change_inode(inode);
    inode.size_bytes = change_.size_bytes;
    TRY(file_system_.change_size(object_, inode, change_.size_bytes));
    TRY(file_system_.finish(object_.last_ticket.load(std::memory_order_relaxed)));
    return attributes_of(object_);
}

Result<vfs::Attributes> AttributeChanger::run() {
    return has(Change::size_bit) ? run_with_size() : run_without_size();
}

}  // namespace

Result<vfs::Attributes> TiffinFileSystem::get_attributes(vfs::NodeId node) {
    TRY(volume_->check_running());
    ObjectPin pin = TRY(objects_.get(node));
    Object& object = *pin;
    BiasedSharedLock lock(object.state, object.node);
    TRY(check_alive(object));
    return attributes_of(object);
}

Result<vfs::Attributes> TiffinFileSystem::set_attributes(const vfs::Caller& /*caller*/,
                                                         vfs::NodeId node,
                                                         const vfs::AttributeChange& change) {
    if (change.valid == 0) {
        return get_attributes(node);
    }
    TRY(volume_->check_writable());
    ObjectPin pin = TRY(objects_.get(node));
    return volume_->with_room(SpacePriority::overwriting, [&] {
        AttributeChanger changer(*this, *pin, change);
        return changer.run();
    });
}

Result<void> TiffinFileSystem::set_flags(const vfs::Caller& /*caller*/, vfs::NodeId node,
                                         uint32_t flags) {
    TRY(volume_->check_writable());
    if ((flags & ~vfs::file_flag::settable) != 0) {
        return Error::eopnotsupp;
    }
    ObjectPin pin = TRY(objects_.get(node));
    Object& object = *pin;
    Result<uint64_t> changed =
        volume_->with_room(SpacePriority::overwriting, [&]() -> Result<uint64_t> {
            BiasedExclusiveLock lock(object.state, object.node);
            TRY(check_alive(object));
            InodeValue inode = object.inode;
            inode.file_flags = flags;
            set_change_time(inode, Volume::now());
            Transaction transaction(*volume_);
            TRY(transaction.begin(SpacePriority::overwriting, {.scattered = 1}));
            TRY(stage_inode(transaction, object, inode));
            TRY(transaction.prepare());
            const uint64_t committed = transaction.commit();
            raise_ticket(object, committed);
            object.inode = inode;
            return committed;
        });
    return finish(TRY(std::move(changed)));
}

Result<void> TiffinFileSystem::stage_kill_privileges(Object& object, InodeValue& inode,
                                                     Transaction& transaction) {
    inode.mode = without_privileges(inode.mode);
    if ((inode.inode_flags & inode_flag::has_capability) == 0) {
        return {};
    }
    XattrPlace place = TRY(find_xattr(*volume_, object.node, kCapabilityName, false));
    if (place.found) {
        // set_xattr() keeps it to one chunk; the first one alone makes an attribute.
        TRY(transaction.erase(make_key(object.node, Kind::xattr, place.offset)));
    }
    inode.inode_flags &= ~inode_flag::has_capability;
    return {};
}

}  // namespace tiffin::tiffinfs
