// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Changing the tree: in place when the leaf allows it, else from the lowest ancestor that can absorb
// the change, copying nodes of older generations and splitting full ones on the way.
//
// All of this runs after prepare(): a node that is needed is in memory (pinned, or dirty in a
// generation that cannot be sealed before our transaction ends), and spare nodes are reserved.
// The lock analysis cannot follow paths of locks; see tree.cc.
#include "fs/tiffinfs/tree/tree.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// A leaf that falls below this is joined with its neighbour when both fit into one.
constexpr uint32_t kSparseLeafBytes = kNodeSpaceBytes / 4;
constexpr uint32_t kJoinedLeafBytes = kNodeSpaceBytes * 3 / 4;

uint32_t leaf_used_bytes(const Node* node) { return kNodeSpaceBytes - leaf_free_bytes(node->page); }

// What putting `value` at `index` takes beyond what it gives back.
bool leaf_has_room(const Node* leaf, uint32_t index, bool exists, size_t value_bytes) {
    size_t free_bytes = leaf_free_bytes(leaf->page);
    if (exists) {
        free_bytes += sizeof(LeafSlot) + leaf_value(leaf->page, index).size();
    }
    return sizeof(LeafSlot) + value_bytes <= free_bytes;
}

// Whether there is a spare node for a copy that nobody has asked for.
bool may_be_copied(const Node* node, const NodeReservation& reservation) {
    return reservation.nodes > reservation.kept ||
           (reservation.nodes > 0 && reservation.keeps_copy_of(node));
}

}  // namespace

void Tree::start_empty(uint64_t generation,
                       NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    generation_ = generation;
    Node* leaf = new_node(0, reservation);
    start({leaf->block, generation, 0}, generation);
    leaf->lock.unlock();
    cache_.unpin(leaf);
}

// A fresh node, formatted, pinned and locked. Nobody can reach it yet, so taking its lock cannot wait.
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
    drop_node(node);
    return copy;
}

// An exclusively locked and pinned node leaves the tree.
void Tree::drop_node(Node* node) NO_THREAD_SAFETY_ANALYSIS {
    uint64_t block = node->block;
    cache_.drop(node, node->generation == generation_);
    node->lock.unlock();
    cache_.unpin(node);
    pool_.free_block(block, generation_);
}

// The leaf that covers `key`, exclusively locked and pinned, its ancestors only passed through.
Node* Tree::lock_leaf_exclusive(Key key) NO_THREAD_SAFETY_ANALYSIS {
    root_lock_.lock_shared();
    Node* node = MUST(cache_.get(root_.block, root_.generation, root_.level));
    if (node->level == 0) {
        node->lock.lock(node->lock_level());
    } else {
        node->lock.lock_shared(node->lock_level());
    }
    root_lock_.unlock_shared();
    while (node->level > 0) {
        const InnerEntry& entry = inner_entries(node->page)[inner_find(node->page, key)];
        Node* child = MUST(cache_.get(entry.child_block, entry.child_generation,
                                      static_cast<uint8_t>(node->level - 1)));
        if (child->level == 0) {
            child->lock.lock(child->lock_level());
        } else {
            child->lock.lock_shared(child->lock_level());
        }
        leave_shared(node);
        node = child;
    }
    TIFFIN_ASSERT(!node->failed);
    return node;
}

bool Tree::put_in_place(Key key, ByteSpan value, bool& is_new) NO_THREAD_SAFETY_ANALYSIS {
    Node* leaf = lock_leaf_exclusive(key);
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
    if (put_in_place(key, value, is_new)) {
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

bool Tree::erase_in_place(Key key, bool& existed) NO_THREAD_SAFETY_ANALYSIS {
    Node* leaf = lock_leaf_exclusive(key);
    uint32_t index = leaf_lower_bound(leaf->page, key);
    existed = index < leaf->header().count && leaf_key(leaf->page, index) == key;
    bool done = !existed;
    if (existed && leaf->generation == generation_ && leaf->header().count > 1) {
        uint32_t used = leaf_used_bytes(leaf);
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
    if (erase_in_place(key, existed)) {
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
    } else if (leaf_used_bytes(leaf) < kSparseLeafBytes) {
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
        root_.block = node->block;
        root_.generation = generation_;
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
        InnerEntry& entry = inner_entries(node->page)[index];
        Node* child = MUST(cache_.get(entry.child_block, entry.child_generation,
                                      static_cast<uint8_t>(node->level - 1)));
        child->lock.lock(child->lock_level());
        TIFFIN_ASSERT(!child->failed);
        if (child->generation != generation_) {
            child = copy_node(child, reservation);
            entry.child_block = child->block;
            entry.child_generation = generation_;
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
    Node* target = key < separator ? leaf : right;
    leaf_put(target->page, leaf_lower_bound(target->page, key), key, value);
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
        root_ = {root->block, root->generation, root->level};
        root->lock.unlock();
        cache_.unpin(root);
        return;
    }
    Node* parent = path.steps[depth - 1].node;
    uint32_t index = path.steps[depth - 1].child + 1;
    if (parent->header().count < kInnerCapacity) {
        inner_insert(parent->page, index, entry);
        return;
    }
    // Growing at the end keeps the left side nearly full.
    uint32_t count = parent->header().count;
    uint32_t first_moved = index == count ? count - 1 : count / 2;
    Node* new_right = new_node(parent->level, reservation);
    Key new_separator = inner_split(parent->page, new_right->page, first_moved);
    if (index <= first_moved) {
        inner_insert(parent->page, index, entry);
    } else {
        inner_insert(new_right->page, index - first_moved, entry);
    }
    insert_into_parent(path, depth - 1, new_separator, new_right, reservation);
    new_right->lock.unlock();
    cache_.unpin(new_right);
}

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
        root_ = {leaf->block, leaf->generation, 0};
        for (uint32_t i = path.first; i < depth; ++i) {
            drop_node(path.steps[i].node);
            path.steps[i].node = nullptr;
        }
        return;
    }
    // Nobody comes to these any more while the node above them is locked; their locks must not be in
    // the way of their neighbours'.
    for (uint32_t i = survivor; i <= depth; ++i) {
        path.steps[i].node->lock.unlock();
    }
    const bool has_heir =
        make_heir(path.steps[survivor - 1].node, path.steps[survivor - 1].child, reservation);
    for (uint32_t i = survivor; i <= depth; ++i) {
        path.steps[i].node->lock.lock(path.steps[i].node->lock_level());
    }
    if (!has_heir) {
        return;  // an empty leaf does no harm
    }
    inner_erase(path.steps[survivor - 1].node->page, path.steps[survivor - 1].child);
    for (uint32_t i = survivor; i <= depth; ++i) {
        drop_node(path.steps[i].node);
        path.steps[i].node = nullptr;
    }
    collapse_root(path, survivor - 1);
}

// When child `child` of `parent` goes, the nearest leaf on its left, or without one on its right, takes
// over its range. Keys of that range may be prepared, by this transaction or others, and the heir is not
// among the nodes they have pinned; so the way to it is made one of this generation, which stays in
// memory as long as any of them is open. False when that would need I/O, or more nodes than are reserved.
bool Tree::make_heir(Node* parent, uint32_t child,
                     NodeReservation& reservation) NO_THREAD_SAFETY_ANALYSIS {
    const bool is_left = child > 0;
    uint32_t index = is_left ? child - 1 : child + 1;
    Node* above = parent;
    while (true) {
        InnerEntry& entry = inner_entries(above->page)[index];
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
            entry.child_block = node->block;
            entry.child_generation = generation_;
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
        root_ = {only.child_block, only.child_generation, static_cast<uint8_t>(node->level - 1)};
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
    if (leaf_used_bytes(leaf) + leaf_used_bytes(right) > kJoinedLeafBytes) {
        right->lock.unlock();
        cache_.unpin(right);
        return;
    }
    leaf_merge(leaf->page, right->page);
    inner_erase(parent->page, index + 1);
    drop_node(right);
    collapse_root(path, path.count - 2);
}

}  // namespace tiffin::tiffinfs
