// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/tree_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fs/tiffinfs/tree/node.h"

namespace tiffin::check {

using tiffinfs::InnerEntry;
using tiffinfs::Key;
using tiffinfs::kInnerCapacity;
using tiffinfs::LeafSlot;

namespace {

// Room that new leaves leave for later changes, so that the first of them does not split each.
constexpr uint32_t kSpareLeafBytes = tiffinfs::kNodeSpaceBytes / 8;

}  // namespace

TreeWriter::TreeWriter(vfs::BlockDevice& device, uint64_t volume_nonce, uint64_t generation,
                       TakeBlock take_block)
    : device_(device),
      volume_nonce_(volume_nonce),
      generation_(generation),
      take_block_(std::move(take_block)) {}

Result<void> TreeWriter::add_key(Key key, ByteSpan value) {
    const auto needed = static_cast<uint32_t>(value.size() + sizeof(LeafSlot));
    if (leaf_keys_ != 0 && tiffinfs::leaf_free_bytes(leaf_.bytes) < needed + kSpareLeafBytes) {
        TRY(flush_leaf());
    }
    if (leaf_keys_ == 0) {
        tiffinfs::format_page(leaf_.bytes, volume_nonce_, 0, generation_, 0);
        leaf_first_ = key;
    }
    tiffinfs::leaf_put(leaf_.bytes, leaf_keys_, key, value);
    ++leaf_keys_;
    return {};
}

Result<void> TreeWriter::add_leaf(const LeafRef& leaf) {
    TRY(flush_leaf());
    leaves_.push_back({leaf.lower, leaf.block, leaf.generation});
    return {};
}

Result<void> TreeWriter::flush_leaf() {
    if (leaf_keys_ == 0) {
        return {};
    }
    leaf_keys_ = 0;
    return write_node(leaf_, leaf_first_, leaves_);
}

Result<void> TreeWriter::write_node(Block& page, Key first_key, std::vector<InnerEntry>& level) {
    const uint64_t block = take_block_();
    if (block == 0) {
        return Error::enospc;
    }
    tiffinfs::NodeHeader header;
    std::memcpy(&header, page.bytes, sizeof header);
    header.block = block;
    std::memcpy(page.bytes, &header, sizeof header);
    tiffinfs::seal_page(page.bytes);
    TRY(write_block(device_, block, page));
    level.push_back({first_key, block, generation_});
    ++written_nodes_;
    return {};
}

Result<std::vector<InnerEntry>> TreeWriter::write_level(const std::vector<InnerEntry>& children,
                                                        uint8_t level) {
    std::vector<InnerEntry> parents;
    // Evenly filled, so that none is nearly empty.
    const size_t nodes = (children.size() + kInnerCapacity - 1) / kInnerCapacity;
    Block page;
    for (size_t i = 0; i < nodes; ++i) {
        const size_t begin = children.size() * i / nodes;
        const size_t end = children.size() * (i + 1) / nodes;
        tiffinfs::format_page(page.bytes, volume_nonce_, 0, generation_, level);
        for (size_t child = begin; child < end; ++child) {
            tiffinfs::inner_insert(page.bytes, static_cast<uint32_t>(child - begin),
                                   children[child]);
        }
        TRY(write_node(page, children[begin].key, parents));
    }
    return parents;
}

Result<TreeRootRef> TreeWriter::finish() {
    TRY(flush_leaf());
    if (leaves_.empty()) {
        tiffinfs::format_page(leaf_.bytes, volume_nonce_, 0, generation_, 0);
        TRY(write_node(leaf_, tiffinfs::kMinimumKey, leaves_));
    }
    TreeRootRef root;
    root.nodes = leaves_.size();
    std::vector<InnerEntry> level = std::exchange(leaves_, {});
    while (level.size() > 1) {
        level.front().key = tiffinfs::kMinimumKey;
        level = TRY(write_level(level, static_cast<uint8_t>(++root.level)));
        root.nodes += level.size();
    }
    root.block = level.front().child_block;
    root.generation = level.front().child_generation;
    return root;
}

}  // namespace tiffin::check
