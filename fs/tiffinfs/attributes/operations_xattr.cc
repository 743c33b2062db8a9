// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Extended attributes and ACLs.
#include "fs/tiffinfs/attributes/acl.h"
#include "fs/tiffinfs/attributes/xattr.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

uint32_t acl_inode_flag(XattrKind kind) {
    return kind == XattrKind::access_acl ? inode_flag::has_access_acl : inode_flag::has_default_acl;
}

// Changes one attribute of one object.
class XattrChanger {
  public:
    XattrChanger(TiffinFileSystem& file_system, Object& object, vfs::Name name, XattrKind kind)
        : file_system_(file_system),
          volume_(file_system.volume()),
          object_(object),
          name_(name),
          kind_(kind) {}

    Result<void> set(ByteSpan value, uint32_t flags);
    Result<void> remove();

  private:
    Result<void> check() REQUIRES(object_.state);
    Result<uint64_t> set_plain(ByteSpan value, uint32_t flags) REQUIRES(object_.state);
    Result<uint64_t> set_acl(ByteSpan value, uint32_t flags) REQUIRES(object_.state);
    Result<uint64_t> store(InodeValue& inode, const XattrPlace& place, ByteSpan value)
        REQUIRES(object_.state);
    Result<uint64_t> erase(InodeValue& inode, const XattrPlace& place) REQUIRES(object_.state);
    Result<uint64_t> erase_if_found() REQUIRES(object_.state);
    // Stages the inode, with a new change time, and commits.
    Result<uint64_t> commit(Transaction& transaction, InodeValue& inode) REQUIRES(object_.state);

    TiffinFileSystem& file_system_;
    Volume& volume_;
    Object& object_;
    vfs::Name name_;
    XattrKind kind_;
};

Result<void> XattrChanger::check() {
    TRY(check_alive(object_));
    if (is_acl(kind_) && vfs::mode::is_symlink(object_.inode.mode)) {
        return Error::eopnotsupp;
    }
    if (kind_ == XattrKind::user && !may_have_user_xattrs(object_.inode.mode)) {
        return Error::eperm;
    }
    return check_removable(object_);  // the same flags forbid this
}

Result<uint64_t> XattrChanger::commit(Transaction& transaction, InodeValue& inode) {
    set_change_time(inode, Volume::now());
    TRY(stage_inode(transaction, object_, inode));
    TRY(transaction.prepare());
    const uint64_t ticket = transaction.commit();
    raise_ticket(object_, ticket);
    object_.inode = inode;
    return ticket;
}

Result<uint64_t> XattrChanger::store(InodeValue& inode, const XattrPlace& place, ByteSpan value) {
    Transaction transaction(volume_);
    TRY(transaction.begin(
        SpacePriority::normal,
        {.scattered = 1, .contiguous_bytes = xattr_change_bytes(name_, value.size(), place)}));
    TRY(stage_xattr(transaction, object_.node, place, name_, value));
    inode.inode_flags |= inode_flag::has_xattrs;
    return commit(transaction, inode);
}

Result<uint64_t> XattrChanger::erase(InodeValue& inode, const XattrPlace& place) {
    Transaction transaction(volume_);
    TRY(transaction.begin(
        SpacePriority::privileged,
        {.scattered = 1, .contiguous_bytes = xattr_change_bytes(name_, 0, place)}));
    if (place.found) {
        TRY(stage_xattr_removal(transaction, object_.node, place));
    }
    return commit(transaction, inode);
}

Result<uint64_t> XattrChanger::set_plain(ByteSpan value, uint32_t flags) {
    const bool is_capability = name_ == kCapabilityName;
    if (is_capability && value.size() > kCapabilityMaxBytes) {
        return Error::einval;
    }
    XattrPlace place = TRY(find_xattr(volume_, object_.node, name_, true));
    if (place.found && (flags & vfs::xattr_flag::create) != 0) {
        return Error::eexist;
    }
    if (!place.found && (flags & vfs::xattr_flag::replace) != 0) {
        return Error::enodata;
    }
    InodeValue inode = object_.inode;
    inode.inode_flags |= is_capability ? inode_flag::has_capability : 0;
    return store(inode, place, value);
}

// The flags create and replace say nothing here, as in Linux: an ACL is always there, in the mode.
Result<uint64_t> XattrChanger::set_acl(ByteSpan value, uint32_t flags) {
    const uint32_t entries = value.empty() ? 0 : TRY(check_acl(value));
    if (kind_ == XattrKind::default_acl && !object_.is_directory()) {
        return entries == 0 ? Result<uint64_t>(0) : Error::eacces;
    }
    if (entries == 0) {
        return erase_if_found();
    }
    HeapBytes acl;
    TRY(acl.assign(value));
    normalize_acl(acl.bytes());
    InodeValue inode = object_.inode;
    XattrPlace place = TRY(find_xattr(volume_, object_.node, name_, true));
    if (kind_ == XattrKind::access_acl) {
        if ((flags & vfs::xattr_flag::kill_set_group_id) != 0) {
            inode.mode &= ~vfs::mode::set_group_id;
        }
        if (acl_to_mode(acl.bytes(), inode.mode)) {
            inode.inode_flags &= ~inode_flag::has_access_acl;
            return erase(inode, place);
        }
    }
    inode.inode_flags |= acl_inode_flag(kind_);
    return store(inode, place, acl.bytes());
}

// Removes the attribute. An ACL that is not there counts as removed.
Result<uint64_t> XattrChanger::erase_if_found() {
    XattrPlace place;
    if ((object_.inode.inode_flags & inode_flag::has_xattrs) != 0) {
        place = TRY(find_xattr(volume_, object_.node, name_, false));
    }
    if (!place.found) {
        return is_acl(kind_) ? Result<uint64_t>(0) : Error::enodata;
    }
    InodeValue inode = object_.inode;
    if (is_acl(kind_)) {
        inode.inode_flags &= ~acl_inode_flag(kind_);
    } else if (name_ == kCapabilityName) {
        inode.inode_flags &= ~inode_flag::has_capability;
    }
    return erase(inode, place);
}

Result<void> XattrChanger::set(ByteSpan value, uint32_t flags) {
    uint64_t ticket = 0;
    {
        BiasedExclusiveLock lock(object_.state, object_.node);
        TRY(check());
        ticket = TRY(is_acl(kind_) ? set_acl(value, flags) : set_plain(value, flags));
    }
    return file_system_.finish(ticket);
}

Result<void> XattrChanger::remove() {
    uint64_t ticket = 0;
    {
        BiasedExclusiveLock lock(object_.state, object_.node);
        TRY(check());
        ticket = TRY(erase_if_found());
    }
    return file_system_.finish(ticket);
}

}  // namespace

Result<size_t> TiffinFileSystem::get_xattr(vfs::NodeId node, vfs::Name name,
                                           MutableByteSpan buffer) {
    TRY(volume_->check_running());
    const XattrKind kind = TRY(xattr_kind(name));
    ObjectPin pin = TRY(objects_.get(node));
    Object& object = *pin;
    BiasedSharedLock lock(object.state, object.node);
    TRY(check_alive(object));
    if ((object.inode.inode_flags & inode_flag::has_xattrs) == 0 ||
        (kind == XattrKind::user && !may_have_user_xattrs(object.inode.mode)) ||
        (is_acl(kind) && (object.inode.inode_flags & acl_inode_flag(kind)) == 0)) {
        return Error::enodata;
    }
    XattrPlace place = TRY(find_xattr(*volume_, node, name, false, buffer));
    if (!place.found) {
        return Error::enodata;
    }
    if (!buffer.empty() && place.value_bytes > buffer.size()) {
        return Error::erange;
    }
    return place.value_bytes;
}

Result<void> TiffinFileSystem::set_xattr(const vfs::Caller& /*caller*/, vfs::NodeId node,
                                         vfs::Name name, ByteSpan value, uint32_t flags) {
    TRY(volume_->check_writable());
    constexpr uint32_t kKnownFlags =
        vfs::xattr_flag::create | vfs::xattr_flag::replace | vfs::xattr_flag::kill_set_group_id;
    if ((flags & ~kKnownFlags) != 0) {
        return Error::einval;
    }
    const XattrKind kind = TRY(xattr_kind(name));
    if (value.size() > vfs::kXattrValueMaxBytes) {
        return Error::e2big;
    }
    ObjectPin pin = TRY(objects_.get(node));
    return volume_->with_room(SpacePriority::normal, [&] {
        XattrChanger changer(*this, *pin, name, kind);
        return changer.set(value, flags);
    });
}

Result<size_t> TiffinFileSystem::list_xattr(vfs::NodeId node, MutableByteSpan buffer) {
    TRY(volume_->check_running());
    ObjectPin pin = TRY(objects_.get(node));
    Object& object = *pin;
    BiasedSharedLock lock(object.state, object.node);
    TRY(check_alive(object));
    if ((object.inode.inode_flags & inode_flag::has_xattrs) == 0) {
        return size_t{0};
    }
    return list_xattrs(*volume_, node, buffer);
}

Result<void> TiffinFileSystem::remove_xattr(const vfs::Caller& /*caller*/, vfs::NodeId node,
                                            vfs::Name name) {
    TRY(volume_->check_writable());
    const XattrKind kind = TRY(xattr_kind(name));
    ObjectPin pin = TRY(objects_.get(node));
    return volume_->with_room(SpacePriority::overwriting, [&] {
        XattrChanger changer(*this, *pin, name, kind);
        return changer.remove();
    });
}

}  // namespace tiffin::tiffinfs
