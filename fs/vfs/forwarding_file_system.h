// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The base of file systems that stand on another one and change some of what it does: every operation goes to the one
// below unless it is overridden. An operation that is added to the contract later is missing here until a test says so
// (Forwarding.HasEveryOperation).
//
// Nodes, handles, mappings and grants are those of the file system below. A class that overrides read() or write()
// overrides device() as well, with nullptr, so that hosts do not go past it.
#pragma once

#include "fs/vfs/file_system.h"

namespace tiffin::vfs {

class ForwardingFileSystem : public FileSystem {
  public:
    // `below` must outlive this, and is unmounted with it, but not destroyed.
    explicit ForwardingFileSystem(FileSystem& below) : below_(below) {}

    Result<void> unmount() override { return below_.unmount(); }
    Result<FileSystemStatistics> statistics() override { return below_.statistics(); }
    Result<void> sync(bool wait) override { return below_.sync(wait); }
    Result<void> remount(bool read_only) override { return below_.remount(read_only); }
    Result<void> freeze() override { return below_.freeze(); }
    Result<void> thaw() override { return below_.thaw(); }
    uint64_t reclaimable_bytes() override { return below_.reclaimable_bytes(); }
    uint64_t shrink(uint64_t wanted_bytes) override { return below_.shrink(wanted_bytes); }
    Result<Attributes> lookup(NodeId parent, Name name) override {
        return below_.lookup(parent, name);
    }
    void forget(NodeId node, uint64_t count) override { return below_.forget(node, count); }
    Result<void> list_references(NodeSink& sink) override { return below_.list_references(sink); }
    Result<Attributes> find_node(NodeId node, uint64_t generation) override {
        return below_.find_node(node, generation);
    }
    Result<Attributes> get_attributes(NodeId node) override { return below_.get_attributes(node); }
    Result<Attributes> set_attributes(const Caller& caller, NodeId node,
                                      const AttributeChange& change) override {
        return below_.set_attributes(caller, node, change);
    }
    Result<void> set_flags(const Caller& caller, NodeId node, uint32_t flags) override {
        return below_.set_flags(caller, node, flags);
    }
    Result<Attributes> create(const Caller& caller, NodeId parent, Name name, uint32_t mode,
                              uint32_t device_major, uint32_t device_minor,
                              Span<const InitialXattr> xattrs) override {
        return below_.create(caller, parent, name, mode, device_major, device_minor, xattrs);
    }
    Result<Attributes> make_directory(const Caller& caller, NodeId parent, Name name, uint32_t mode,
                                      Span<const InitialXattr> xattrs) override {
        return below_.make_directory(caller, parent, name, mode, xattrs);
    }
    Result<Attributes> make_symlink(const Caller& caller, NodeId parent, Name name, Name target,
                                    Span<const InitialXattr> xattrs) override {
        return below_.make_symlink(caller, parent, name, target, xattrs);
    }
    Result<Attributes> make_temporary(const Caller& caller, NodeId parent, uint32_t mode,
                                      Span<const InitialXattr> xattrs) override {
        return below_.make_temporary(caller, parent, mode, xattrs);
    }
    Result<Attributes> link(const Caller& caller, NodeId node, NodeId new_parent,
                            Name new_name) override {
        return below_.link(caller, node, new_parent, new_name);
    }
    Result<size_t> read_link(NodeId node, MutableByteSpan buffer) override {
        return below_.read_link(node, buffer);
    }
    Result<void> unlink(const Caller& caller, NodeId parent, Name name) override {
        return below_.unlink(caller, parent, name);
    }
    Result<void> remove_directory(const Caller& caller, NodeId parent, Name name) override {
        return below_.remove_directory(caller, parent, name);
    }
    Result<void> rename(const Caller& caller, NodeId parent, Name name, NodeId new_parent,
                        Name new_name, uint32_t flags) override {
        return below_.rename(caller, parent, name, new_parent, new_name, flags);
    }
    Result<Handle> open(NodeId node, uint32_t open_flags) override {
        return below_.open(node, open_flags);
    }
    void release(NodeId node, Handle handle) override { return below_.release(node, handle); }
    Result<size_t> read(NodeId node, Handle handle, uint64_t offset_bytes,
                        Span<const IoVector> buffers) override {
        return below_.read(node, handle, offset_bytes, buffers);
    }
    Result<size_t> write(NodeId node, Handle handle, uint64_t offset_bytes,
                         Span<const IoVector> buffers, uint32_t flags) override {
        return below_.write(node, handle, offset_bytes, buffers, flags);
    }
    Result<void> fsync(NodeId node, bool data_only) override {
        return below_.fsync(node, data_only);
    }
    Result<void> allocate(NodeId node, uint32_t mode, uint64_t offset_bytes,
                          uint64_t length_bytes) override {
        return below_.allocate(node, mode, offset_bytes, length_bytes);
    }
    Result<uint64_t> seek(NodeId node, uint64_t offset_bytes, SeekTarget target) override {
        return below_.seek(node, offset_bytes, target);
    }
    Result<uint64_t> copy_range(NodeId source, uint64_t source_offset_bytes, NodeId destination,
                                uint64_t destination_offset_bytes, uint64_t length_bytes) override {
        return below_.copy_range(source, source_offset_bytes, destination, destination_offset_bytes,
                                 length_bytes);
    }
    BlockDevice* device() override { return below_.device(); }
    Result<void> map_read(NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                          ReadMapping& mapping) override {
        return below_.map_read(node, offset_bytes, length_bytes, mapping);
    }
    Result<void> verify_read(const ReadMapping& mapping, uint32_t segment_index,
                             Span<const IoVector> buffers, bool reports_damage) override {
        return below_.verify_read(mapping, segment_index, buffers, reports_damage);
    }
    void release_read(ReadMapping& mapping) override { return below_.release_read(mapping); }
    void note_read(NodeId node) override { return below_.note_read(node); }
    Result<void> begin_write(NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                             uint32_t flags, WriteGrant& grant) override {
        return below_.begin_write(node, offset_bytes, length_bytes, flags, grant);
    }
    Result<void> grant_write(WriteGrant& grant, uint64_t offset_bytes) override {
        return below_.grant_write(grant, offset_bytes);
    }
    Result<uint64_t> commit_write(WriteGrant& grant, Span<const uint32_t> checksums,
                                  ByteSpan content) override {
        return below_.commit_write(grant, checksums, content);
    }
    Result<void> end_write(WriteGrant& grant) override { return below_.end_write(grant); }
    Result<void> promise(uint64_t block_count) override { return below_.promise(block_count); }
    void return_promise(uint64_t block_count) override { below_.return_promise(block_count); }
    Result<void> reserve(NodeId node, uint64_t offset_bytes, uint64_t length_bytes) override {
        return below_.reserve(node, offset_bytes, length_bytes);
    }
    Result<void> read_directory(NodeId node, Handle handle, uint64_t cookie, bool with_attributes,
                                DirectorySink& sink) override {
        return below_.read_directory(node, handle, cookie, with_attributes, sink);
    }
    Result<size_t> get_xattr(NodeId node, Name name, MutableByteSpan buffer) override {
        return below_.get_xattr(node, name, buffer);
    }
    Result<void> set_xattr(const Caller& caller, NodeId node, Name name, ByteSpan value,
                           uint32_t flags) override {
        return below_.set_xattr(caller, node, name, value, flags);
    }
    Result<size_t> list_xattr(NodeId node, MutableByteSpan buffer) override {
        return below_.list_xattr(node, buffer);
    }
    Result<void> remove_xattr(const Caller& caller, NodeId node, Name name) override {
        return below_.remove_xattr(caller, node, name);
    }
    Result<uint64_t> trim(uint64_t offset_bytes, uint64_t length_bytes,
                          uint64_t minimum_bytes) override {
        return below_.trim(offset_bytes, length_bytes, minimum_bytes);
    }
    Result<void> shutdown(ShutdownMode mode) override { return below_.shutdown(mode); }
    Result<void> scrub(ScrubProgress& progress) override { return below_.scrub(progress); }
    Result<Growth> grow() override { return below_.grow(); }
    Result<void> describe(ByteSink& sink) override { return below_.describe(sink); }
    Result<size_t> control(NodeId node, uint32_t command, ByteSpan input,
                           MutableByteSpan output) override {
        return below_.control(node, command, input, output);
    }

  protected:
    FileSystem& below() { return below_; }

  private:
    FileSystem& below_;
};

}  // namespace tiffin::vfs
