// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What an inode may hold, and what hosts see of it.
#include "fs/tiffinfs/objects/object.h"

namespace tiffin::tiffinfs {

bool check_inode(uint64_t node, const InodeValue& inode) {
    if (node > kMaximumNode) {
        return false;  // no orphan or intent key could name it, or no superblock the one after it
    }
    const auto good_time = [](const DiskTime& time) { return time.nanoseconds < 1000000000; };
    switch (inode.mode & vfs::mode::type_mask) {
        case vfs::mode::directory:
            // The number of its entries: each has a key of its own.
            if (inode.parent == 0 || inode.size_bytes > kKeyOffsetMask) {
                return false;
            }
            break;
        case vfs::mode::symlink:
            if (inode.size_bytes == 0 || inode.size_bytes > vfs::kSymlinkMaxBytes) {
                return false;
            }
            break;
        case vfs::mode::regular:
        case vfs::mode::socket:
        case vfs::mode::fifo:
        case vfs::mode::block_device:
        case vfs::mode::character_device:
            if (inode.size_bytes > kMaximumFileBytes) {
                return false;
            }
            break;
        default:
            return false;
    }
    return (node != vfs::kRootNode || vfs::mode::is_directory(inode.mode)) &&
           inode.allocated_blocks <= kMaximumBlocks && good_time(inode.access_time) &&
           good_time(inode.modification_time) && good_time(inode.change_time) &&
           good_time(inode.birth_time);
}

namespace {

uint32_t traits_of(uint32_t inode_flags) {
    constexpr struct {
        uint32_t flag;
        uint32_t trait;
    } kTraits[] = {{inode_flag::has_xattrs, vfs::attribute_trait::xattrs},
                   {inode_flag::has_capability, vfs::attribute_trait::capability},
                   {inode_flag::has_access_acl, vfs::attribute_trait::access_acl},
                   {inode_flag::has_default_acl, vfs::attribute_trait::default_acl},
                   {inode_flag::inline_data, vfs::attribute_trait::inline_content}};
    uint32_t traits = 0;
    for (const auto& each : kTraits) {
        traits |= (inode_flags & each.flag) != 0 ? each.trait : 0;
    }
    return traits;
}

}  // namespace

InodeValue inode_of(const Object& object) {
    if (!object.is_directory()) {
        return object.inode;
    }
    MutexLock lock(*object.count);
    return object.inode;
}

vfs::Attributes attributes_of(const Object& object) {
    constexpr uint64_t kDirectoryBytesPerEntry = 32;
    constexpr uint64_t kNameLostNs = 60'000'000'000;
    const InodeValue inode = inode_of(object);
    vfs::Attributes attributes;
    attributes.node = object.node;
    attributes.generation = inode.generation;
    attributes.mode = inode.mode;
    attributes.link_count = inode.link_count;
    attributes.user_id = inode.user_id;
    attributes.group_id = inode.group_id;
    attributes.device_major = inode.device_major;
    attributes.device_minor = inode.device_minor;
    attributes.size_bytes =
        object.is_directory() ? (inode.size_bytes + 2) * kDirectoryBytesPerEntry : inode.size_bytes;
    attributes.allocated_bytes = inode.allocated_blocks * kBlockBytes;
    if ((inode.inode_flags & inode_flag::inline_data) != 0) {
        attributes.allocated_bytes += (inode.size_bytes + 511) & ~uint64_t{511};
    }
    attributes.flags = inode.file_flags;
    attributes.traits = traits_of(inode.inode_flags);
    if (object.name_lost_ns != 0 && host::monotonic_ns() - object.name_lost_ns < kNameLostNs)
        [[unlikely]] {
        attributes.traits |= vfs::attribute_trait::name_lost;
    }
    attributes.change_counter = change_counter(inode);
    attributes.access_time = from_disk(inode.access_time);
    attributes.modification_time = from_disk(inode.modification_time);
    attributes.change_time = from_disk(inode.change_time);
    attributes.birth_time = from_disk(inode.birth_time);
    return attributes;
}

}  // namespace tiffin::tiffinfs
