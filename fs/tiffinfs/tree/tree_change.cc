// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Changing the tree: in place when the leaf allows it, else from the lowest ancestor that can absorb
// the change, copying nodes of older generations and splitting full ones on the way. What becomes of
// nodes that lose their keys is in tree_shrink.cc.
//
// All of this runs after prepare(): a node that is needed is in memory (pinned, or dirty in a
// generation that cannot be sealed before our transaction ends), and spare nodes are reserved.
// The lock analysis cannot follow paths of locks; see tree.cc.
#include "fs/base/race_point.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// A leaf that falls below this is joined with its neighbour when both fit into one.
constexpr uint32_t kSparseLeafBytes = kNodeSpaceBytes / 4;

// What putting `value` at `index` takes beyond what it gives back.
bool leaf_has_room(const Node* leaf, uint32_t index, bool exists, size_t value_bytes) {
    size_t free_bytes = leaf_free_bytes(leaf->page);
    if (exists) {
        free_bytes += sizeof(LeafSlot) + leaf_value(leaf->page, index).size();
    }
    return sizeof(LeafSlot) + value_bytes <= free_bytes;
}

}  // namespace

void Tree::start_empty(uint64_t generation,
                       NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    generation_ = generation;
    Node* leaf = new_node(0, reservation);
    publish_node(leaf);
    start({leaf->block, generation, 0}, generation);
    leaf->lock.unlock();
    cache_.unpin(leaf);
}

// The page of a new node is complete: threads that find the node from now on may read it.
void Tree::publish_node(Node* node) {
    node->version.store(Node::kUnreadable + 1, std::memory_order_release);
}

void Tree::set_root(const TreeRoot& root) {
    const uint32_t version = shown_root_.version.load(std::memory_order_relaxed);
    shown_root_.version.store(version + 1, std::memory_order_relaxed);
    // Releasing stores: a thread that sees one of these also sees the odd version.
    shown_root_.block.store(root.block, std::memory_order_release);
    shown_root_.generation.store(root.generation, std::memory_order_release);
    shown_root_.level.store(root.level, std::memory_order_release);
    shown_root_.version.store(version + 2, std::memory_order_release);
    root_ = root;
}

// A fresh node, formatted, pinned and locked. No other thread can reach it yet, so taking its lock cannot wait.
Node* Tree::new_node(uint8_t level, NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    Node* node = pool_.take(reservation);
    node->generation = generation_;
    node->level = level;
    format_page(node->page, cache_.volume_nonce(), node->block, generation_, level);
    bool locked = node->lock.try_lock();
    TIFFIN_ASSERT(locked);
    pool_.allocator().mark_used({node->block, 1});
    cache_.insert_dirty(node);
    return node;
}

// Replaces an exclusively locked node of an older generation by a copy in this one, equally locked.
// The caller makes the parent point to it.
Node* Tree::copy_node(Node* node, NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    Node* copy = new_node(node->level, reservation);
    NodeHeader header = copy->header();
    __builtin_memcpy(copy->page, node->page, kBlockBytes);
    copy->header().checksum = 0;
    copy->header().block = header.block;
    copy->header().generation = header.generation;
    publish_node(copy);
    drop_node(node);
    return copy;
}

// An exclusively locked and pinned node leaves the tree.
void Tree::drop_node(Node* node) NO_THREAD_SAFETY_ANALYSIS {
    uint64_t block = node->block;
    // For ever: a thread on its way through it begins again.
    node->version.store(node->version.load(std::memory_order_relaxed) | Node::kUnreadable,
                        std::memory_order_release);
    race_point();
    cache_.drop(node, node->generation == generation_);
    race_point();
    node->lock.unlock();
    cache_.unpin(node);
    pool_.free_block(block, generation_);
}

// The leaf that covers `key`, exclusively locked and pinned, its ancestors only passed through.
Node* Tree::lock_leaf_exclusive(Key key, const NodePins* pins) NO_THREAD_SAFETY_ANALYSIS {
    if (Node* leaf = lock_pinned_leaf(key, pins, true); leaf != nullptr) {
        return leaf;
    }
    Bounds bounds;
    if (Node* leaf = find_leaf(key, LeafUse::change, bounds); leaf != nullptr) {
        return leaf;
    }
    root_lock_.lock_shared();
    Node* node = MUST(cache_.get(root_.block, root_.generation, root_.level));
    if (node->level == 0) {
        node->lock.lock(node->lock_level());
    } else {
        node->lock.lock_shared_unbiased(node->lock_level());
    }
    root_lock_.unlock_shared();
    while (node->level > 0) {
        const InnerEntry& entry = inner_entries(node->page)[inner_find(node->page, key)];
        Node* child = MUST(cache_.get(entry.child_block, entry.child_generation,
                                      static_cast<uint8_t>(node->level - 1)));
        if (child->level == 0) {
            child->lock.lock(child->lock_level());
        } else {
            child->lock.lock_shared_unbiased(child->lock_level());
        }
        leave_shared(node);
        node = child;
    }
    TIFFIN_ASSERT(!node->failed);
    return node;
}

bool Tree::put_in_place(Key key, ByteSpan value, const NodePins* pins,
                        bool& is_new) NO_THREAD_SAFETY_ANALYSIS {
    Node* leaf = lock_leaf_exclusive(key, pins);
    bool done = false;
    if (leaf->generation == generation_) {
        uint32_t index = leaf_lower_bound(leaf->page, key);
        bool exists = index < leaf->header().count && leaf_key(leaf->page, index) == key;
        if (leaf_has_room(leaf, index, exists, value.size())) {
            leaf_put(leaf->page, index, key, value);
            is_new = !exists;
            done = true;
        }
    }
    leaf->lock.unlock();
    cache_.unpin(leaf);
    return done;
}

bool Tree::put(Key key, ByteSpan value, NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    TIFFIN_ASSERT(value.size() <= kMaximumValueBytes);
    bool is_new = false;
    if (put_in_place(key, value, reservation.pins, is_new)) {
        return is_new;
    }
    Path path;
    descend_exclusive(key, static_cast<uint32_t>(value.size() + sizeof(LeafSlot)), false,
                      reservation, path);
    Node* leaf = path.leaf();
    uint32_t index = leaf_lower_bound(leaf->page, key);
    bool exists = index < leaf->header().count && leaf_key(leaf->page, index) == key;
    if (leaf_has_room(leaf, index, exists, value.size())) {
        leaf_put(leaf->page, index, key, value);
    } else {
        if (exists) {
            leaf_erase(leaf->page, index);
        }
        split_leaf(path, key, value, reservation);
    }
    release_path(path);
    return !exists;
}

bool Tree::erase_in_place(Key key, const NodePins* pins, bool& existed) NO_THREAD_SAFETY_ANALYSIS {
    Node* leaf = lock_leaf_exclusive(key, pins);
    uint32_t index = leaf_lower_bound(leaf->page, key);
    existed = index < leaf->header().count && leaf_key(leaf->page, index) == key;
    bool done = !existed;
    if (existed && leaf->generation == generation_ && leaf->header().count > 1) {
        uint32_t used = leaf_used_bytes(leaf->page);
        uint32_t gone =
            static_cast<uint32_t>(sizeof(LeafSlot) + leaf_value(leaf->page, index).size());
        // Only the erasure that makes a leaf sparse looks for a neighbour to join.
        if (used < kSparseLeafBytes || used - gone >= kSparseLeafBytes) {
            leaf_erase(leaf->page, index);
            done = true;
        }
    }
    leaf->lock.unlock();
    cache_.unpin(leaf);
    return done;
}

bool Tree::erase(Key key, NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    bool existed = false;
    if (erase_in_place(key, reservation.pins, existed)) {
        return existed;
    }
    Path path;
    descend_exclusive(key, 0, true, reservation, path);
    Node* leaf = path.leaf();
    uint32_t index = leaf_lower_bound(leaf->page, key);
    existed = index < leaf->header().count && leaf_key(leaf->page, index) == key;
    if (!existed) {
        // Only where damage has put keys outside the bounds of their leaf do two ways disagree.
        release_path(path);
        return false;
    }
    leaf_erase(leaf->page, index);
    if (leaf->header().count == 0) {
        remove_empty_leaf(path, reservation);
    } else if (leaf_used_bytes(leaf->page) < kSparseLeafBytes) {
        merge_with_right(path);
    }
    release_path(path);
    return true;
}

// True when a change below (or in) `node` cannot spread to its parent.
bool Tree::absorbs_change(const Node* node, uint32_t needed_bytes, bool erasing) const {
    if (node->level == 0) {
        return !erasing && leaf_free_bytes(node->page) >= needed_bytes;
    }
    return erasing ? node->header().count > 2 : node->header().count < kInnerCapacity;
}

void Tree::release_above(Path& path) NO_THREAD_SAFETY_ANALYSIS {
    if (path.root_locked) {
        root_lock_.unlock();
        path.root_locked = false;
    }
    while (path.first + 1 < path.count) {
        Node* node = path.steps[path.first].node;
        node->lock.unlock();
        cache_.unpin(node);
        path.first++;
    }
}

void Tree::release_path(Path& path) NO_THREAD_SAFETY_ANALYSIS {
    if (path.root_locked) {
        root_lock_.unlock();
        path.root_locked = false;
    }
    for (uint32_t i = path.first; i < path.count; ++i) {
        if (path.steps[i].node != nullptr) {
            path.steps[i].node->lock.unlock();
            cache_.unpin(path.steps[i].node);
        }
    }
    path.count = 0;
}

// Locks the way to the leaf of `key` exclusively, makes every node on it one of this generation, and
// lets go of what lies above the lowest node that absorbs the change.
void Tree::descend_exclusive(Key key, uint32_t needed_bytes, bool erasing,
                             NodeReservation& reservation, Path& path) NO_THREAD_SAFETY_ANALYSIS {
    root_lock_.lock();
    path.root_locked = true;
    Node* node = MUST(cache_.get(root_.block, root_.generation, root_.level));
    node->lock.lock(node->lock_level());
    TIFFIN_ASSERT(!node->failed);
    if (node->generation != generation_) {
        node = copy_node(node, reservation);
        set_root({node->block, generation_, node->level});
    }
    path.steps[path.count++] = {node, 0};
    while (true) {
        if (absorbs_change(node, needed_bytes, erasing)) {
            release_above(path);
        }
        if (node->level == 0) {
            return;
        }
        uint32_t index = inner_find(node->page, key);
        path.steps[path.count - 1].child = index;
        const InnerEntry& entry = inner_entries(node->page)[index];
        Node* child = MUST(cache_.get(entry.child_block, entry.child_generation,
                                      static_cast<uint8_t>(node->level - 1)));
        child->lock.lock(child->lock_level());
        TIFFIN_ASSERT(!child->failed);
        if (child->generation != generation_) {
            child = copy_node(child, reservation);
            race_point();
            const InnerChange change(node);
            inner_set_child(node->page, index, child->block, generation_);
        }
        node = child;
        path.steps[path.count++] = {node, 0};
    }
}

void Tree::split_leaf(Path& path, Key key, ByteSpan value,
                      NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    Node* leaf = path.leaf();
    Node* right = new_node(0, reservation);
    Key separator = leaf_split(leaf->page, right->page, key, static_cast<uint32_t>(value.size()));
    // It covers less now: a thread that has it pinned has to look at its keys (lock_pinned_leaf).
    leaf->version.fetch_add(2, std::memory_order_relaxed);
    Node* target = key < separator ? leaf : right;
    leaf_put(target->page, leaf_lower_bound(target->page, key), key, value);
    publish_node(right);
    race_point();
    insert_into_parent(path, path.count - 1, separator, right, reservation);
    right->lock.unlock();
    cache_.unpin(right);
}

// Gives the node at `depth` of the path a new right neighbour.
void Tree::insert_into_parent(Path& path, uint32_t depth, Key separator, Node* right,
                              NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    InnerEntry entry{separator, right->block, right->generation};
    if (depth == path.first) {
        // The split has reached the root: a new one above it.
        TIFFIN_ASSERT(path.root_locked);
        Node* old_root = path.steps[depth].node;
        TIFFIN_ASSERT(old_root->level < kMaximumLevel);
        Node* root = new_node(static_cast<uint8_t>(old_root->level + 1), reservation);
        inner_insert(root->page, 0, {kMinimumKey, old_root->block, old_root->generation});
        inner_insert(root->page, 1, entry);
        publish_node(root);
        set_root({root->block, root->generation, root->level});
        root->lock.unlock();
        cache_.unpin(root);
        return;
    }
    Node* parent = path.steps[depth - 1].node;
    uint32_t index = path.steps[depth - 1].child + 1;
    if (parent->header().count < kInnerCapacity) {
        const InnerChange change(parent);
        inner_insert(parent->page, index, entry);
        return;
    }
    // Growing at the end keeps the left side nearly full.
    uint32_t count = parent->header().count;
    uint32_t first_moved = index == count ? count - 1 : count / 2;
    Node* new_right = new_node(parent->level, reservation);
    {
        // Until the node above knows of the right side: a thread that comes from there and reads this one in
        // between would take its last child for that of all keys that have just left.
        const InnerChange change(parent);
        const Key new_separator = inner_split(parent->page, new_right->page, first_moved);
        if (index <= first_moved) {
            inner_insert(parent->page, index, entry);
        } else {
            inner_insert(new_right->page, index - first_moved, entry);
        }
        publish_node(new_right);
        race_point();
        insert_into_parent(path, depth - 1, new_separator, new_right, reservation);
    }
    new_right->lock.unlock();
    cache_.unpin(new_right);
}

}  // namespace tiffin::tiffinfs
