// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/lost_and_found.h"

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "fs/vfs/host.h"
#include "fs/vfs/types.h"
#include "fuse/check/links.h"
#include "fuse/check/names.h"

namespace tiffin::check {

using tiffinfs::InodeValue;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

namespace {

Key inode_key(uint64_t node) { return make_key(node, Kind::inode, 0); }

Result<bool> load_inode(KeySpace& keys, uint64_t node, InodeValue& inode) {
    KeyValue found;
    if (!TRY(keys.get(inode_key(node), found)) || found.value.size() != sizeof inode) {
        return false;
    }
    std::memcpy(&inode, found.value.data(), sizeof inode);
    return true;
}

InodeValue new_directory(uint32_t mode, uint64_t parent, uint64_t generation) {
    InodeValue inode{};
    inode.mode = vfs::mode::directory | mode;
    inode.link_count = 2;
    inode.parent = parent;
    inode.generation = generation;
    const int64_t now_ns = host::realtime_ns();
    const tiffinfs::DiskTime now{now_ns / 1000000000, static_cast<uint32_t>(now_ns % 1000000000),
                                 0};
    inode.access_time = inode.modification_time = inode.change_time = inode.birth_time = now;
    return inode;
}

// A new root, or what is called the root made into a directory. Its entries, if there are any, stay.
Result<void> make_root_directory(KeySpace& keys) {
    InodeValue inode;
    if (!TRY(load_inode(keys, vfs::kRootNode, inode))) {
        inode = new_directory(0755, vfs::kRootNode, vfs::kRootNode);
    }
    inode.mode = vfs::mode::directory | (inode.mode & vfs::mode::permission_mask);
    inode.link_count = 2;
    inode.parent = vfs::kRootNode;
    inode.size_bytes = 0;
    inode.allocated_blocks = 0;
    inode.inode_flags = 0;
    const Key first = make_key(vfs::kRootNode, Kind::entry, 0);
    const Key end = make_key(vfs::kRootNode, Kind::extent, 0);
    KeyValue found;
    for (Key cursor = first; TRY(keys.find_first(cursor, end, found));
         cursor = tiffinfs::next_key(found.key)) {
        ++inode.size_bytes;
    }
    keys.put_value(inode_key(vfs::kRootNode), inode);
    return {};
}

// The directory /lost+found, made when it does not exist. False: something else has its name, or no id is left for it.
Result<bool> find_or_make(KeySpace& keys, const tiffinfs::Superblock& superblock, uint64_t new_node,
                          uint64_t& node) {
    const EntryPlace place =
        TRY(find_entry(keys, vfs::kRootNode, name_hash(superblock, kLostAndFound), kLostAndFound));
    InodeValue inode;
    if (place.exists) {
        node = place.node;
        return TRY(load_inode(keys, node, inode)) && vfs::mode::is_directory(inode.mode);
    }
    node = new_node;
    if (node > tiffinfs::kMaximumNode) {
        return false;
    }
    if (!TRY(add_entry(keys, superblock, vfs::kRootNode, kLostAndFound, node,
                       vfs::mode::directory))) {
        return false;
    }
    keys.put_value(inode_key(node), new_directory(0700, vfs::kRootNode, node));
    if (TRY(load_inode(keys, vfs::kRootNode, inode))) {
        ++inode.size_bytes;
        ++inode.link_count;
        keys.put_value(inode_key(vfs::kRootNode), inode);
    }
    return true;
}

// Names like "#17"; the second try is "#17_1", in case there is a file of the first name.
Result<bool> add_name(KeySpace& keys, const tiffinfs::Superblock& superblock, uint64_t directory,
                      uint64_t node, uint32_t mode) {
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; ++i) {
        const std::string name = i == 0 ? fmt::format("#{}", node) : fmt::format("#{}_{}", node, i);
        if (TRY(add_entry(keys, superblock, directory, name, node, mode))) {
            return true;
        }
    }
    return false;
}

}  // namespace

void LostAndFound::stage(const tiffinfs::Superblock& superblock, Repairs& repairs) {
    if (make_root_) {
        repairs.later([](KeySpace& keys) { return make_root_directory(keys); });
    }
    if (lost_.empty()) {
        return;
    }
    repairs.later([&superblock, new_node = next_node_,
                   lost = std::exchange(lost_, {})](KeySpace& keys) -> Result<void> {
        uint64_t directory = vfs::kRootNode;
        if (!TRY(find_or_make(keys, superblock, new_node, directory))) {
            directory = vfs::kRootNode;  // better there than nowhere
        }
        InodeValue parent;
        if (!TRY(load_inode(keys, directory, parent))) {
            return {};  // without a root: the next pass makes one first
        }
        for (const Lost& object : lost) {
            InodeValue inode;
            if (!TRY(load_inode(keys, object.node, inode)) ||
                !TRY(add_name(keys, superblock, directory, object.node, object.mode))) {
                continue;
            }
            ++parent.size_bytes;
            if (vfs::mode::is_directory(inode.mode)) {
                ++parent.link_count;
                inode.parent = directory;
            } else {
                inode.link_count = 1;
            }
            keys.put_value(inode_key(object.node), inode);
        }
        keys.put_value(inode_key(directory), parent);
        return {};
    });
}

}  // namespace tiffin::check
