// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/tree_walk.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "fs/tiffinfs/tree/node.h"
#include "fuse/check/block_io.h"
#include "fuse/check/text.h"

namespace tiffin::check {
namespace {

using tiffinfs::InnerEntry;
using tiffinfs::Key;
using tiffinfs::NodeHeader;

// Enough to bring back what a few misplaced nodes hold; a device full of them is not our tree.
constexpr size_t kMaximumStrays = 100000;

struct NodeRef {
    uint64_t block;
    uint64_t generation;
    uint8_t level;
    Key lower;
    Key upper;
    double begin;  // of the progress, before and after this node
    double end;
};

class Walker {
  public:
    Walker(Context& context, const tiffinfs::Superblock& superblock, SpaceMap& space)
        : context_(context), superblock_(superblock), space_(space) {}

    TreeWalk run() {
        visit({superblock_.root_block, superblock_.root_generation,
               static_cast<uint8_t>(superblock_.root_level), tiffinfs::kMinimumKey,
               tiffinfs::kMaximumKey, 0, 1});
        return std::move(result_);
    }

  private:
    // Levels fall with each step, so the depth is bounded; each block is visited once.
    void visit(const NodeRef& node) {
        Block page;
        if (context_.cancelled() || !read_node(node, page)) {
            return;
        }
        context_.progress(Phase::tree, node.begin);
        ++result_.nodes;
        if (node.level == 0) {
            take_leaf(node, page);
        } else {
            visit_children(node, page);
        }
    }

    bool read_node(const NodeRef& node, Block& page) {
        const std::string where = fmt::format("tree node at block {}", node.block);
        if (node.block >= superblock_.total_blocks ||
            space_.layout().touches_fixed_blocks(node.block, 1)) {
            return cut(Code::node_invalid, where, "it lies where no node can be", node);
        }
        if (!read_block(context_.device(), node.block, page)) {
            return cut(Code::node_unreadable, where, "the device cannot read it", node);
        }
        const char* reason = "";
        if (!tiffinfs::check_page(page.bytes, superblock_.volume_nonce, node.block, node.generation,
                                  node.level, superblock_.total_blocks, reason)) {
            return cut(Code::node_invalid, where, reason, node);
        }
        if (!space_.mark({node.block, 1})) {
            return cut(Code::node_shared, where, "it is in the tree twice", node);
        }
        return true;
    }

    bool cut(Code code, const std::string& where, std::string_view reason, const NodeRef& node) {
        result_.damaged = true;
        result_.missing.add(node.lower, node.upper);
        (void)context_.found(code, where,
                             fmt::format("{}; it should hold the keys from {} to {}", reason,
                                         key_text(node.lower), key_text(node.upper)));
        return false;
    }

    void visit_children(const NodeRef& node, const Block& page) {
        NodeHeader header;
        std::memcpy(&header, page.bytes, sizeof header);
        const double step = (node.end - node.begin) / header.count;
        for (uint32_t i = 0; i < header.count; ++i) {
            const InnerEntry entry = entry_at(page, i);
            const Key lower = i == 0 ? node.lower : entry.key;
            const Key upper = i + 1 < header.count ? entry_at(page, i + 1).key : node.upper;
            if (lower < node.lower || node.upper < upper || !(lower < upper)) {
                report_bounds(node, entry.key);
                result_.missing.add(node.lower, node.upper);
                salvage({entry.child_block, entry.child_generation,
                         static_cast<uint8_t>(node.level - 1), lower, upper, 0, 0});
                continue;
            }
            visit({entry.child_block, entry.child_generation, static_cast<uint8_t>(node.level - 1),
                   lower, upper, node.begin + step * i, node.begin + step * (i + 1)});
        }
    }

    static InnerEntry entry_at(const Block& page, uint32_t index) {
        return tiffinfs::inner_entries(page.bytes)[index];
    }

    void report_bounds(const NodeRef& node, Key key) {
        (void)context_.found(Code::node_bounds, fmt::format("tree node at block {}", node.block),
                             fmt::format("{} is not between {} and {}", key_text(key),
                                         key_text(node.lower), key_text(node.upper)));
    }

    void take_leaf(const NodeRef& node, const Block& page) {
        NodeHeader header;
        std::memcpy(&header, page.bytes, sizeof header);
        LeafRef leaf{node.lower, node.upper, node.block, node.generation, false};
        for (uint32_t i = 0; i < header.count; ++i) {
            const Key key = tiffinfs::leaf_key(page.bytes, i);
            if (key < node.lower || !(key < node.upper)) {
                if (!leaf.must_rewrite) {
                    report_bounds(node, key);
                }
                leaf.must_rewrite = true;
                keep_stray(key, tiffinfs::leaf_value(page.bytes, i));
            }
        }
        result_.leaves.push_back(leaf);
    }

    // A child that no search reaches: what it holds is put where it belongs, if it is not there.
    void salvage(const NodeRef& node) {
        Block page;
        if (!read_node(node, page)) {
            return;
        }
        NodeHeader header;
        std::memcpy(&header, page.bytes, sizeof header);
        for (uint32_t i = 0; i < header.count && !context_.cancelled(); ++i) {
            if (node.level == 0) {
                keep_stray(tiffinfs::leaf_key(page.bytes, i), tiffinfs::leaf_value(page.bytes, i));
            } else {
                const InnerEntry entry = entry_at(page, i);
                salvage({entry.child_block, entry.child_generation,
                         static_cast<uint8_t>(node.level - 1), node.lower, node.upper, 0, 0});
            }
        }
    }

    void keep_stray(Key key, ByteSpan value) {
        if (result_.strays.size() < kMaximumStrays) {
            result_.strays.push_back({key, {value.begin(), value.end()}});
        }
    }

    Context& context_;
    const tiffinfs::Superblock& superblock_;
    SpaceMap& space_;
    TreeWalk result_;
};

}  // namespace

TreeWalk walk_tree(Context& context, const tiffinfs::Superblock& superblock, SpaceMap& space) {
    return Walker(context, superblock, space).run();
}

}  // namespace tiffin::check
