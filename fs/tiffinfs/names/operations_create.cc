// SPDX-License-Identifier: MIT OR GPL-2.0-only
// New nodes: files, directories and all else, with what they inherit from their directory.
#include "fs/base/race_point.h"
#include "fs/tiffinfs/attributes/acl.h"
#include "fs/tiffinfs/attributes/xattr.h"
#include "fs/tiffinfs/names/directory.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// How many ids a directory takes at once: at first, and later.
constexpr uint32_t kFirstIds = 16;
constexpr uint32_t kMaximumIds = 256;

// What is to be made.
struct NewNode {
    const vfs::Caller& caller;
    vfs::Name name;     // empty: none (O_TMPFILE)
    uint32_t mode = 0;  // type and permissions
    uint32_t device_major = 0;
    uint32_t device_minor = 0;
    vfs::Name target;  // of a symlink
    Span<const vfs::InitialXattr> xattrs;

    bool is_temporary() const { return name.size_bytes == 0; }
    bool is_directory() const { return vfs::mode::is_directory(mode); }
};

// The ACLs it starts with.
struct NewAcls {
    HeapBytes access;       // empty: the mode says it all
    HeapBytes default_acl;  // empty: none
};

// Makes one node in one directory. Directories are made with the parent's state locked exclusively, since they change its
// link count. All else is made with it shared, so that several threads can, and with a lock of the name: what they have
// in common is a moment at the end, in which the parent's inode changes and the journal takes the transaction.
class NodeMaker {
  public:
    NodeMaker(TiffinFileSystem& file_system, Object& parent, const NewNode& wanted)
        : file_system_(file_system),
          volume_(file_system.volume()),
          parent_(parent),
          wanted_(wanted) {}

    NodeMaker(const NodeMaker&) = delete;
    NodeMaker& operator=(const NodeMaker&) = delete;

    Result<vfs::Attributes> run();

  private:
    Result<void> make_named();
    Result<void> choose_place() REQUIRES_SHARED(parent_.state);
    uint64_t choose_id() REQUIRES_SHARED(parent_.state);
    void begin_ids(Object& object) const;
    Result<ObjectPin> make_object() REQUIRES_SHARED(parent_.state);
    Result<void> make() REQUIRES_SHARED(parent_.state);
    void fill_inode(uint64_t node) REQUIRES_SHARED(parent_.state);
    Result<void> inherit_acls() REQUIRES_SHARED(parent_.state);
    Result<void> commit(Object& object) REQUIRES_SHARED(parent_.state) REQUIRES(object.state);
    uint64_t commit_counted(Transaction& transaction) REQUIRES_SHARED(parent_.state);
    Result<void> stage_xattrs(Transaction& transaction, uint64_t node);
    Result<void> stage_target(Transaction& transaction, uint64_t node);
    TransactionSize transaction_size() const;

    TiffinFileSystem& file_system_;
    Volume& volume_;
    Object& parent_;
    const NewNode& wanted_;
    NewAcls acls_;
    InodeValue inode_{};
    uint64_t name_hash_ = 0;
    uint64_t entry_offset_ = 0;
    uint64_t ticket_ = 0;
    ObjectPin pin_;
    vfs::Attributes attributes_;
};

Result<void> NodeMaker::choose_place() {
    TRY(check_entry_change(parent_, EntryChange::add));
    if (wanted_.is_temporary()) {
        return {};
    }
    if (is_too_long(wanted_.name)) {
        return Error::enametoolong;
    }
    if (is_dot(wanted_.name) || is_dot_dot(wanted_.name)) {
        return Error::eexist;
    }
    EntryPlace place = TRY(find_entry(volume_, parent_.node, wanted_.name, name_hash_, true));
    if (place.found) {
        return Error::eexist;
    }
    entry_offset_ = place.offset;
    return {};
}

// The inode, but for what ACLs change in it.
void NodeMaker::fill_inode(uint64_t node) {
    const vfs::Timestamp now = Volume::now();
    const bool is_directory = wanted_.is_directory();
    inode_.mode = wanted_.mode;
    inode_.link_count = wanted_.is_temporary() ? 0 : is_directory ? 2 : 1;
    inode_.mode |= is_directory ? parent_.inode.mode & vfs::mode::set_group_id : 0;
    inode_.inode_flags = (wanted_.is_temporary() ? inode_flag::orphan : 0) |
                         (vfs::mode::is_regular(wanted_.mode) ? inode_flag::inline_data : 0);
    inode_.device_major = wanted_.device_major;
    inode_.device_minor = wanted_.device_minor;
    inode_.size_bytes = wanted_.target.size_bytes;
    inode_.parent = is_directory ? parent_.node : 0;
    begin_life(volume_, inode_, node, parent_.inode, wanted_.caller, now);
    for (const vfs::InitialXattr& xattr : wanted_.xattrs) {
        inode_.inode_flags |= inode_flag::has_xattrs |
                              (xattr.name == kCapabilityName ? inode_flag::has_capability : 0);
    }
}

// Takes the ACLs over from the parent's default ACL, or applies the umask when there is none.
Result<void> NodeMaker::inherit_acls() {
    if (vfs::mode::is_symlink(inode_.mode)) {
        return {};
    }
    if ((parent_.inode.inode_flags & inode_flag::has_default_acl) == 0) {
        inode_.mode &= ~(wanted_.caller.umask & 0777);
        return {};
    }
    Result<void> read = read_xattr(volume_, parent_.node, kDefaultAclName, acls_.access);
    if (!read.ok() && read.error() != Error::enodata) {
        return read;
    }
    Result<uint32_t> entries = check_acl(acls_.access.bytes());
    if (!entries.ok() || entries.value() == 0) {
        return volume_.report_damage("a default ACL is missing or malformed", parent_.node, 0);
    }
    if (vfs::mode::is_directory(inode_.mode)) {
        TRY(acls_.default_acl.assign(acls_.access.bytes()));
        inode_.inode_flags |= inode_flag::has_xattrs | inode_flag::has_default_acl;
    }
    if (inherit_acl(acls_.access.bytes(), inode_.mode)) {
        acls_.access.clear();
    } else {
        inode_.inode_flags |= inode_flag::has_xattrs | inode_flag::has_access_acl;
    }
    return {};
}

TransactionSize NodeMaker::transaction_size() const {
    TransactionSize size{.scattered = 3};  // inode, the parent's inode, entry or orphan key
    if (!acls_.access.empty()) {
        size.contiguous_bytes +=
            xattr_change_bytes(kAccessAclName, acls_.access.bytes().size(), XattrPlace{});
    }
    if (!acls_.default_acl.empty()) {
        size.contiguous_bytes +=
            xattr_change_bytes(kDefaultAclName, acls_.default_acl.bytes().size(), XattrPlace{});
    }
    for (const vfs::InitialXattr& xattr : wanted_.xattrs) {
        size.contiguous_bytes += xattr_change_bytes(xattr.name, xattr.value.size(), XattrPlace{});
    }
    if (wanted_.target.size_bytes != 0) {
        const auto target_bytes = static_cast<uint32_t>(wanted_.target.size_bytes);
        size.contiguous_bytes +=
            target_bytes + (target_bytes / kSymlinkChunkBytes + 1) * (sizeof(RecordHeader) + 4);
    }
    return size;
}

Result<void> NodeMaker::stage_xattrs(Transaction& transaction, uint64_t node) {
    // The node is new: it has no attribute yet, so each goes to the first slot of its hash.
    uint64_t places[vfs::kInitialXattrsMaximum + 2];
    uint32_t count = 0;
    const auto stage = [&](vfs::Name name, ByteSpan value) -> Result<void> {
        const XattrPlace place = TRY(find_xattr(volume_, node, name, true));
        for (uint32_t i = 0; i < count; ++i) {
            if (places[i] == place.offset) {
                return Error::einval;  // one name twice
            }
        }
        places[count++] = place.offset;
        return stage_xattr(transaction, node, place, name, value);
    };
    if (!acls_.access.empty()) {
        TRY(stage(kAccessAclName, acls_.access.bytes()));
    }
    if (!acls_.default_acl.empty()) {
        TRY(stage(kDefaultAclName, acls_.default_acl.bytes()));
    }
    for (const vfs::InitialXattr& xattr : wanted_.xattrs) {
        TRY(stage(xattr.name, xattr.value));
    }
    return {};
}

Result<void> NodeMaker::stage_target(Transaction& transaction, uint64_t node) {
    const ByteSpan target(reinterpret_cast<const unsigned char*>(wanted_.target.data),
                          wanted_.target.size_bytes);
    for (size_t offset = 0; offset < target.size(); offset += kSymlinkChunkBytes) {
        const size_t left = target.size() - offset;
        TRY(transaction.put(
            make_key(node, Kind::symlink, offset / kSymlinkChunkBytes),
            target.subspan(offset, left < kSymlinkChunkBytes ? left : kSymlinkChunkBytes)));
    }
    return {};
}

Result<void> NodeMaker::commit(Object& object) {
    if (wanted_.is_directory()) {
        InodeValue parent_inode = inode_of(parent_);
        TRY(change_directory_links(volume_, parent_, parent_inode, 1));
    }
    Transaction transaction(volume_);
    TRY(transaction.begin(SpacePriority::normal, transaction_size()));
    if (wanted_.is_temporary()) {
        TRY(transaction.put(make_key(kVolumeNode, Kind::orphan, object.node), {}));
    } else {
        TRY(stage_entry(transaction, parent_.node, entry_offset_, object.node, inode_.mode,
                        wanted_.name));
    }
    TRY(stage_inode(transaction, object, inode_));
    TRY(stage_xattrs(transaction, object.node));
    TRY(stage_target(transaction, object.node));
    if (!wanted_.is_temporary()) {
        TRY(stage_inode(transaction, parent_,
                        InodeValue{}));  // what it will be is known at the end
    }
    TRY(transaction.prepare());
    ticket_ = wanted_.is_temporary() ? transaction.commit() : commit_counted(transaction);
    raise_ticket(object, ticket_);
    race_point();
    object.inode = inode_;
    object.linkable = wanted_.is_temporary();
    return {};
}

// Until the end no thread can build on the entry: one that finds it waits for the new object's state.
uint64_t NodeMaker::commit_counted(Transaction& transaction) {
    race_point();
    transaction.apply_all_but_last();
    race_point();
    uint64_t ticket = 0;
    {
        MutexLock lock(*parent_.count);
        InodeValue inode = parent_.inode;
        // Another thread may have been faster, and the directory's times do not go back.
        vfs::Timestamp now = from_disk(inode_.birth_time);
        if (now < from_disk(inode.change_time)) {
            now = Volume::now();
        }
        count_entry(inode, 1, now);
        inode.link_count += wanted_.is_directory() ? 1 : 0;
        ticket = transaction.commit_last(inode);
        keep_entry_count(parent_, inode);
        // Before any thread can have seen the new entry and ask for it to be made durable.
        raise_ticket(parent_, ticket);
    }
    transaction.finish();
    return ticket;
}

// A directory begins a run of ids of its own, so that what is made in it follows it; everything else goes on
// with its directory's. Runs begin short, since most directories have few files.
uint64_t NodeMaker::choose_id() {
    if (wanted_.is_directory()) {
        return volume_.allocate_node_ids(kFirstIds);
    }
    MutexLock lock(*parent_.count);
    IdRun& ids = parent_.ids;
    if (ids.left == 0) {
        ids.taken = ids.taken == 0            ? kFirstIds
                    : ids.taken < kMaximumIds ? 2 * ids.taken
                                              : kMaximumIds;
        ids.next = volume_.allocate_node_ids(ids.taken);
        ids.left = ids.taken;
    }
    --ids.left;
    return ids.next++;
}

// A new object with an unused id.
Result<ObjectPin> NodeMaker::make_object() {
    constexpr uint32_t kAttempts = 100;
    uint64_t node = 0;
    for (uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
        node = choose_id();
        if (node <= parent_.node || node > kMaximumNode) {
            break;  // locks are taken by ascending id; greater ones cannot be
        }
        Result<ObjectPin> pin = file_system_.objects().create(node);
        if (pin.ok() || pin.error() != Error::ebusy) {
            return pin;
        }
    }
    return volume_.report_damage("new node ids are in use", node, parent_.node);
}

// Leaves the new object in pin_ and its attributes in attributes_.
Result<void> NodeMaker::make() {
    pin_ = TRY(make_object());
    const uint64_t node = pin_->node;
    fill_inode(node);
    ObjectTable& objects = file_system_.objects();
    Result<void> done = inherit_acls();
    if (!done.ok()) {
        objects.discard(pin_);
        return done;
    }
    {
        Object& object = *pin_;
        BiasedExclusiveLock lock(object.state, object.node);
        done = commit(object);
        if (done.ok()) {
            attributes_ = attributes_of(object);
            begin_ids(object);
            if (wanted_.is_temporary()) {
                objects.queue_for_reclaim(object);
            }
            return {};
        }
    }
    objects.discard(pin_);
    return done;
}

// The ids behind a new directory's are its own.
void NodeMaker::begin_ids(Object& object) const {
    if (wanted_.is_directory()) {
        MutexLock lock(*object.count);
        object.ids = {.next = object.node + 1, .left = kFirstIds - 1, .taken = kFirstIds};
    }
}

Result<void> NodeMaker::make_named() {
    if (wanted_.is_directory()) {
        BiasedExclusiveLock lock(parent_.state, parent_.node);
        TRY(choose_place());
        return make();
    }
    MutexLock name_lock(file_system_.objects().name_lock(parent_.node, name_hash_));
    BiasedSharedLock lock(parent_.state, parent_.node);
    TRY(choose_place());
    return make();
}

Result<vfs::Attributes> NodeMaker::run() {
    if (wanted_.is_temporary()) {
        BiasedSharedLock lock(parent_.state, parent_.node);
        TRY(choose_place());
        TRY(make());
    } else {
        // Of one that is too long it does not matter.
        name_hash_ =
            is_too_long(wanted_.name) ? 0 : entry_hash(volume_.superblock().hash_key, wanted_.name);
        TRY(make_named());
    }
    const Result<void> done = file_system_.finish(ticket_);
    if (!done.ok()) {
        file_system_.forget(attributes_.node, 1);
        return done.error();
    }
    return attributes_;
}

Result<void> check_xattrs(const NewNode& wanted) {
    if (wanted.xattrs.size() > vfs::kInitialXattrsMaximum) {
        return Error::e2big;
    }
    size_t total_bytes = 0;
    for (const vfs::InitialXattr& xattr : wanted.xattrs) {
        const XattrKind kind = TRY(xattr_kind(xattr.name));
        if (is_acl(kind)) {
            return Error::einval;
        }
        if (kind == XattrKind::user && !may_have_user_xattrs(wanted.mode)) {
            return Error::eperm;
        }
        if (xattr.name == kCapabilityName && xattr.value.size() > kCapabilityMaxBytes) {
            return Error::einval;
        }
        // Each is bounded, and so no sum overflows.
        if (xattr.value.size() > vfs::kInitialXattrsMaxBytes) {
            return Error::e2big;
        }
        total_bytes += xattr.name.size_bytes + xattr.value.size();
    }
    return total_bytes <= vfs::kInitialXattrsMaxBytes ? Result<void>() : Error::e2big;
}

Result<vfs::Attributes> make_node(TiffinFileSystem& file_system, vfs::NodeId parent,
                                  const NewNode& wanted) {
    TRY(file_system.volume().check_writable());
    TRY(check_xattrs(wanted));
    ObjectPin parent_pin = TRY(file_system.objects().get(parent));
    return file_system.volume().with_room(SpacePriority::normal, [&] {
        NodeMaker maker(file_system, *parent_pin, wanted);
        return maker.run();
    });
}

}  // namespace

Result<vfs::Attributes> TiffinFileSystem::create(const vfs::Caller& caller, vfs::NodeId parent,
                                                 vfs::Name name, uint32_t mode,
                                                 uint32_t device_major, uint32_t device_minor,
                                                 Span<const vfs::InitialXattr> xattrs) {
    uint32_t type = mode & vfs::mode::type_mask;
    switch (type) {
        case 0:
            type = vfs::mode::regular;
            [[fallthrough]];
        case vfs::mode::regular:
        case vfs::mode::fifo:
        case vfs::mode::socket:
            device_major = 0;
            device_minor = 0;
            break;
        case vfs::mode::block_device:
        case vfs::mode::character_device:
            break;
        default:
            return Error::einval;
    }
    if (name.size_bytes == 0) {
        return Error::enoent;
    }
    return make_node(*this, parent,
                     NewNode{.caller = caller,
                             .name = name,
                             .mode = type | (mode & vfs::mode::permission_mask),
                             .device_major = device_major,
                             .device_minor = device_minor,
                             .target = {},
                             .xattrs = xattrs});
}

Result<vfs::Attributes> TiffinFileSystem::make_directory(const vfs::Caller& caller,
                                                         vfs::NodeId parent, vfs::Name name,
                                                         uint32_t mode,
                                                         Span<const vfs::InitialXattr> xattrs) {
    if (name.size_bytes == 0) {
        return Error::enoent;
    }
    return make_node(*this, parent,
                     NewNode{.caller = caller,
                             .name = name,
                             .mode = vfs::mode::directory | (mode & vfs::mode::permission_mask),
                             .target = {},
                             .xattrs = xattrs});
}

Result<vfs::Attributes> TiffinFileSystem::make_symlink(const vfs::Caller& caller,
                                                       vfs::NodeId parent, vfs::Name name,
                                                       vfs::Name target,
                                                       Span<const vfs::InitialXattr> xattrs) {
    if (name.size_bytes == 0 || target.size_bytes == 0) {
        return Error::enoent;
    }
    if (target.size_bytes > vfs::kSymlinkMaxBytes) {
        return Error::enametoolong;
    }
    return make_node(*this, parent,
                     NewNode{.caller = caller,
                             .name = name,
                             .mode = vfs::mode::symlink | 0777,
                             .target = target,
                             .xattrs = xattrs});
}

Result<vfs::Attributes> TiffinFileSystem::make_temporary(const vfs::Caller& caller,
                                                         vfs::NodeId parent, uint32_t mode,
                                                         Span<const vfs::InitialXattr> xattrs) {
    return make_node(*this, parent,
                     NewNode{.caller = caller,
                             .name = {},
                             .mode = vfs::mode::regular | (mode & vfs::mode::permission_mask),
                             .target = {},
                             .xattrs = xattrs});
}

}  // namespace tiffin::tiffinfs
