// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The second phase of a scrub: the tree of the newest durable checkpoint, as it is on the device. Its
// nodes stay as they are until the next superblock is durable, so damage counts only when no newer
// superblock is found afterwards.
#include "fs/base/text.h"
#include "fs/tiffinfs/maintenance/scrub.h"
#include "fs/tiffinfs/tree/node.h"
#include "fs/tiffinfs/volume/choose_generation.h"
#include "fs/tiffinfs/volume/volume.h"

namespace tiffin::tiffinfs {
// A step checks the leaves below one node, and the way to it.
Result<void> Scrub::check_tree() {
    TRY(load_superblocks());
    if (superblocks_->count == 0) {
        enter_phase(Phase::data);
        return {};
    }
    Key first{progress_.cursor[1], progress_.cursor[2]};
    Key next = kMaximumKey;
    uint64_t errors_before = progress_.errors_found;
    for (uint32_t look = 0; look < kMaximumLooks; ++look) {
        next = kMaximumKey;
        progress_.errors_found = errors_before;
        if (check_part(first, next) != Look::outdated) {
            break;
        }
    }
    if (next == kMaximumKey || next <= first) {
        enter_phase(Phase::data);
    } else {
        progress_.cursor[1] = next.node;
        progress_.cursor[2] = next.kind_and_offset;
    }
    return {};
}

bool Scrub::read_node(const InnerEntry& entry, uint8_t level, unsigned char* page) {
    count_bytes(kBlockBytes);
    const char* reason = nullptr;
    // Not the superblock of the mount, since the volume may have grown.
    if (read_tree_node(volume_.device(), superblocks_->found[0], entry, level, page, reason)) {
        return true;
    }
    log_line(host::LogLevel::error, "scrub: tree node at block ", entry.child_block, ", level ",
             static_cast<uint32_t>(level), ": ", reason);
    return false;
}

// Goes down to the node above the leaves that covers `first` and checks those leaves. `next` becomes
// the first key behind them, also when the way there is damaged.
Scrub::Look Scrub::check_part(Key first, Key& next) {
    const Superblock& superblock = superblocks_->found[0];
    InnerEntry entry{kMinimumKey, superblock.root_block, superblock.root_generation};
    unsigned char* page = buffer_;
    Look result = Look::done;
    for (uint32_t level = superblock.root_level;; --level) {
        if (!read_node(entry, static_cast<uint8_t>(level), page)) {
            count_error();
            result = Look::damaged;
            break;
        }
        if (level == 0) {
            break;
        }
        if (level == 1) {
            result = check_leaves(page, first);
            break;
        }
        uint32_t index = inner_find(page, first);
        const auto* header = reinterpret_cast<const NodeHeader*>(page);
        if (index + 1U < header->count) {
            next = inner_entries(page)[index + 1].key;
        }
        entry = inner_entries(page)[index];
    }
    if (result == Look::damaged && !superblock_is_newest()) {
        return Look::outdated;
    }
    return result;
}

Scrub::Look Scrub::check_leaves(const unsigned char* parent, Key first) {
    const auto* header = reinterpret_cast<const NodeHeader*>(parent);
    unsigned char* page = buffer_ + kBlockBytes;
    Look result = Look::done;
    for (uint32_t i = inner_find(parent, first); i < header->count; ++i) {
        if (!read_node(inner_entries(parent)[i], 0, page)) {
            count_error();
            result = Look::damaged;
        }
    }
    return result;
}

}  // namespace tiffin::tiffinfs
