// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One pass over all keys: everything that can be seen of an object by looking at it alone, and the
// tables that the passes after it need.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/vfs/types.h"
#include "fuse/check/context.h"
#include "fuse/check/key_space.h"
#include "fuse/check/missing_keys.h"
#include "fuse/check/repairs.h"
#include "fuse/check/space_map.h"

namespace tiffin::check {

struct ObjectInfo {
    uint64_t node = 0;
    uint64_t parent = 0;  // what the inode of a directory says
    uint32_t mode = 0;
    uint32_t link_count = 0;  // what the inode says
    uint32_t inode_flags = 0;
    uint32_t links_begin =
        0;  // the names of the object: index into Objects::links, set when sorted
    bool has_entries = false;

    bool is_directory() const { return vfs::mode::is_directory(mode); }
};

// A name of an object: the entry at `offset` in directory `parent`.
struct Link {
    uint64_t child = 0;
    uint64_t parent = 0;
    uint64_t offset_and_type = 0;  // the entry's type in the upper 4 bits

    uint64_t offset() const { return offset_and_type & tiffinfs::kKeyOffsetMask; }
    uint32_t type_mode() const {
        return static_cast<uint32_t>(offset_and_type >> tiffinfs::kKeyOffsetBits) << 12;
    }
    tiffinfs::Key key() const {
        return tiffinfs::make_key(parent, tiffinfs::Kind::entry, offset());
    }
};

// Blocks [first, end) of a file.
struct FileBlocks {
    uint64_t first = 0;
    uint64_t end = 0;
};

// A file that has less than its inode counts, or whose keys are missing.
struct LostContent {
    uint64_t node = 0;
    tiffinfs::InodeValue inode{};
    uint64_t mapped_blocks = 0;
    std::vector<FileBlocks> blocks;  // where it is; empty: not known
};

// A directory with fewer names than it counts.
struct LostNames {
    uint64_t node = 0;
    tiffinfs::InodeValue inode{};
    uint64_t entries = 0;
};

// What an earlier repair has marked as lost: blocks of a file, or the target of a symbolic link.
struct MarkedContent {
    uint64_t node = 0;
    uint64_t blocks = 0;
};

struct Objects {
    explicit Objects(const tiffinfs::Layout& layout) : data_blocks(layout) {}

    std::vector<ObjectInfo> objects;  // by ascending node
    std::vector<Link> links;          // by ascending child, after sort_links()
    std::vector<uint64_t> orphans;    // nodes that have an orphan key, ascending
    std::unordered_set<uint64_t> intents;
    SpaceMap data_blocks;                         // what extents claim
    std::vector<tiffinfs::BlockRange> conflicts;  // blocks with two owners
    size_t conflicts_limit = 0;                   // beyond it they are joined
    std::vector<LostContent> lost_content;
    std::vector<LostNames> lost_names;
    std::vector<MarkedContent> marked_content;
    struct LostAttributes {
        uint64_t node;
        tiffinfs::InodeValue inode;
        uint32_t lost_flags;  // of ACLs that are not there
    };
    std::vector<LostAttributes> lost_attributes;
    std::vector<uint64_t> new_inodes;  // nodes whose inode a repair makes
    bool has_lost_extents = false;
    std::set<tiffinfs::Key> strays;  // keys that no search found before this check
    // Of one file: which blocks are shared is known when they are gone.
    bool has_overlap_repairs = false;
    uint64_t greatest_node = 0;
    Statistics statistics;  // the counts of inodes, directories, entries, extents, keys

    ObjectInfo* find(uint64_t node);
    void sort_links();
    // The links of an object as a range of indices; after sort_links().
    uint32_t links_end(const ObjectInfo& object) const;
};

// Scans `keys`, reports what is wrong, and stages what repairs it. `nodes` are the blocks of the tree;
// `missing` gets what repairs remove. Errors: eio (a part of the tree has become unreadable).
Result<void> scan_objects(Context& context, KeySpace& keys, const SpaceMap& nodes,
                          MissingKeys& missing, Objects& objects, Repairs& repairs);

std::string node_text(uint64_t node);

}  // namespace tiffin::check
