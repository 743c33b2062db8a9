// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The tree of a volume as it lies on the device: tells a test which nodes an operation cannot do without when
// nothing is in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/block_device.h"

namespace tiffin::test {

struct KeyRange {
    tiffinfs::Key first;
    tiffinfs::Key last;

    KeyRange(tiffinfs::Key key) : first(key), last(key) {}  // NOLINT: one key is a range
    KeyRange(tiffinfs::Key from, tiffinfs::Key to) : first(from), last(to) {}
};

// Goes its own way from the superblock on, and not by the file system's code for that, whose costs are in question.
// The volume is not mounted, and each call reads anew. Expects what it finds to be whole.
class TreeOnDevice {
  public:
    explicit TreeOnDevice(vfs::BlockDevice& device) : device_(device) {}

    tiffinfs::Superblock superblock() const;
    uint32_t height() const { return superblock().root_level + 1; }

    // ---- Where things are. ----
    tiffinfs::Key entry(uint64_t directory, std::string_view name) const;
    tiffinfs::Key xattr(uint64_t node, std::string_view name) const;
    // What an entry leads to.
    uint64_t node_of(uint64_t directory, std::string_view name) const;

    // ---- Nodes. ----
    // Adds the blocks of all nodes from the root to the leaves of `range`.
    void add_nodes(const KeyRange& range, std::set<uint64_t>& blocks) const;
    bool is_first_in_leaf(tiffinfs::Key key) const;
    // What erasing `key` looks at: of a leaf's first key also the leaf before, which takes over the range should
    // this one become empty.
    KeyRange erased(tiffinfs::Key key) const;

  private:
    struct Page {
        alignas(8) unsigned char bytes[tiffinfs::kBlockBytes];

        const tiffinfs::NodeHeader& header() const;
        const tiffinfs::InnerEntry& child(size_t index) const;
        const tiffinfs::LeafSlot& slot(size_t index) const;
    };
    // Calls visit(block, page, lower bound of what it covers) for the nodes of `range`, each after its parent.
    using Visit = std::function<void(uint64_t, const Page&, tiffinfs::Key)>;
    void walk(uint64_t block, tiffinfs::Key lower, const KeyRange& range, const Visit& visit) const;
    void walk(const KeyRange& range, const Visit& visit) const;

    vfs::BlockDevice& device_;
};

}  // namespace tiffin::test
