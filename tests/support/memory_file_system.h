// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A file system in a few containers: complete by the contract, simple enough to be believed. Tests
// mount it to try hosts without tiffinfs, and compare other file systems with it.
//
// One lock guards everything; any thread may call. Not kept: ACLs (eopnotsupp).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "fs/vfs/file_system.h"

namespace tiffin::testing {

class MemoryFileSystem : public vfs::FileSystem {
  public:
    static constexpr uint64_t kMaxFileBytes = uint64_t{1} << 62;

    struct Options {
        // Blocks of data and symlinks beyond this give enospc.
        uint64_t capacity_bytes = uint64_t{1} << 30;
        bool read_only = false;
        bool update_access_times = true;
        // statistics() fails, with which hosts find out whether a mount answers.
        bool is_mute = false;
        uint32_t root_mode = 0755;
        uint32_t root_user_id = 0;
        uint32_t root_group_id = 0;
    };

    MemoryFileSystem();
    explicit MemoryFileSystem(const Options& options);
    ~MemoryFileSystem() override;

    // For tests: objects that exist, with or without a name, and references that hosts hold.
    uint64_t node_count() const;
    uint64_t reference_count() const;

    Result<void> unmount() override;
    Result<vfs::FileSystemStatistics> statistics() override;
    Result<void> sync(bool wait) override;
    Result<void> remount(bool read_only) override;

    Result<vfs::Attributes> lookup(vfs::NodeId parent, vfs::Name name) override;
    void forget(vfs::NodeId node, uint64_t count) override;
    Result<vfs::Attributes> find_node(vfs::NodeId node, uint64_t generation) override;

    Result<vfs::Attributes> get_attributes(vfs::NodeId node) override;
    Result<vfs::Attributes> set_attributes(const vfs::Caller& caller, vfs::NodeId node,
                                           const vfs::AttributeChange& change) override;
    Result<void> set_flags(const vfs::Caller& caller, vfs::NodeId node, uint32_t flags) override;

    Result<vfs::Attributes> create(const vfs::Caller& caller, vfs::NodeId parent, vfs::Name name,
                                   uint32_t mode, uint32_t device_major, uint32_t device_minor,
                                   Span<const vfs::InitialXattr> xattrs) override;
    Result<vfs::Attributes> make_directory(const vfs::Caller& caller, vfs::NodeId parent,
                                           vfs::Name name, uint32_t mode,
                                           Span<const vfs::InitialXattr> xattrs) override;
    Result<vfs::Attributes> make_symlink(const vfs::Caller& caller, vfs::NodeId parent,
                                         vfs::Name name, vfs::Name target,
                                         Span<const vfs::InitialXattr> xattrs) override;
    Result<vfs::Attributes> make_temporary(const vfs::Caller& caller, vfs::NodeId parent,
                                           uint32_t mode,
                                           Span<const vfs::InitialXattr> xattrs) override;
    Result<vfs::Attributes> link(const vfs::Caller& caller, vfs::NodeId node,
                                 vfs::NodeId new_parent, vfs::Name new_name) override;
    Result<size_t> read_link(vfs::NodeId node, MutableByteSpan buffer) override;

    Result<void> unlink(const vfs::Caller& caller, vfs::NodeId parent, vfs::Name name) override;
    Result<void> remove_directory(const vfs::Caller& caller, vfs::NodeId parent,
                                  vfs::Name name) override;
    Result<void> rename(const vfs::Caller& caller, vfs::NodeId parent, vfs::Name name,
                        vfs::NodeId new_parent, vfs::Name new_name, uint32_t flags) override;

    Result<size_t> read(vfs::NodeId node, vfs::Handle handle, uint64_t offset_bytes,
                        Span<const vfs::IoVector> buffers) override;
    Result<size_t> write(vfs::NodeId node, vfs::Handle handle, uint64_t offset_bytes,
                         Span<const vfs::IoVector> buffers, uint32_t flags) override;
    Result<void> fsync(vfs::NodeId node, bool data_only) override;
    Result<void> allocate(vfs::NodeId node, uint32_t mode, uint64_t offset_bytes,
                          uint64_t length_bytes) override;
    Result<uint64_t> seek(vfs::NodeId node, uint64_t offset_bytes, vfs::SeekTarget target) override;
    Result<uint64_t> copy_range(vfs::NodeId source, uint64_t source_offset_bytes,
                                vfs::NodeId destination, uint64_t destination_offset_bytes,
                                uint64_t length_bytes) override;

    Result<void> read_directory(vfs::NodeId node, vfs::Handle handle, uint64_t cookie,
                                bool with_attributes, vfs::DirectorySink& sink) override;

    Result<size_t> get_xattr(vfs::NodeId node, vfs::Name name, MutableByteSpan buffer) override;
    Result<void> set_xattr(const vfs::Caller& caller, vfs::NodeId node, vfs::Name name,
                           ByteSpan value, uint32_t flags) override;
    Result<size_t> list_xattr(vfs::NodeId node, MutableByteSpan buffer) override;
    Result<void> remove_xattr(const vfs::Caller& caller, vfs::NodeId node, vfs::Name name) override;

    Result<uint64_t> trim(uint64_t offset_bytes, uint64_t length_bytes,
                          uint64_t minimum_bytes) override;
    Result<void> shutdown(vfs::ShutdownMode mode) override;
    Result<void> scrub(vfs::ScrubProgress& progress) override;
    Result<void> describe(vfs::ByteSink& sink) override;

  private:
    using Block = std::array<unsigned char, vfs::kBlockBytes>;

    struct Entry {
        vfs::NodeId node;
        uint64_t cookie;  // where reading finds this entry
    };

    struct Node {
        vfs::Attributes attributes;
        uint64_t references = 0;
        std::map<uint64_t, std::unique_ptr<Block>> blocks;  // by number; absent ones are holes
        std::string target;                                 // of a symlink
        std::map<std::string, std::vector<unsigned char>> xattrs;
        // Of a directory.
        vfs::NodeId parent = 0;
        std::map<std::string, Entry> entries;
        std::map<uint64_t, std::string> names_by_cookie;
        uint64_t next_cookie = 2;  // 0 and 1 are "." and ".."
    };

    // All below: with the lock held, exclusively for what changes.
    Result<Node*> find(vfs::NodeId node);
    Result<Node*> find_directory(vfs::NodeId node);
    Result<Node*> find_file(vfs::NodeId node);
    Result<Entry> find_entry(Node& directory, vfs::Name name);
    Result<void> check_writable() const;
    static Result<void> check_name(vfs::Name name);
    static Result<void> check_changeable(const Node& node);
    Result<Node*> check_new_name(vfs::NodeId parent, vfs::Name name);
    Node& add_node(const vfs::Caller& caller, Node& parent, uint32_t mode);
    void add_entry(Node& directory, vfs::Name name, Node& child);
    void remove_entry(Node& directory, vfs::Name name);
    void drop_link(Node& node);
    void delete_if_unused(Node& node);
    Result<void> check_replaceable(Node& moved, Node& target, bool exchange);
    bool is_below(const Node& directory, vfs::NodeId ancestor);
    vfs::Attributes attributes_of(const Node& node) const;

    // Returns the bytes written, fewer when the capacity is reached.
    size_t put_bytes(Node& node, uint64_t offset, const unsigned char* data, size_t size);
    // Reading moves the access time, once a day and after changes.
    void touch_access(Node& node) const;
    static void get_bytes(const Node& node, uint64_t offset, unsigned char* data, size_t size);
    // nullptr when the capacity is reached.
    Block* block_for_writing(Node& node, uint64_t number);
    void free_blocks(Node& node, uint64_t first, uint64_t end);
    void zero_range(Node& node, uint64_t offset, uint64_t end);
    void set_size(Node& node, uint64_t size);
    Result<void> shift_range(Node& node, uint64_t offset, uint64_t length, bool insert);
    static void kill_privileges(Node& node);
    static void touch_data(Node& node);
    static void touch_change(Node& node);

    mutable std::shared_mutex mutex_;
    Options options_;
    bool shut_down_ = false;
    std::map<vfs::NodeId, Node> nodes_;
    vfs::NodeId next_node_ = vfs::kRootNode;
    uint64_t used_blocks_ = 0;
};

}  // namespace tiffin::testing
