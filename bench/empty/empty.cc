// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A file system that does as little as one can: names and attributes are in memory, in one table; of content it keeps the
// size, so that all reads as zeros that the page cache does not have. What an operation takes is what the framework takes.
// For bench/kernel only: what would be wrong in a file system for use (content lost, a fixed number of objects, flags
// of rename refused) costs nothing there.
#include "fs/base/allocate.h"
#include "fs/vfs/file_system.h"
#include "kmod/adapter/mount.h"

namespace tiffin::empty {
namespace {

using vfs::AttributeChange;
using vfs::Attributes;
using vfs::Caller;
using vfs::kBlockBytes;
using vfs::NodeId;

constexpr uint64_t kMostNodes = 8192;  // a power of two
constexpr size_t kMostNameBytes = 63;

struct Node {
    Attributes attributes;  // node 0: it is free
    uint64_t references = 0;
    uint64_t children = 0;
    NodeId parent = 0;  // 0: it has no name
    NodeId last_number = 0;
    Node* next = nullptr;  // with the same hash, or that is free
    size_t name_bytes = 0;
    char name[kMostNameBytes];
};

class EmptyFileSystem final : public vfs::FileSystem {
  public:
    explicit EmptyFileSystem(vfs::BlockDevice& device) : device_(device) {}
    ~EmptyFileSystem() override { release_array(nodes_, kMostNodes); }

    Result<void> begin() {
        nodes_ = allocate_array<Node>(kMostNodes);
        if (nodes_ == nullptr) {
            return Error::enomem;
        }
        MutexLock lock(mutex_);
        Node* root = TRY(new_node({}, vfs::mode::directory | 0755U));
        root->attributes.link_count = 2;
        return {};
    }

    Result<void> unmount() override { return {}; }
    Result<void> sync(bool /*wait*/) override { return {}; }
    Result<void> fsync(NodeId /*node*/, bool /*data_only*/) override { return {}; }
    Result<vfs::FileSystemStatistics> statistics() override {
        vfs::FileSystemStatistics statistics;
        statistics.total_blocks = statistics.free_blocks = statistics.available_blocks =
            device_.geometry().size_bytes / kBlockBytes;
        statistics.total_nodes = statistics.free_nodes = kMostNodes;
        return statistics;
    }

    // ---- Nodes and attributes.
    Result<Attributes> lookup(NodeId parent, vfs::Name name) override {
        MutexLock lock(mutex_);
        Node* directory = TRY(find(parent));
        if (name == vfs::Name(".") || name == vfs::Name("..")) {
            Node* found = name == vfs::Name(".") || parent == vfs::kRootNode
                              ? directory
                              : TRY(find(directory->parent));
            ++found->references;
            return found->attributes;
        }
        Node* found = find_name(parent, name);
        if (found == nullptr) {
            return Error::enoent;
        }
        ++found->references;
        return found->attributes;
    }
    void forget(NodeId node, uint64_t count) override {
        MutexLock lock(mutex_);
        Node* found = find_or_null(node);
        if (found != nullptr) {
            found->references -= count < found->references ? count : found->references;
            free_if_unused(*found);
        }
    }
    Result<Attributes> get_attributes(NodeId node) override {
        MutexLock lock(mutex_);
        return TRY(find(node))->attributes;
    }
    Result<Attributes> set_attributes(const Caller& /*caller*/, NodeId node,
                                      const AttributeChange& change) override {
        MutexLock lock(mutex_);
        Attributes& attributes = TRY(find(node))->attributes;
        const auto has = [&](AttributeChange::Valid bit) { return (change.valid & bit) != 0; };
        if (has(AttributeChange::mode_bit)) {
            attributes.mode = (attributes.mode & vfs::mode::type_mask) | change.mode;
        }
        attributes.user_id =
            has(AttributeChange::user_id_bit) ? change.user_id : attributes.user_id;
        attributes.group_id =
            has(AttributeChange::group_id_bit) ? change.group_id : attributes.group_id;
        attributes.size_bytes =
            has(AttributeChange::size_bit) ? change.size_bytes : attributes.size_bytes;
        if (has(AttributeChange::access_time_bit)) {
            attributes.access_time = change.access_time;
        }
        if (has(AttributeChange::modification_time_bit)) {
            attributes.modification_time = change.modification_time;
        }
        attributes.change_time = has(AttributeChange::change_time_bit) ? change.change_time : now();
        return attributes;
    }

    // ---- Names.
    Result<Attributes> create(const Caller& caller, NodeId parent, vfs::Name name, uint32_t mode,
                              uint32_t /*device_major*/, uint32_t /*device_minor*/,
                              Span<const vfs::InitialXattr> /*xattrs*/) override {
        return add(caller, parent, name,
                   (mode & vfs::mode::type_mask) != 0 ? mode : mode | vfs::mode::regular);
    }
    Result<Attributes> make_directory(const Caller& caller, NodeId parent, vfs::Name name,
                                      uint32_t mode,
                                      Span<const vfs::InitialXattr> /*xattrs*/) override {
        return add(caller, parent, name,
                   (mode & vfs::mode::permission_mask) | vfs::mode::directory);
    }
    Result<void> unlink(const Caller& /*caller*/, NodeId parent, vfs::Name name) override {
        return remove(parent, name);
    }
    Result<void> remove_directory(const Caller& /*caller*/, NodeId parent,
                                  vfs::Name name) override {
        return remove(parent, name);
    }
    Result<void> rename(const Caller& /*caller*/, NodeId parent, vfs::Name name, NodeId new_parent,
                        vfs::Name new_name, uint32_t flags) override {
        if ((flags & ~vfs::rename_flag::no_replace) != 0) {
            return Error::einval;
        }
        MutexLock lock(mutex_);
        Node* node = find_name(parent, name);
        Node* replaced = find_name(new_parent, new_name);
        if (node == nullptr || new_name.size_bytes > kMostNameBytes) {
            return node == nullptr ? Error::enoent : Error::enametoolong;
        }
        if (replaced == node) {
            return {};
        }
        if (replaced != nullptr) {
            if ((flags & vfs::rename_flag::no_replace) != 0 || replaced->children > 0) {
                return replaced->children > 0 ? Error::enotempty : Error::eexist;
            }
            take_name(*replaced);
            drop(*replaced);
        }
        take_name(*node);
        give_name(*node, new_parent, new_name);
        node->attributes.change_time = now();
        return {};
    }
    // The cookie of "." is 1 and of ".." 2; a name has its node's place.
    Result<void> read_directory(NodeId node, vfs::Handle /*handle*/, uint64_t cookie,
                                bool /*with_attributes*/, vfs::DirectorySink& sink) override {
        for (uint64_t i = cookie;; ++i) {
            char name[kMostNameBytes];
            vfs::DirectoryEntry entry;
            entry.next_cookie = i + 1;
            if (i < 2) {
                entry.name = i == 0 ? vfs::Name(".") : vfs::Name("..");
                entry.node = node;
                entry.type_mode = vfs::mode::directory;
            } else {
                MutexLock lock(mutex_);
                if (i - 2 >= used_) {
                    break;
                }
                const Node& found = nodes_[i - 2];
                if (found.attributes.node == 0 || found.parent != node) {
                    continue;
                }
                __builtin_memcpy(name, found.name, found.name_bytes);
                entry.name = vfs::Name(name, found.name_bytes);
                entry.node = found.attributes.node;
                entry.type_mode = found.attributes.mode & vfs::mode::type_mask;
            }
            if (!sink.add(entry)) {
                break;
            }
        }
        return {};
    }

    // ---- Content: all of a file is a hole, and what is written goes to the beginning of the device.
    vfs::BlockDevice* device() override { return &device_; }
    Result<void> promise(uint64_t /*block_count*/) override { return {}; }
    void return_promise(uint64_t /*block_count*/) override {}
    Result<void> reserve(NodeId /*node*/, uint64_t /*offset_bytes*/,
                         uint64_t /*length_bytes*/) override {
        return {};
    }
    Result<void> map_read(NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                          vfs::ReadMapping& mapping) override {
        const uint64_t size_bytes = TRY(get_attributes(node)).size_bytes;
        const uint64_t begin = offset_bytes & ~uint64_t{kBlockBytes - 1};
        const uint64_t asked_end = offset_bytes + length_bytes;
        const uint64_t end =
            blocks_of(asked_end < size_bytes ? asked_end : size_bytes) * kBlockBytes;
        mapping.node = node;
        mapping.file_size_bytes = size_bytes;
        mapping.offset_bytes = begin;
        mapping.length_bytes = end > begin ? end - begin : 0;
        mapping.segment_count = end > begin ? 1 : 0;
        mapping.segments[0] = {};
        mapping.segments[0].file_offset_bytes = begin;
        mapping.segments[0].length_bytes = mapping.length_bytes;
        mapping.active = true;
        return {};
    }
    Result<void> verify_read(const vfs::ReadMapping& /*mapping*/, uint32_t /*segment_index*/,
                             Span<const vfs::IoVector> /*buffers*/,
                             bool /*reports_damage*/) override {
        return {};
    }
    void release_read(vfs::ReadMapping& mapping) override { mapping.active = false; }
    Result<void> begin_write(NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                             uint32_t flags, vfs::WriteGrant& grant) override {
        const uint64_t size_bytes = TRY(get_attributes(node)).size_bytes;
        grant.node = node;
        grant.start_bytes = (flags & vfs::write_flag::append) != 0 ? size_bytes : offset_bytes;
        grant.end_bytes = grant.start_bytes + length_bytes;
        grant.flags = flags;
        grant.active = true;
        return {};
    }
    Result<void> grant_write(vfs::WriteGrant& grant, uint64_t offset_bytes) override {
        const uint64_t first_block = offset_bytes / kBlockBytes;
        const uint64_t most_end = (first_block + vfs::WriteGrant::kMaxBlocks) * kBlockBytes;
        const uint64_t end = grant.end_bytes < most_end ? grant.end_bytes : most_end;
        grant.granted = true;
        grant.offset_bytes = offset_bytes;
        grant.length_bytes = end - offset_bytes;
        grant.takes_content = false;
        grant.segment_count = 1;
        grant.segments[0] = {0, (blocks_of(end) - first_block) * kBlockBytes};
        return {};
    }
    Result<uint64_t> commit_write(vfs::WriteGrant& grant, Span<const uint32_t> /*checksums*/,
                                  ByteSpan /*content*/) override {
        MutexLock lock(mutex_);
        Attributes& attributes = TRY(find(grant.node))->attributes;
        const uint64_t end = grant.offset_bytes + grant.length_bytes;
        attributes.size_bytes = attributes.size_bytes < end ? end : attributes.size_bytes;
        if ((grant.flags & vfs::write_flag::keep_times) == 0) {
            attributes.modification_time = attributes.change_time = now();
        }
        grant.granted = false;
        return grant.length_bytes;
    }
    Result<void> end_write(vfs::WriteGrant& grant) override {
        grant.active = false;
        return {};
    }

  private:
    static constexpr uint64_t blocks_of(uint64_t end_bytes) {
        return (end_bytes + kBlockBytes - 1) / kBlockBytes;
    }
    static vfs::Timestamp now() {
        int64_t time_ns = host::realtime_ns();
        return {time_ns / 1'000'000'000, static_cast<uint32_t>(time_ns % 1'000'000'000)};
    }

    Node* find_or_null(NodeId number) REQUIRES(mutex_) {
        Node& node = nodes_[(number - 1) & (kMostNodes - 1)];
        return number != 0 && node.attributes.node == number ? &node : nullptr;
    }
    Result<Node*> find(NodeId number) REQUIRES(mutex_) {
        Node* node = find_or_null(number);
        return node != nullptr ? Result<Node*>(node) : Error::estale;
    }

    Node*& bucket_of(NodeId parent, vfs::Name name) REQUIRES(mutex_) {
        uint64_t hash = parent;
        for (size_t i = 0; i < name.size_bytes; ++i) {
            hash = (hash ^ static_cast<unsigned char>(name.data[i])) * 0x100000001b3;
        }
        return buckets_[(hash ^ hash >> 32) & (kMostNodes - 1)];
    }
    Node* find_name(NodeId parent, vfs::Name name) REQUIRES(mutex_) {
        Node* node = bucket_of(parent, name);
        while (node != nullptr &&
               !(node->parent == parent && vfs::Name(node->name, node->name_bytes) == name)) {
            node = node->next;
        }
        return node;
    }

    Result<Attributes> add(const Caller& caller, NodeId parent, vfs::Name name, uint32_t mode) {
        MutexLock lock(mutex_);
        TRY(find(parent));
        if (name.size_bytes > kMostNameBytes) {
            return Error::enametoolong;
        }
        if (find_name(parent, name) != nullptr) {
            return Error::eexist;
        }
        Node* node = TRY(new_node(caller, mode));
        node->references = 1;
        give_name(*node, parent, name);
        return node->attributes;
    }
    Result<void> remove(NodeId parent, vfs::Name name) {
        MutexLock lock(mutex_);
        Node* node = find_name(parent, name);
        if (node == nullptr || node->children > 0) {
            return node == nullptr ? Error::enoent : Error::enotempty;
        }
        take_name(*node);
        drop(*node);
        return {};
    }

    Result<Node*> new_node(const Caller& caller, uint32_t mode) REQUIRES(mutex_) {
        Node* node = free_;
        if (node == nullptr && used_ == kMostNodes) {
            return Error::enospc;
        }
        free_ = node != nullptr ? node->next : nullptr;
        node = node != nullptr ? node : &nodes_[used_++];
        const bool is_directory = vfs::mode::is_directory(mode);
        // Numbers are not used again: the next one that finds this place is as many further.
        const NodeId number = node->last_number != 0 ? node->last_number + kMostNodes
                                                     : static_cast<NodeId>(node - nodes_) + 1;
        *node = {};
        node->last_number = number;
        Attributes& attributes = node->attributes;
        attributes.node = number;
        attributes.mode =
            (mode & vfs::mode::type_mask) | (mode & vfs::mode::permission_mask & ~caller.umask);
        attributes.link_count = is_directory ? 2 : 1;
        attributes.user_id = caller.user_id;
        attributes.group_id = caller.group_id;
        attributes.access_time = attributes.modification_time = attributes.change_time =
            attributes.birth_time = now();
        return node;
    }
    void give_name(Node& node, NodeId parent, vfs::Name name) REQUIRES(mutex_) {
        node.parent = parent;
        node.name_bytes = name.size_bytes;
        __builtin_memcpy(node.name, name.data, name.size_bytes);
        Node*& bucket = bucket_of(parent, name);
        node.next = bucket;
        bucket = &node;
        count_child(node, 1);
    }
    void take_name(Node& node) REQUIRES(mutex_) {
        Node** place = &bucket_of(node.parent, vfs::Name(node.name, node.name_bytes));
        while (*place != &node) {
            place = &(*place)->next;
        }
        *place = node.next;
        count_child(node, -1);
        node.parent = 0;
    }
    void count_child(const Node& node, int difference) REQUIRES(mutex_) {
        Node* parent = find_or_null(node.parent);
        parent->children += static_cast<uint64_t>(int64_t{difference});
        if (vfs::mode::is_directory(node.attributes.mode)) {
            parent->attributes.link_count += static_cast<uint32_t>(difference);
        }
        parent->attributes.modification_time = parent->attributes.change_time = now();
    }
    // Without a name it lives as long as somebody refers to it.
    void drop(Node& node) REQUIRES(mutex_) {
        node.attributes.link_count = 0;
        node.attributes.change_time = now();
        free_if_unused(node);
    }
    void free_if_unused(Node& node) REQUIRES(mutex_) {
        if (node.references == 0 && node.attributes.link_count == 0) {
            node.attributes.node = 0;
            node.next = free_;
            free_ = &node;
        }
    }

    vfs::BlockDevice& device_;
    host::Mutex mutex_{host::LockClass::leaf};
    Node* nodes_ = nullptr;
    uint64_t used_ GUARDED_BY(mutex_) = 0;     // places of nodes_ that a node was in
    Node* free_ GUARDED_BY(mutex_) = nullptr;  // of these
    Node* buckets_[kMostNodes] GUARDED_BY(mutex_) = {};
};

Result<vfs::FileSystem*> mount(vfs::BlockDevice* device, const tiffin_mount_options& /*options*/) {
    auto* file_system = make_object<EmptyFileSystem>(*device);
    if (file_system == nullptr) {
        return Error::enomem;
    }
    const Result<void> begun = file_system->begin();
    if (!begun.ok()) {
        destroy_object(file_system);
        return begun.error();
    }
    return file_system;
}

void destroy(vfs::FileSystem* file_system) {
    destroy_object(static_cast<EmptyFileSystem*>(file_system));
}

}  // namespace
}  // namespace tiffin::empty

const tiffin::kmod::FileSystemType tiffin::kmod::kFileSystemType = {
    .needs_device = true,
    .inline_bytes = 0,
    .maximum_file_bytes = 0,
    .mount = tiffin::empty::mount,
    .destroy = tiffin::empty::destroy,
};
