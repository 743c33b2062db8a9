// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Nodes that a transaction keeps in memory.
#include "fs/tiffinfs/tree/node_cache.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {

Result<void> NodePins::add(Node* node) { return add(Pinned{.node = node}); }

Result<void> NodePins::add_leaf(Node* leaf, Key lower, Key upper) {
    return add(Pinned{leaf, leaf->version.load(std::memory_order_relaxed), lower, upper});
}

Result<void> NodePins::add(const Pinned& pinned) {
    for (uint32_t i = count_; i > 0 && i + 8 > count_; --i) {
        if (nodes_[i - 1].node == pinned.node) {
            nodes_[i - 1] = pinned;
            cache_.unpin(pinned.node);
            return {};
        }
    }
    if (count_ == capacity_) {
        size_t size_bytes = size_t{2} * capacity_ * sizeof(Pinned);
        auto* grown = static_cast<Pinned*>(host::allocate(size_bytes));
        if (grown == nullptr) {
            return Error::enomem;
        }
        __builtin_memcpy(grown, nodes_, count_ * sizeof(Pinned));
        if (nodes_ != inline_nodes_) {
            host::release(nodes_, capacity_ * sizeof(Pinned));
        }
        nodes_ = grown;
        capacity_ *= 2;
    }
    nodes_[count_++] = pinned;
    return {};
}

uint32_t NodePins::count_older(uint64_t generation) const {
    uint32_t older = 0;
    for (uint32_t i = 0; i < count_; ++i) {
        older += nodes_[i].node->generation < generation ? 1 : 0;
    }
    return older;
}

bool NodePins::contains(const Node* node) const {
    for (uint32_t i = count_; i > 0; --i) {
        if (nodes_[i - 1].node == node) {
            return true;
        }
    }
    return false;
}

void NodePins::release() {
    for (uint32_t i = 0; i < count_; ++i) {
        cache_.unpin(nodes_[i].node);
    }
    count_ = 0;
    if (nodes_ != inline_nodes_) {
        host::release(nodes_, capacity_ * sizeof(Pinned));
        nodes_ = inline_nodes_;
        capacity_ = kInlineNodes;
    }
}

}  // namespace tiffin::tiffinfs
