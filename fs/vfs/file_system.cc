// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The defaults of the contract: an optional operation that is not implemented says so; read() and write() go the lower
// path.
#include "fs/vfs/file_system.h"

#include "fs/vfs/content_reader.h"
#include "fs/vfs/content_writer.h"

namespace tiffin::vfs {

Result<void> FileSystem::remount(bool /*read_only*/) { return Error::eopnotsupp; }

Result<void> FileSystem::freeze() { return Error::eopnotsupp; }

Result<void> FileSystem::thaw() { return Error::einval; }

uint64_t FileSystem::reclaimable_bytes() { return 0; }

uint64_t FileSystem::shrink(uint64_t /*wanted_bytes*/) { return 0; }

Result<void> FileSystem::list_references(NodeSink& /*sink*/) { return Error::eopnotsupp; }

Result<Attributes> FileSystem::find_node(NodeId /*node*/, uint64_t /*generation*/) {
    return Error::estale;
}

Result<Attributes> FileSystem::set_attributes(const Caller& /*caller*/, NodeId /*node*/,
                                              const AttributeChange& /*change*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::set_flags(const Caller& /*caller*/, NodeId /*node*/, uint32_t /*flags*/) {
    return Error::eopnotsupp;
}

Result<Attributes> FileSystem::create(const Caller& /*caller*/, NodeId /*parent*/, Name /*name*/,
                                      uint32_t /*mode*/, uint32_t /*device_major*/,
                                      uint32_t /*device_minor*/,
                                      Span<const InitialXattr> /*xattrs*/) {
    return Error::eopnotsupp;
}

Result<Attributes> FileSystem::make_directory(const Caller& /*caller*/, NodeId /*parent*/,
                                              Name /*name*/, uint32_t /*mode*/,
                                              Span<const InitialXattr> /*xattrs*/) {
    return Error::eopnotsupp;
}

Result<Attributes> FileSystem::make_symlink(const Caller& /*caller*/, NodeId /*parent*/,
                                            Name /*name*/, Name /*target*/,
                                            Span<const InitialXattr> /*xattrs*/) {
    return Error::eopnotsupp;
}

Result<Attributes> FileSystem::make_temporary(const Caller& /*caller*/, NodeId /*parent*/,
                                              uint32_t /*mode*/,
                                              Span<const InitialXattr> /*xattrs*/) {
    return Error::eopnotsupp;
}

Result<Attributes> FileSystem::link(const Caller& /*caller*/, NodeId /*node*/,
                                    NodeId /*new_parent*/, Name /*new_name*/) {
    return Error::eopnotsupp;
}

Result<size_t> FileSystem::read_link(NodeId /*node*/, MutableByteSpan /*buffer*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::unlink(const Caller& /*caller*/, NodeId /*parent*/, Name /*name*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::remove_directory(const Caller& /*caller*/, NodeId /*parent*/,
                                          Name /*name*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::rename(const Caller& /*caller*/, NodeId /*parent*/, Name /*name*/,
                                NodeId /*new_parent*/, Name /*new_name*/, uint32_t /*flags*/) {
    return Error::eopnotsupp;
}

Result<Handle> FileSystem::open(NodeId /*node*/, uint32_t /*open_flags*/) { return Error::enosys; }

void FileSystem::release(NodeId /*node*/, Handle /*handle*/) {}

Result<void> FileSystem::fsync(NodeId /*node*/, bool /*data_only*/) { return Error::eopnotsupp; }

Result<void> FileSystem::allocate(NodeId /*node*/, uint32_t /*mode*/, uint64_t /*offset_bytes*/,
                                  uint64_t /*length_bytes*/) {
    return Error::eopnotsupp;
}

Result<uint64_t> FileSystem::seek(NodeId /*node*/, uint64_t /*offset_bytes*/,
                                  SeekTarget /*target*/) {
    return Error::eopnotsupp;
}

Result<uint64_t> FileSystem::copy_range(NodeId /*source*/, uint64_t /*source_offset_bytes*/,
                                        NodeId /*destination*/,
                                        uint64_t /*destination_offset_bytes*/,
                                        uint64_t /*length_bytes*/) {
    return Error::eopnotsupp;
}

Result<size_t> FileSystem::read(NodeId node, Handle /*handle*/, uint64_t offset_bytes,
                                Span<const IoVector> buffers) {
    return read_content(*this, node, offset_bytes, buffers);
}

Result<size_t> FileSystem::write(NodeId node, Handle /*handle*/, uint64_t offset_bytes,
                                 Span<const IoVector> buffers, uint32_t flags) {
    return write_content(*this, node, offset_bytes, buffers, flags);
}

BlockDevice* FileSystem::device() { return nullptr; }

Result<void> FileSystem::map_read(NodeId /*node*/, uint64_t /*offset_bytes*/,
                                  uint64_t /*length_bytes*/, ReadMapping& /*mapping*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::verify_read(const ReadMapping& /*mapping*/, uint32_t /*segment_index*/,
                                     Span<const IoVector> /*buffers*/, bool /*reports_damage*/) {
    return Error::eopnotsupp;
}

void FileSystem::release_read(ReadMapping& /*mapping*/) {}

void FileSystem::note_read(NodeId /*node*/) {}

Result<void> FileSystem::begin_write(NodeId /*node*/, uint64_t /*offset_bytes*/,
                                     uint64_t /*length_bytes*/, uint32_t /*flags*/,
                                     WriteGrant& /*grant*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::grant_write(WriteGrant& /*grant*/, uint64_t /*offset_bytes*/) {
    return Error::eopnotsupp;
}

Result<uint64_t> FileSystem::commit_write(WriteGrant& /*grant*/, Span<const uint32_t> /*checksums*/,
                                          ByteSpan /*content*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::end_write(WriteGrant& /*grant*/) { return Error::eopnotsupp; }

Result<void> FileSystem::promise(uint64_t /*block_count*/) { return Error::eopnotsupp; }

void FileSystem::return_promise(uint64_t /*block_count*/) {}

Result<void> FileSystem::reserve(NodeId /*node*/, uint64_t /*offset_bytes*/,
                                 uint64_t /*length_bytes*/) {
    return Error::eopnotsupp;
}

Result<size_t> FileSystem::get_xattr(NodeId /*node*/, Name /*name*/, MutableByteSpan /*buffer*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::set_xattr(const Caller& /*caller*/, NodeId /*node*/, Name /*name*/,
                                   ByteSpan /*value*/, uint32_t /*flags*/) {
    return Error::eopnotsupp;
}

Result<size_t> FileSystem::list_xattr(NodeId /*node*/, MutableByteSpan /*buffer*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::remove_xattr(const Caller& /*caller*/, NodeId /*node*/, Name /*name*/) {
    return Error::eopnotsupp;
}

Result<uint64_t> FileSystem::trim(uint64_t /*offset_bytes*/, uint64_t /*length_bytes*/,
                                  uint64_t /*minimum_bytes*/) {
    return Error::eopnotsupp;
}

Result<void> FileSystem::shutdown(ShutdownMode /*mode*/) { return Error::eopnotsupp; }

Result<void> FileSystem::scrub(ScrubProgress& /*progress*/) { return Error::eopnotsupp; }

Result<Growth> FileSystem::grow() { return Error::eopnotsupp; }

Result<void> FileSystem::describe(ByteSink& /*sink*/) { return Error::eopnotsupp; }

Result<size_t> FileSystem::control(NodeId /*node*/, uint32_t /*command*/, ByteSpan /*input*/,
                                   MutableByteSpan /*output*/) {
    return Error::enotty;
}

}  // namespace tiffin::vfs
