// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Nodes and their attributes. memory_file_names.cc creates, removes and renames, memory_file_data.cc
// has the data, memory_file_extras.cc the rest.
#include "tests/support/memory_file_system.h"

#include <algorithm>
#include <mutex>

#include "fs/vfs/host.h"

namespace tiffin::testing {
namespace {

constexpr uint64_t kDotDotCookie = 1;

vfs::Timestamp now() {
    int64_t ns = host::realtime_ns();
    return {ns / 1'000'000'000, static_cast<uint32_t>(ns % 1'000'000'000)};
}

std::string text(vfs::Name name) { return {name.data, name.size_bytes}; }

}  // namespace

MemoryFileSystem::MemoryFileSystem() : MemoryFileSystem(Options{}) {}

MemoryFileSystem::MemoryFileSystem(const Options& options) : options_(options) {
    Node& root = nodes_[vfs::kRootNode];
    next_node_ = vfs::kRootNode + 1;
    root.parent = vfs::kRootNode;
    root.attributes.node = vfs::kRootNode;
    root.attributes.generation = 1;
    root.attributes.mode = vfs::mode::directory | options.root_mode;
    root.attributes.user_id = options.root_user_id;
    root.attributes.group_id = options.root_group_id;
    root.attributes.link_count = 2;
    root.attributes.birth_time = now();
    root.attributes.access_time = root.attributes.birth_time;
    touch_data(root);
}

MemoryFileSystem::~MemoryFileSystem() = default;

uint64_t MemoryFileSystem::node_count() const {
    std::shared_lock lock(mutex_);
    return nodes_.size();
}

uint64_t MemoryFileSystem::reference_count() const {
    std::shared_lock lock(mutex_);
    uint64_t count = 0;
    for (const auto& [id, node] : nodes_) {
        count += node.references;
    }
    return count;
}

// ---- Helpers -----------------------------------------------------------------------------------

Result<MemoryFileSystem::Node*> MemoryFileSystem::find(vfs::NodeId node) {
    if (shut_down_) {
        return Error::eio;
    }
    auto found = nodes_.find(node);
    if (found == nodes_.end()) {
        return Error::estale;
    }
    return &found->second;
}

Result<MemoryFileSystem::Node*> MemoryFileSystem::find_directory(vfs::NodeId node) {
    Node* found = TRY(find(node));
    if (!vfs::mode::is_directory(found->attributes.mode)) {
        return Error::enotdir;
    }
    return found;
}

Result<MemoryFileSystem::Node*> MemoryFileSystem::find_file(vfs::NodeId node) {
    Node* found = TRY(find(node));
    if (vfs::mode::is_directory(found->attributes.mode)) {
        return Error::eisdir;
    }
    if (!vfs::mode::is_regular(found->attributes.mode)) {
        return Error::einval;
    }
    return found;
}

Result<MemoryFileSystem::Entry> MemoryFileSystem::find_entry(Node& directory, vfs::Name name) {
    TRY(check_name(name));
    auto found = directory.entries.find(text(name));
    if (found == directory.entries.end()) {
        return Error::enoent;
    }
    return found->second;
}

Result<void> MemoryFileSystem::check_writable() const {
    if (shut_down_) {
        return Error::eio;
    }
    return options_.read_only ? Result<void>(Error::erofs) : Result<void>();
}

Result<void> MemoryFileSystem::check_name(vfs::Name name) {
    if (name.size_bytes > vfs::kNameMaxBytes) {
        return Error::enametoolong;
    }
    return {};
}

Result<void> MemoryFileSystem::check_changeable(const Node& node) {
    constexpr uint32_t kFixed = vfs::file_flag::immutable | vfs::file_flag::append_only;
    return (node.attributes.flags & kFixed) != 0 ? Result<void>(Error::eperm) : Result<void>();
}

// The directory that a new name can be added to.
Result<MemoryFileSystem::Node*> MemoryFileSystem::check_new_name(vfs::NodeId parent,
                                                                 vfs::Name name) {
    TRY(check_writable());
    Node* directory = TRY(find_directory(parent));
    TRY(check_name(name));
    if (directory->attributes.link_count == 0) {
        return Error::enoent;
    }
    if (directory->entries.contains(text(name))) {
        return Error::eexist;
    }
    if ((directory->attributes.flags & vfs::file_flag::immutable) != 0) {
        return Error::eperm;
    }
    return directory;
}

MemoryFileSystem::Node& MemoryFileSystem::add_node(const vfs::Caller& caller, Node& parent,
                                                   uint32_t mode) {
    vfs::NodeId id = next_node_++;
    Node& node = nodes_[id];
    vfs::Attributes& attributes = node.attributes;
    attributes.node = id;
    attributes.generation = 1;
    bool is_directory = vfs::mode::is_directory(mode);
    bool is_symlink = vfs::mode::is_symlink(mode);
    attributes.mode = is_symlink ? mode : mode & ~(caller.umask & 0777);
    attributes.user_id = caller.user_id;
    attributes.group_id = caller.group_id;
    if ((parent.attributes.mode & vfs::mode::set_group_id) != 0) {
        attributes.group_id = parent.attributes.group_id;
        attributes.mode |= is_directory ? vfs::mode::set_group_id : 0;
    }
    attributes.birth_time = now();
    attributes.access_time = attributes.birth_time;
    attributes.modification_time = attributes.birth_time;
    attributes.change_time = attributes.birth_time;
    return node;
}

void MemoryFileSystem::add_entry(Node& directory, vfs::Name name, Node& child) {
    uint64_t cookie = directory.next_cookie++;
    directory.entries[text(name)] = {child.attributes.node, cookie};
    directory.names_by_cookie[cookie] = text(name);
    if (vfs::mode::is_directory(child.attributes.mode)) {
        ++directory.attributes.link_count;
        child.parent = directory.attributes.node;
    }
    touch_data(directory);
}

void MemoryFileSystem::remove_entry(Node& directory, vfs::Name name) {
    auto entry = directory.entries.find(text(name));
    TIFFIN_ASSERT(entry != directory.entries.end());
    if (vfs::mode::is_directory(nodes_.at(entry->second.node).attributes.mode)) {
        --directory.attributes.link_count;
    }
    directory.names_by_cookie.erase(entry->second.cookie);
    directory.entries.erase(entry);
    touch_data(directory);
}

void MemoryFileSystem::drop_link(Node& node) {
    uint32_t& links = node.attributes.link_count;
    links = vfs::mode::is_directory(node.attributes.mode) ? 0 : links - 1;
    touch_change(node);
    delete_if_unused(node);
}

void MemoryFileSystem::delete_if_unused(Node& node) {
    if (node.attributes.link_count == 0 && node.references == 0) {
        free_blocks(node, 0, UINT64_MAX);
        nodes_.erase(node.attributes.node);
    }
}

vfs::Attributes MemoryFileSystem::attributes_of(const Node& node) const {
    vfs::Attributes attributes = node.attributes;
    attributes.allocated_bytes = node.blocks.size() * vfs::kBlockBytes;
    if (vfs::mode::is_directory(attributes.mode)) {
        attributes.size_bytes = node.entries.size();
    } else if (vfs::mode::is_symlink(attributes.mode)) {
        attributes.size_bytes = node.target.size();
    }
    return attributes;
}

void MemoryFileSystem::kill_privileges(Node& node) {
    uint32_t& mode = node.attributes.mode;
    mode &= ~vfs::mode::set_user_id;
    if ((mode & vfs::mode::group_execute) != 0) {
        mode &= ~vfs::mode::set_group_id;
    }
    node.xattrs.erase("security.capability");
}

void MemoryFileSystem::touch_data(Node& node) {
    node.attributes.modification_time = now();
    node.attributes.change_time = node.attributes.modification_time;
}

void MemoryFileSystem::touch_change(Node& node) { node.attributes.change_time = now(); }

// ---- Finding and attributes --------------------------------------------------------------------

Result<vfs::Attributes> MemoryFileSystem::lookup(vfs::NodeId parent, vfs::Name name) {
    std::unique_lock lock(mutex_);
    Node* directory = TRY(find_directory(parent));
    vfs::NodeId id = directory->attributes.node;
    if (name == vfs::Name("..")) {
        id = directory->parent;
    } else if (!(name == vfs::Name("."))) {
        id = TRY(find_entry(*directory, name)).node;
    }
    Node* node = TRY(find(id));
    ++node->references;
    return attributes_of(*node);
}

void MemoryFileSystem::forget(vfs::NodeId node, uint64_t count) {
    std::unique_lock lock(mutex_);
    auto found = nodes_.find(node);
    if (found == nodes_.end()) {
        return;
    }
    if (node != vfs::kRootNode) {
        TIFFIN_ASSERT(found->second.references >= count);
    }
    found->second.references -= std::min(found->second.references, count);
    delete_if_unused(found->second);
}

Result<vfs::Attributes> MemoryFileSystem::find_node(vfs::NodeId node, uint64_t generation) {
    std::unique_lock lock(mutex_);
    Node* found = TRY(find(node));
    if (generation != 0 && generation != found->attributes.generation) {
        return Error::estale;
    }
    ++found->references;
    return attributes_of(*found);
}

Result<vfs::Attributes> MemoryFileSystem::get_attributes(vfs::NodeId node) {
    std::shared_lock lock(mutex_);
    return attributes_of(*TRY(find(node)));
}

Result<vfs::Attributes> MemoryFileSystem::set_attributes(const vfs::Caller& /*caller*/,
                                                         vfs::NodeId id,
                                                         const vfs::AttributeChange& change) {
    using Change = vfs::AttributeChange;
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    Node* node = TRY(find(id));
    auto has = [&](uint32_t bit) { return (change.valid & bit) != 0; };
    // Append-only files take no other change than times "now" and the loss of privileges. A host that sends the times
    // of writes that were legal when they were made is not refused.
    constexpr uint32_t kNow = Change::access_now_bit | Change::modification_now_bit;
    constexpr uint32_t kTimesOfWrites = Change::modification_time_bit | Change::change_time_bit;
    bool sent_back = change.valid == kTimesOfWrites;
    bool touch_only =
        (node->attributes.flags & vfs::file_flag::immutable) == 0 &&
        (change.valid & ~(kNow | Change::kill_privileges_bit | Change::kill_set_group_id_bit)) == 0;
    if (!sent_back && !touch_only) {
        TRY(check_changeable(*node));
    }
    if (has(Change::size_bit)) {
        TRY(find_file(id));
        if (change.size_bytes > kMaxFileBytes) {
            return Error::efbig;
        }
        set_size(*node, change.size_bytes);
        node->attributes.modification_time = now();
    }
    vfs::Attributes& attributes = node->attributes;
    if (has(Change::user_id_bit)) {
        attributes.user_id = change.user_id;
    }
    if (has(Change::group_id_bit)) {
        attributes.group_id = change.group_id;
    }
    bool owner_changed = has(Change::user_id_bit) || has(Change::group_id_bit);
    if (has(Change::kill_privileges_bit) ||
        (owner_changed && !vfs::mode::is_directory(attributes.mode))) {
        kill_privileges(*node);
        if (has(Change::kill_set_group_id_bit)) {
            attributes.mode &= ~vfs::mode::set_group_id;
        }
    }
    if (has(Change::mode_bit)) {
        attributes.mode =
            (attributes.mode & vfs::mode::type_mask) | (change.mode & vfs::mode::permission_mask);
    }
    if (has(Change::access_now_bit)) {
        attributes.access_time = now();
    } else if (has(Change::access_time_bit)) {
        attributes.access_time = change.access_time;
    }
    if (has(Change::modification_now_bit)) {
        attributes.modification_time = now();
    } else if (has(Change::modification_time_bit)) {
        attributes.modification_time = change.modification_time;
    }
    attributes.change_time = has(Change::change_time_bit) ? change.change_time : now();
    return attributes_of(*node);
}

Result<void> MemoryFileSystem::set_flags(const vfs::Caller& /*caller*/, vfs::NodeId id,
                                         uint32_t flags) {
    std::unique_lock lock(mutex_);
    TRY(check_writable());
    Node* node = TRY(find(id));
    if ((flags & ~vfs::file_flag::settable) != 0) {
        return Error::eopnotsupp;
    }
    node->attributes.flags = flags;
    touch_change(*node);
    return {};
}

// ---- Reading directories -----------------------------------------------------------------------

Result<void> MemoryFileSystem::read_directory(vfs::NodeId id, vfs::Handle /*handle*/,
                                              uint64_t cookie, bool with_attributes,
                                              vfs::DirectorySink& sink) {
    std::unique_lock lock(mutex_);
    Node* directory = TRY(find_directory(id));
    auto hand_out = [&](vfs::Name name, vfs::NodeId child, uint64_t next, bool is_dot) {
        Node& node = nodes_.at(child);
        vfs::Attributes attributes = attributes_of(node);
        vfs::DirectoryEntry entry;
        entry.name = name;
        entry.node = child;
        entry.type_mode = attributes.mode & vfs::mode::type_mask;
        entry.next_cookie = next;
        entry.attributes = with_attributes ? &attributes : nullptr;
        if (!sink.add(entry)) {
            return false;
        }
        node.references += with_attributes && !is_dot ? 1 : 0;
        return true;
    };
    if (cookie == 0 && !hand_out(".", id, kDotDotCookie, true)) {
        return {};
    }
    if (cookie <= kDotDotCookie && !hand_out("..", directory->parent, kDotDotCookie + 1, true)) {
        return {};
    }
    auto next = directory->names_by_cookie.lower_bound(cookie);
    for (; next != directory->names_by_cookie.end(); ++next) {
        const std::string& name = next->second;
        if (!hand_out({name.data(), name.size()}, directory->entries.at(name).node, next->first + 1,
                      false)) {
            break;
        }
    }
    return {};
}

}  // namespace tiffin::testing
