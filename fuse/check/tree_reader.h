// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Looks at parts of a tree on a device, without reading all of it first.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/span.h"
#include "fuse/check/block_io.h"

namespace tiffin::check {

class TreeReader {
  public:
    TreeReader(vfs::BlockDevice& device, const tiffinfs::Superblock& superblock)
        : device_(device), superblock_(superblock) {}

    // Visits the keys in [first, end), in order. What is damaged is left out and noted in problems().
    using KeyVisitor = std::function<void(tiffinfs::Key, ByteSpan)>;
    void visit_keys(tiffinfs::Key first, tiffinfs::Key end, const KeyVisitor& visitor);
    // Visits all nodes, parents before their children. `reason` is empty when the node is sound.
    using NodeVisitor = std::function<void(uint64_t block, uint32_t level, const Block& page,
                                           const std::string& reason)>;
    void visit_nodes(const NodeVisitor& visitor);

    const std::vector<std::string>& problems() const { return problems_; }

  private:
    struct Place {
        uint64_t block;
        uint64_t generation;
        uint32_t level;
    };
    // What is wrong with the node; empty when nothing is.
    std::string load(const Place& place, Block& page);
    void visit_keys_below(const Place& place, tiffinfs::Key first, tiffinfs::Key end,
                          const KeyVisitor& visitor);
    void visit_nodes_below(const Place& place, const NodeVisitor& visitor);
    Place root() const {
        return {superblock_.root_block, superblock_.root_generation, superblock_.root_level};
    }

    vfs::BlockDevice& device_;
    const tiffinfs::Superblock& superblock_;
    std::unordered_set<uint64_t> seen_;  // each block once, whatever points to it
    std::vector<std::string> problems_;
};

}  // namespace tiffin::check
