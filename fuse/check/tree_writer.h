// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Writes a tree from the bottom up: leaves from keys that come in order, or leaves that are on the
// device already, then the inner nodes above them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/span.h"
#include "fuse/check/block_io.h"
#include "fuse/check/key_space.h"

namespace tiffin::check {

struct TreeRootRef {
    uint64_t block = 0;
    uint64_t generation = 0;
    uint32_t level = 0;
    uint64_t nodes = 0;  // in the whole tree
};

class TreeWriter {
  public:
    // Hands out free blocks; 0: there is none.
    using TakeBlock = std::function<uint64_t()>;

    TreeWriter(vfs::BlockDevice& device, uint64_t volume_nonce, uint64_t generation,
               TakeBlock take_block);
    TreeWriter(const TreeWriter&) = delete;
    TreeWriter& operator=(const TreeWriter&) = delete;

    // All of these come in order of keys. Errors: enospc, eio.
    Result<void> add_key(tiffinfs::Key key, ByteSpan value);
    // A leaf that stays as it is; the first key that it may hold is `lower`.
    Result<void> add_leaf(const LeafRef& leaf);
    // Writes what is left and all inner nodes.
    Result<TreeRootRef> finish();

    uint64_t written_nodes() const { return written_nodes_; }

  private:
    Result<void> flush_leaf();
    Result<void> write_node(Block& page, tiffinfs::Key first_key,
                            std::vector<tiffinfs::InnerEntry>& level);
    Result<std::vector<tiffinfs::InnerEntry>> write_level(
        const std::vector<tiffinfs::InnerEntry>& children, uint8_t level);

    vfs::BlockDevice& device_;
    uint64_t volume_nonce_;
    uint64_t generation_;
    TakeBlock take_block_;
    std::vector<tiffinfs::InnerEntry> leaves_;
    Block leaf_{};
    uint32_t leaf_keys_ = 0;
    tiffinfs::Key leaf_first_{};
    uint64_t written_nodes_ = 0;
};

}  // namespace tiffin::check
