// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Creating, removing and renaming in MemoryFileSystem.
#include <algorithm>
#include <mutex>

#include "tests/support/memory_file_system.h"

namespace tiffin::testing {
namespace {

// Nothing that is tested with this file system makes nodes with attributes.
Result<void> check_none(Span<const vfs::InitialXattr> xattrs) {
    return xattrs.empty() ? Result<void>() : Result<void>(Error::eopnotsupp);
}

}  // namespace

// ---- Creating ----------------------------------------------------------------------------------

Result<vfs::Attributes> MemoryFileSystem::create(const vfs::Caller& caller, vfs::NodeId parent,
                                                 vfs::Name name, uint32_t mode,
                                                 uint32_t device_major, uint32_t device_minor,
                                                 Span<const vfs::InitialXattr> xattrs) {
    std::unique_lock lock(mutex_);
    TRY(check_none(xattrs));
    Node* directory = TRY(check_new_name(parent, name));
    if ((mode & vfs::mode::type_mask) == 0) {
        mode |= vfs::mode::regular;
    }
    Node& node = add_node(caller, *directory, mode);
    node.attributes.link_count = 1;
    node.attributes.device_major = device_major;
    node.attributes.device_minor = device_minor;
    node.references = 1;
    add_entry(*directory, name, node);
    return attributes_of(node);
}

Result<vfs::Attributes> MemoryFileSystem::make_directory(const vfs::Caller& caller,
                                                         vfs::NodeId parent, vfs::Name name,
                                                         uint32_t mode,
                                                         Span<const vfs::InitialXattr> xattrs) {
    std::unique_lock lock(mutex_);
    TRY(check_none(xattrs));
    Node* directory = TRY(check_new_name(parent, name));
    Node& node =
        add_node(caller, *directory, vfs::mode::directory | (mode & vfs::mode::permission_mask));
    node.attributes.link_count = 2;
    node.references = 1;
    add_entry(*directory, name, node);
    return attributes_of(node);
}

Result<vfs::Attributes> MemoryFileSystem::make_symlink(const vfs::Caller& caller,
                                                       vfs::NodeId parent, vfs::Name name,
                                                       vfs::Name target,
                                                       Span<const vfs::InitialXattr> xattrs) {
    std::unique_lock lock(mutex_);
    TRY(check_none(xattrs));
    if (target.size_bytes > vfs::kSymlinkMaxBytes) {
        return Error::enametoolong;
    }
    Node* directory = TRY(check_new_name(parent, name));
    Node& node = add_node(caller, *directory, vfs::mode::symlink | 0777);
    node.target.assign(target.data, target.size_bytes);
    node.attributes.link_count = 1;
    node.references = 1;
    add_entry(*directory, name, node);
    return attributes_of(node);
}

Result<vfs::Attributes> MemoryFileSystem::make_temporary(const vfs::Caller& caller,
                                                         vfs::NodeId parent, uint32_t mode,
                                                         Span<const vfs::InitialXattr> xattrs) {
    std::unique_lock lock(mutex_);
    TRY(check_none(xattrs));
    TRY(check_writable());
    Node* directory = TRY(find_directory(parent));
    if ((directory->attributes.flags & vfs::file_flag::immutable) != 0) {
        return Error::eperm;
    }
    Node& node =
        add_node(caller, *directory, vfs::mode::regular | (mode & vfs::mode::permission_mask));
    node.references = 1;
    return attributes_of(node);
}

Result<vfs::Attributes> MemoryFileSystem::link(const vfs::Caller& /*caller*/, vfs::NodeId id,
                                               vfs::NodeId new_parent, vfs::Name new_name) {
    std::unique_lock lock(mutex_);
    Node* node = TRY(find(id));
    Node* directory = TRY(check_new_name(new_parent, new_name));
    if (vfs::mode::is_directory(node->attributes.mode)) {
        return Error::eperm;
    }
    TRY(check_changeable(*node));
    ++node->attributes.link_count;
    ++node->references;
    touch_change(*node);
    add_entry(*directory, new_name, *node);
    return attributes_of(*node);
}

Result<size_t> MemoryFileSystem::read_link(vfs::NodeId id, MutableByteSpan buffer) {
    std::shared_lock lock(mutex_);
    Node* node = TRY(find(id));
    if (!vfs::mode::is_symlink(node->attributes.mode)) {
        return Error::einval;
    }
    size_t length = std::min(buffer.size(), node->target.size());
    std::copy_n(node->target.data(), length, buffer.data());
    return length;
}

// ---- Removing and renaming ---------------------------------------------------------------------

Result<void> MemoryFileSystem::unlink(const vfs::Caller& /*caller*/, vfs::NodeId parent,
                                      vfs::Name name) {
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    Node* directory = TRY(find_directory(parent));
    Entry entry = TRY(find_entry(*directory, name));
    Node* node = TRY(find(entry.node));
    if (vfs::mode::is_directory(node->attributes.mode)) {
        return Error::eisdir;
    }
    TRY(check_changeable(*directory));
    TRY(check_changeable(*node));
    remove_entry(*directory, name);
    drop_link(*node);
    return {};
}

Result<void> MemoryFileSystem::remove_directory(const vfs::Caller& /*caller*/, vfs::NodeId parent,
                                                vfs::Name name) {
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    if (name == vfs::Name(".")) {
        return Error::einval;
    }
    if (name == vfs::Name("..")) {
        return Error::enotempty;
    }
    Node* directory = TRY(find_directory(parent));
    Entry entry = TRY(find_entry(*directory, name));
    Node* node = TRY(find_directory(entry.node));
    if (!node->entries.empty()) {
        return Error::enotempty;
    }
    TRY(check_changeable(*directory));
    TRY(check_changeable(*node));
    remove_entry(*directory, name);
    drop_link(*node);
    return {};
}

bool MemoryFileSystem::is_below(const Node& directory, vfs::NodeId ancestor) {
    vfs::NodeId id = directory.attributes.node;
    while (id != ancestor && id != vfs::kRootNode) {
        id = nodes_.at(id).parent;
    }
    return id == ancestor;
}

Result<void> MemoryFileSystem::check_replaceable(Node& moved, Node& target, bool exchange) {
    TRY(check_changeable(target));
    if (exchange) {
        return {};
    }
    bool moved_is_directory = vfs::mode::is_directory(moved.attributes.mode);
    bool target_is_directory = vfs::mode::is_directory(target.attributes.mode);
    if (moved_is_directory && !target_is_directory) {
        return Error::enotdir;
    }
    if (!moved_is_directory && target_is_directory) {
        return Error::eisdir;
    }
    return target.entries.empty() ? Result<void>() : Result<void>(Error::enotempty);
}

Result<void> MemoryFileSystem::rename(const vfs::Caller& caller, vfs::NodeId parent, vfs::Name name,
                                      vfs::NodeId new_parent, vfs::Name new_name, uint32_t flags) {
    using namespace vfs::rename_flag;  // NOLINT
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    bool is_exchange = (flags & exchange) != 0;
    if ((flags & ~all) != 0 || (is_exchange && flags != exchange)) {
        return Error::einval;
    }
    Node* from = TRY(find_directory(parent));
    Node* to = TRY(find_directory(new_parent));
    Entry entry = TRY(find_entry(*from, name));
    Node* moved = TRY(find(entry.node));
    TRY(check_name(new_name));
    Node* target = nullptr;
    Result<Entry> found = find_entry(*to, new_name);
    if (found.ok()) {
        target = &nodes_.at(found.value().node);
    }
    if (target != nullptr && (flags & no_replace) != 0) {
        return Error::eexist;
    }
    if (target == nullptr && (is_exchange || to->attributes.link_count == 0)) {
        return Error::enoent;
    }
    if (is_below(*to, moved->attributes.node)) {
        return Error::einval;
    }
    if (target != nullptr && is_below(*from, target->attributes.node)) {
        return is_exchange ? Error::einval : Error::enotempty;
    }
    if (target == moved) {
        return {};
    }
    TRY(check_changeable(*from));
    TRY(check_changeable(*moved));
    if ((to->attributes.flags & vfs::file_flag::immutable) != 0) {
        return Error::eperm;
    }
    if (target != nullptr) {
        TRY(check_changeable(*to));
        TRY(check_replaceable(*moved, *target, is_exchange));
        remove_entry(*to, new_name);
    }
    remove_entry(*from, name);
    add_entry(*to, new_name, *moved);
    touch_change(*moved);
    if (is_exchange) {
        add_entry(*from, name, *target);
        touch_change(*target);
    } else if (target != nullptr) {
        drop_link(*target);
    }
    if ((flags & whiteout) != 0) {
        Node& mark = add_node(caller, *from, vfs::mode::character_device);
        mark.attributes.link_count = 1;
        add_entry(*from, name, mark);
    }
    return {};
}

}  // namespace tiffin::testing
