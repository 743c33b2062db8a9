// SPDX-License-Identifier: MIT OR GPL-2.0-only
// After keys were deleted: empty or sparse leaves leave the tree, and neighbours take over their ranges.
//
// As in tree_change.cc nothing may wait or fail: a node that is not in memory or not free stays as it is, which does no harm.
#include "fs/base/race_point.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// Two leaves are joined when they leave this much room.
constexpr uint32_t kJoinedLeafBytes = kNodeSpaceBytes * 3 / 4;

// Whether there is a spare node for a copy that no caller requested.
bool may_be_copied(const Node* node, const NodeReservation& reservation) {
    return reservation.nodes > reservation.kept ||
           (reservation.nodes > 0 && reservation.keeps_copy_of(node));
}

}  // namespace

// The leaf at the end of the path is empty: it and all ancestors that have no other child go, if its
// range can be left to a neighbour.
void Tree::remove_empty_leaf(Path& path, NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    uint32_t depth = path.count - 1;
    uint32_t survivor = depth;
    while (survivor > path.first && path.steps[survivor - 1].node->header().count == 1) {
        survivor--;
    }
    if (survivor == path.first) {
        // Nothing above has another child, so the whole tree is empty: the leaf becomes the root.
        TIFFIN_ASSERT(path.root_locked);
        Node* leaf = path.leaf();
        set_root({leaf->block, leaf->generation, 0});
        for (uint32_t i = path.first; i < depth; ++i) {
            drop_node(path.steps[i].node);
            path.steps[i].node = nullptr;
        }
        return;
    }
    {
        const InnerChange change(path.steps[survivor - 1].node);
        if (!leave_to_sibling(path, survivor, reservation)) {
            return;  // an empty leaf does no harm
        }
        inner_erase(path.steps[survivor - 1].node->page, path.steps[survivor - 1].child);
    }
    for (uint32_t i = survivor; i <= depth; ++i) {
        drop_node(path.steps[i].node);
        path.steps[i].node = nullptr;
    }
    collapse_root(path, survivor - 1);
}

// Finds the sibling that absorbs the path from `survivor` on, whose locks must not block those of the siblings.
// No descent reaches these nodes meanwhile: the node above them is locked and being changed; for descents
// without locks all inner nodes of the path are. A thread that has the leaf pinned (lock_pinned_leaf) leaves it,
// because it is empty.
bool Tree::leave_to_sibling(Path& path, uint32_t survivor,
                            NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    const uint32_t leaf = path.count - 1;
    for (uint32_t i = survivor; i < leaf; ++i) {
        path.steps[i].node->version.fetch_add(1, std::memory_order_relaxed);
    }
    for (uint32_t i = survivor; i <= leaf; ++i) {
        path.steps[i].node->lock.unlock();
    }
    race_point();
    const Step& above = path.steps[survivor - 1];
    const bool is_absorbed = prepare_absorbing_sibling(above.node, above.child, reservation);
    for (uint32_t i = survivor; i <= leaf; ++i) {
        path.steps[i].node->lock.lock(path.steps[i].node->lock_level());
    }
    // Without such a sibling they stay, with one they go.
    for (uint32_t i = survivor; i < leaf && !is_absorbed; ++i) {
        path.steps[i].node->version.fetch_add(1, std::memory_order_release);
    }
    return is_absorbed;
}

// When child `child` of `parent` goes, the nearest leaf on its left, or without one on its right, takes
// over its range. Keys of that range may be prepared, by this transaction or others, and the absorbing sibling is not
// among the nodes they have pinned; so the way to it is made one of this generation, which stays in
// memory as long as any of them is open. False when that would need I/O, or more nodes than are reserved.
// `parent` is being changed already (InnerChange).
bool Tree::prepare_absorbing_sibling(Node* parent, uint32_t child,
                                     NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    const bool is_left = child > 0;
    uint32_t index = is_left ? child - 1 : child + 1;
    Node* above = parent;
    while (true) {
        const InnerEntry entry = inner_entries(above->page)[index];
        const auto level = static_cast<uint8_t>(above->level - 1);
        Node* node = cache_.find_cached(entry.child_block);
        if (node != nullptr && node->level != level) {
            // A damaged tree; it might be a node that we hold.
            cache_.unpin(node);
            node = nullptr;
        }
        if (node != nullptr) {
            node->lock.lock(node->lock_level());
        }
        const bool usable = node != nullptr && is_whole(node, entry.child_generation, level) &&
                            (node->generation == generation_ || may_be_copied(node, reservation));
        if (usable && node->generation != generation_) {
            const bool is_due = reservation.keeps_copy_of(node);
            const uint32_t kept = reservation.kept;
            node = copy_node(node, reservation);
            if (!is_due) {
                reservation.kept = kept;
            }
            if (above == parent) {
                inner_set_child(above->page, index, node->block, generation_);
            } else {
                const InnerChange change(above);
                inner_set_child(above->page, index, node->block, generation_);
            }
        }
        if (above != parent) {
            above->lock.unlock();
            cache_.unpin(above);
        }
        if (!usable || node->level == 0) {
            if (node != nullptr) {
                node->lock.unlock();
                cache_.unpin(node);
            }
            return usable;
        }
        index = is_left ? node->header().count - 1U : 0;
        above = node;
    }
}

// A root with one child hands its place to the child, and that, when it is at hand, to its own.
void Tree::collapse_root(Path& path, uint32_t depth) NO_THREAD_SAFETY_ANALYSIS {
    Node* node = path.steps[depth].node;
    if (!path.root_locked || depth != path.first || node->level == 0 || node->header().count != 1) {
        return;
    }
    path.steps[depth].node = nullptr;
    while (true) {
        const InnerEntry& only = inner_entries(node->page)[0];
        set_root({only.child_block, only.child_generation, static_cast<uint8_t>(node->level - 1)});
        drop_node(node);
        node = lock_if_at_hand(root_.block, root_.generation, root_.level);
        if (node == nullptr) {
            return;
        }
        if (node->level == 0 || node->header().count != 1) {
            node->lock.unlock();
            cache_.unpin(node);
            return;
        }
    }
}

// A node beside the path that a change could take out of the tree, exclusively locked and pinned;
// nullptr when that would need waiting or I/O. Not waiting keeps the order of locks out of it:
// neighbours have no order among themselves.
Node* Tree::lock_if_at_hand(uint64_t block, uint64_t generation,
                            uint8_t level) NO_THREAD_SAFETY_ANALYSIS {
    Node* node = cache_.find_cached(block);
    if (node == nullptr) {
        return nullptr;
    }
    if (!node->lock.try_lock()) {
        cache_.unpin(node);
        return nullptr;
    }
    if (!is_whole(node, generation, level)) {
        node->lock.unlock();
        cache_.unpin(node);
        return nullptr;
    }
    return node;
}

// Whether a locked node that was found by its block is the one meant, and can be changed.
bool Tree::is_whole(const Node* node, uint64_t generation, uint8_t level) {
    return !node->failed && node->generation == generation && node->level == level &&
           pool_.allocator().load({node->block, 1}).ok();
}

// The leaf has become sparse: takes over its right neighbour when that is in memory, free, and both fit.
void Tree::merge_with_right(Path& path) NO_THREAD_SAFETY_ANALYSIS {
    if (path.count - path.first < 2) {
        return;
    }
    Node* leaf = path.leaf();
    Node* parent = path.steps[path.count - 2].node;
    uint32_t index = path.steps[path.count - 2].child;
    if (index + 1 >= parent->header().count) {
        return;
    }
    const InnerEntry& next = inner_entries(parent->page)[index + 1];
    Node* right = lock_if_at_hand(next.child_block, next.child_generation, 0);
    if (right == nullptr) {
        return;
    }
    if (leaf_used_bytes(leaf->page) + leaf_used_bytes(right->page) > kJoinedLeafBytes) {
        right->lock.unlock();
        cache_.unpin(right);
        return;
    }
    leaf_merge(leaf->page, right->page);
    race_point();
    {
        const InnerChange change(parent);
        inner_erase(parent->page, index + 1);
    }
    drop_node(right);
    collapse_root(path, path.count - 2);
}

}  // namespace tiffin::tiffinfs
