// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/tree_reader.h"

#include <fmt/format.h>

#include <cstring>

#include "fs/tiffinfs/tree/node.h"

namespace tiffin::check {

using tiffinfs::InnerEntry;
using tiffinfs::Key;
using tiffinfs::NodeHeader;

std::string TreeReader::load(const Place& place, Block& page) {
    if (!seen_.insert(place.block).second) {
        return "it is in the tree twice";
    }
    if (!read_block(device_, place.block, page)) {
        return "it cannot be read";
    }
    const char* reason = "";
    return tiffinfs::check_page(page.bytes, superblock_.volume_nonce, place.block, place.generation,
                                static_cast<uint8_t>(place.level), superblock_.total_blocks, reason)
               ? std::string()
               : std::string(reason);
}

void TreeReader::visit_keys(Key first, Key end, const KeyVisitor& visitor) {
    seen_.clear();
    visit_keys_below(root(), first, end, visitor);
}

void TreeReader::visit_keys_below(const Place& place, Key first, Key end,
                                  const KeyVisitor& visitor) {
    Block page;
    if (const std::string reason = load(place, page); !reason.empty()) {
        problems_.push_back(fmt::format("tree node at block {}: {}", place.block, reason));
        return;
    }
    NodeHeader header;
    std::memcpy(&header, page.bytes, sizeof header);
    if (place.level == 0) {
        for (uint32_t i = tiffinfs::leaf_lower_bound(page.bytes, first); i < header.count; ++i) {
            const Key key = tiffinfs::leaf_key(page.bytes, i);
            if (!(key < end)) {
                break;
            }
            visitor(key, tiffinfs::leaf_value(page.bytes, i));
        }
        return;
    }
    const InnerEntry* entries = tiffinfs::inner_entries(page.bytes);
    for (uint32_t i = tiffinfs::inner_find(page.bytes, first); i < header.count; ++i) {
        if (i > 0 && !(entries[i].key < end)) {
            break;
        }
        visit_keys_below({entries[i].child_block, entries[i].child_generation, place.level - 1},
                         first, end, visitor);
    }
}

void TreeReader::visit_nodes(const NodeVisitor& visitor) {
    seen_.clear();
    visit_nodes_below(root(), visitor);
}

void TreeReader::visit_nodes_below(const Place& place, const NodeVisitor& visitor) {
    Block page{};
    const std::string reason = load(place, page);
    visitor(place.block, place.level, page, reason);
    if (!reason.empty() || place.level == 0) {
        return;
    }
    NodeHeader header;
    std::memcpy(&header, page.bytes, sizeof header);
    const InnerEntry* entries = tiffinfs::inner_entries(page.bytes);
    for (uint32_t i = 0; i < header.count; ++i) {
        visit_nodes_below({entries[i].child_block, entries[i].child_generation, place.level - 1},
                          visitor);
    }
}

}  // namespace tiffin::check
