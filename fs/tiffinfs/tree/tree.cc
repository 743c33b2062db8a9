// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading the tree: descents hand over hand under shared locks.
//
// The analysis of locks cannot follow a hand-over-hand descent (which lock is held depends on the
// loop), so the functions that descend are exempt from it; the order checker of the hosts is not.
#include "fs/tiffinfs/tree/tree.h"

#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// How many leaves neighbouring keys with `bytes` of slots and values fill at most.
uint32_t leaves_of(uint32_t bytes) { return bytes / (kNodeSpaceBytes / 3) + 2; }

}  // namespace

Tree::Tree(NodeCache& cache, NodePool& pool) : cache_(cache), pool_(pool) {}

void Tree::start(const TreeRoot& root, uint64_t generation) {
    ExclusiveLock lock(root_lock_);
    set_root(root);
    generation_ = generation;
}

TreeRoot Tree::root() const {
    SharedLock lock(root_lock_);
    return root_;
}

void Tree::advance_generation(uint64_t generation) {
    TIFFIN_ASSERT(generation > generation_);
    generation_ = generation;
}

// Locks a pinned node whose content is there; a node that could not be read is unpinned.
Result<void> Tree::lock_loaded_shared(Node* node) NO_THREAD_SAFETY_ANALYSIS {
    node->lock.lock_shared_unbiased(node->lock_level());
    if (node->failed) {
        Error error = node->load_error;
        leave_shared(node);
        return error;
    }
    return {};
}

void Tree::leave_shared(Node* node) NO_THREAD_SAFETY_ANALYSIS {
    node->lock.unlock_shared();
    cache_.unpin(node);
}

// Keeps a node in memory that a change of this transaction may copy, or drop. Takes over a pin; on failure it stays with
// the caller.
Result<void> Tree::pin_for_change(Node* node, const Bounds& bounds, NodePins& pins) {
    // Its block is freed then, which needs the bitmap.
    TRY(pool_.allocator().load({node->block, 1}));
    return node->level == 0 ? pins.add_leaf(node, bounds.lower, bounds.upper) : pins.add(node);
}

// Returns the leaf that covers `key`, pinned and locked shared, and what it covers. With `pins`, the
// whole path stays pinned.
Result<Node*> Tree::descend_shared(Key key, Bounds& bounds,
                                   NodePins* pins) NO_THREAD_SAFETY_ANALYSIS {
    root_lock_.lock_shared();
    Result<Node*> got = cache_.get(root_.block, root_.generation, root_.level);
    if (!got.ok()) {
        root_lock_.unlock_shared();
        return got.error();
    }
    Node* node = got.value();
    Result<void> locked = lock_loaded_shared(node);
    root_lock_.unlock_shared();
    if (!locked.ok()) {
        return locked.error();
    }
    bounds = {kMinimumKey, kMaximumKey, false};
    while (true) {
        if (pins != nullptr) {
            node->pins.fetch_add(1, std::memory_order_relaxed);
            Result<void> kept = pin_for_change(node, bounds, *pins);
            if (!kept.ok()) {
                cache_.unpin(node);
                leave_shared(node);
                return kept.error();
            }
        }
        if (node->level == 0) {
            if (!keys_are_within(node->page, 0, bounds.lower, bounds.upper)) {
                return leave_misplaced(node);
            }
            return node;
        }
        InnerEntry child;
        if (!look_up_child(node, key, bounds, child)) {
            return leave_misplaced(node);
        }
        Result<Node*> next = cache_.get(child.child_block, child.child_generation,
                                        static_cast<uint8_t>(node->level - 1));
        if (!next.ok()) {
            leave_shared(node);
            return next.error();
        }
        locked = lock_loaded_shared(next.value());
        leave_shared(node);
        if (!locked.ok()) {
            return locked.error();
        }
        node = next.value();
    }
}

Error Tree::leave_misplaced(Node* node) {
    Error error = cache_.report_misplaced_keys(node);
    leave_shared(node);
    return error;
}

// The leaf that covers `key`, locked shared, and what it covers.
Result<Tree::ReadLeaf> Tree::find_leaf_shared(Key key, Bounds& bounds) {
    ReadLeaf leaf;
    if (!find_leaf_to_read(key, bounds, leaf)) {
        leaf = ReadLeaf{};
        leaf.node = TRY(descend_shared(key, bounds, nullptr));
        leaf.is_pinned = true;
    }
    return leaf;
}

void Tree::leave_read(const ReadLeaf& leaf) NO_THREAD_SAFETY_ANALYSIS {
    leaf.node->lock.unlock_shared(leaf.sharing);
    if (leaf.is_pinned) {
        cache_.unpin(leaf.node);
    } else {
        cache_.readers().leave(leaf.epoch);
    }
}

// The same for a leaf that is to be changed: `pins` keeps it, and what could leave memory of the way to it.
// Without locks that is nothing else, since nodes of this generation stay until it is written, which waits
// for the end of this transaction.
Result<Node*> Tree::find_leaf_to_prepare(Key key, Bounds& bounds, NodePins& pins,
                                         Way way) NO_THREAD_SAFETY_ANALYSIS {
    if (Node* leaf = way == Way::any ? find_leaf(key, LeafUse::prepare, bounds) : nullptr;
        leaf != nullptr) {
        Result<void> kept = pin_for_change(leaf, bounds, pins);
        if (!kept.ok()) {
            leave_shared(leaf);
            return kept.error();
        }
        return leaf;
    }
    Node* leaf = TRY(descend_shared(key, bounds, &pins));
    cache_.unpin(leaf);  // `pins` has another one
    return leaf;
}

Result<uint32_t> Tree::get(Key key, MutableByteSpan buffer) NO_THREAD_SAFETY_ANALYSIS {
    Bounds bounds;
    const ReadLeaf read = TRY(find_leaf_shared(key, bounds));
    const Node* const leaf = read.node;
    uint32_t index = leaf_lower_bound(leaf->page, key);
    if (index == leaf->header().count || !(leaf_key(leaf->page, index) == key)) {
        leave_read(read);
        return Error::enoent;
    }
    ByteSpan value = leaf_value(leaf->page, index);
    bool fits = value.size() <= buffer.size();
    uint32_t size = static_cast<uint32_t>(value.size());
    if (fits && size > 0) {
        __builtin_memcpy(buffer.data(), value.data(), size);
    }
    leave_read(read);
    if (!fits) {
        return Error::erange;
    }
    return size;
}

// Visits the keys of a locked leaf from an index on. False: the visitor has had enough, or all that is before `end`.
bool Tree::visit_leaf(const Node* leaf, uint32_t first_index, Key end, TreeVisitor& visitor) {
    const uint32_t count = leaf->header().count;
    for (uint32_t i = first_index; i < count; ++i) {
        const Key key = leaf_key(leaf->page, i);
        if (!(key < end) || !visitor.visit(key, leaf_value(leaf->page, i))) {
            return false;
        }
    }
    return true;
}

Result<void> Tree::scan(Key first, Key end, TreeVisitor& visitor) NO_THREAD_SAFETY_ANALYSIS {
    while (first < end) {
        Bounds bounds;
        const ReadLeaf read = TRY(find_leaf_shared(first, bounds));
        const bool goes_on =
            visit_leaf(read.node, leaf_lower_bound(read.node->page, first), end, visitor);
        leave_read(read);
        // Bounds of a damaged tree might not move on.
        if (!goes_on || bounds.upper == kMaximumKey || !(first < bounds.upper)) {
            return {};
        }
        first = bounds.upper;
    }
    return {};
}

Result<void> Tree::scan_from_last(Key not_before, Key first, Key end,
                                  TreeVisitor& visitor) NO_THREAD_SAFETY_ANALYSIS {
    // The greatest key up to `key` is looked for, leaf by leaf.
    Key key = first;
    while (true) {
        Bounds bounds;
        const ReadLeaf read = TRY(find_leaf_shared(key, bounds));
        const Node* const leaf = read.node;
        uint32_t index = leaf_lower_bound(leaf->page, first);
        const bool is_exact = index < leaf->header().count && leaf_key(leaf->page, index) == first;
        // Where it may be in a leaf before this one, that is where the keys begin.
        const bool is_here = is_exact || index > 0 || !(not_before < bounds.lower) ||
                             bounds.lower == kMinimumKey || !(bounds.lower <= key);
        if (!is_exact && index > 0 && not_before <= leaf_key(leaf->page, index - 1)) {
            --index;
        }
        const bool goes_on = is_here && visit_leaf(leaf, index, end, visitor);
        leave_read(read);
        if (!is_here) {
            key = previous_key(bounds.lower);
        } else if (!goes_on || bounds.upper == kMaximumKey || !(key < bounds.upper)) {
            return {};
        } else {
            return scan(first < bounds.upper ? bounds.upper : first, end, visitor);
        }
    }
}

namespace {

void copy_slot(const Node* leaf, uint32_t index, KeyAndValue& found) {
    ByteSpan value = leaf_value(leaf->page, index);
    found.key = leaf_key(leaf->page, index);
    found.value_bytes = static_cast<uint32_t>(value.size());
    if (!value.empty()) {
        __builtin_memcpy(found.value, value.data(), value.size());
    }
}

}  // namespace

// In a pinned leaf that has keys on both sides of the key, or the key itself.
bool Tree::find_last_pinned(Key at_or_before, const NodePins* pins,
                            KeyAndValue& found) NO_THREAD_SAFETY_ANALYSIS {
    Node* leaf = lock_pinned_leaf(at_or_before, pins, false);
    if (leaf == nullptr) {
        return false;
    }
    const uint32_t index = leaf_lower_bound(leaf->page, at_or_before);
    const bool exact = leaf_key(leaf->page, index) == at_or_before;
    copy_slot(leaf, exact ? index : index - 1, found);
    leave_shared(leaf);
    return true;
}

Result<void> Tree::find_last(Key at_or_before, Key not_before, KeyAndValue& found,
                             const NodePins* pins) NO_THREAD_SAFETY_ANALYSIS {
    if (pins != nullptr && find_last_pinned(at_or_before, pins, found)) {
        return found.key < not_before ? Result<void>(Error::enoent) : Result<void>();
    }
    while (not_before <= at_or_before) {
        Bounds bounds;
        const ReadLeaf read = TRY(find_leaf_shared(at_or_before, bounds));
        const Node* const leaf = read.node;
        uint32_t index = leaf_lower_bound(leaf->page, at_or_before);
        bool exact = index < leaf->header().count && leaf_key(leaf->page, index) == at_or_before;
        if (exact || index > 0) {
            copy_slot(leaf, exact ? index : index - 1, found);
            leave_read(read);
            if (found.key < not_before) {
                return Error::enoent;
            }
            return {};
        }
        leave_read(read);
        if (bounds.lower == kMinimumKey || !(bounds.lower <= at_or_before)) {
            return Error::enoent;
        }
        at_or_before = previous_key(bounds.lower);
    }
    return Error::enoent;
}

Result<void> Tree::find_first(Key first, Key end, KeyAndValue& found) NO_THREAD_SAFETY_ANALYSIS {
    while (first < end) {
        Bounds bounds;
        const ReadLeaf read = TRY(find_leaf_shared(first, bounds));
        const Node* const leaf = read.node;
        uint32_t index = leaf_lower_bound(leaf->page, first);
        if (index < leaf->header().count) {
            bool inside = leaf_key(leaf->page, index) < end;
            if (inside) {
                copy_slot(leaf, index, found);
            }
            leave_read(read);
            if (!inside) {
                return Error::enoent;
            }
            return {};
        }
        leave_read(read);
        if (bounds.upper == kMaximumKey || !(first < bounds.upper)) {
            return Error::enoent;
        }
        first = bounds.upper;
    }
    return Error::enoent;
}

Node* Tree::lock_pinned_leaf(Key key, const NodePins* pins,
                             bool exclusive) NO_THREAD_SAFETY_ANALYSIS {
    // The latest ones: those of the neighbouring records.
    constexpr uint32_t kLookedAt = 12;
    const uint32_t count = pins != nullptr ? pins->size() : 0;
    for (uint32_t i = count; i > 0 && i + kLookedAt > count; --i) {
        const NodePins::Pinned& pinned = (*pins)[i - 1];
        Node* leaf = pinned.node;
        // A node that was dropped is never one of the tree again.
        if (leaf->level != 0 || !pinned.covers(key) ||
            (leaf->pins.load(std::memory_order_relaxed) & Node::kDropped) != 0) {
            continue;
        }
        if (exclusive) {
            leaf->lock.lock(leaf->lock_level());
        } else {
            leaf->lock.lock_shared_unbiased(leaf->lock_level());
        }
        // A thread that takes a node out of the tree has it locked. An empty leaf may be about to go
        // (Tree::remove_empty_leaf), so nothing may be put there.
        const bool in_tree = (leaf->pins.load(std::memory_order_relaxed) & Node::kDropped) == 0;
        const uint32_t keys = leaf->header().count;
        const bool covers =
            exclusive && leaf->version.load(std::memory_order_relaxed) == pinned.version;
        if (in_tree && keys > 0 &&
            (covers || (leaf_key(leaf->page, 0) <= key && key <= leaf_key(leaf->page, keys - 1)))) {
            leaf->pins.fetch_add(1, std::memory_order_relaxed);
            return leaf;
        }
        if (exclusive) {
            leaf->lock.unlock();
        } else {
            leaf->lock.unlock_shared();
        }
    }
    return nullptr;
}

bool Tree::find_last_prepared(Key at_or_before, Key not_before, const NodeReservation& reservation,
                              KeyAndValue& found) {
    Result<void> result = find_last(at_or_before, not_before, found, reservation.pins);
    TIFFIN_ASSERT(result.ok() || result.error() == Error::enoent);
    return result.ok();
}

bool Tree::find_first_prepared(Key first, Key end, const NodeReservation& reservation,
                               KeyAndValue& found) NO_THREAD_SAFETY_ANALYSIS {
    Node* leaf = lock_pinned_leaf(first, reservation.pins, false);
    if (leaf != nullptr) {
        copy_slot(leaf, leaf_lower_bound(leaf->page, first), found);
        leave_shared(leaf);
        return found.key < end;
    }
    Result<void> result = find_first(first, end, found);
    TIFFIN_ASSERT(result.ok() || result.error() == Error::enoent);
    return result.ok();
}

Result<void> Tree::prepare(Key first, Key last, NodePins& pins,
                           Neighbours neighbours) NO_THREAD_SAFETY_ANALYSIS {
    // A leaf with more keys than that is hardly going to lose them all at once.
    constexpr uint32_t kFewKeys = 32;
    const bool with_neighbours = neighbours == Neighbours::wanted;
    // The record before may have needed the same leaf, and with it the way there.
    if (Node* leaf = lock_pinned_leaf(last, &pins, false); leaf != nullptr) {
        const Key lowest = leaf_key(leaf->page, 0);
        const bool is_inside = with_neighbours ? lowest < first : lowest <= first;
        leave_shared(leaf);
        if (is_inside) {
            return {};
        }
    }
    Key key = first;
    while (true) {
        Bounds bounds;
        bool needs_predecessor = false;
        bool needs_successor = false;
        for (const Way way : {Way::any, Way::with_locks}) {
            Node* leaf = TRY(find_leaf_to_prepare(key, bounds, pins, way));
            needs_predecessor =
                with_neighbours && key == first && leaf_lower_bound(leaf->page, first) == 0;
            needs_successor =
                with_neighbours && bounds.falls_to_right && leaf->header().count <= kFewKeys;
            leaf->lock.unlock_shared();
            if (!needs_predecessor && !needs_successor) {
                break;
            }
            // Which leaf is the neighbour has to be known for sure: again, with locks.
        }
        if (needs_predecessor && !(bounds.lower == kMinimumKey) && bounds.lower <= first) {
            Bounds before;
            TRY(find_leaf_to_prepare(previous_key(bounds.lower), before, pins, Way::with_locks))
                ->lock.unlock_shared();
        }
        bool is_last = bounds.upper == kMaximumKey || !(key < bounds.upper);
        if (is_last || last < bounds.upper) {
            if (needs_successor && !is_last) {
                // It takes over the range of this leaf should that become empty, if it is at hand.
                TRY(find_leaf_to_prepare(bounds.upper, bounds, pins, Way::with_locks))
                    ->lock.unlock_shared();
            }
            return {};
        }
        key = bounds.upper;
    }
}

NodesNeeded Tree::nodes_needed(uint32_t records, uint32_t contiguous_bytes) const {
    // The tree may grow by a level before the change is applied. A change copies its path and, in the worst case, splits
    // every node on it and adds a root. Neighbours share their path; here their leaves are taken to be
    // no emptier than usual, which Transaction::prepare() looks at.
    const uint32_t height = root_level() + 2U;
    NodesNeeded needed{records * height, records * (height + 1)};
    if (contiguous_bytes > 0) {
        const uint32_t leaves = leaves_of(contiguous_bytes);
        needed.copies += leaves + 2 * height;
        needed.splits += leaves + leaves / 16 + 2 * (height + 1);
    }
    return needed;
}

}  // namespace tiffin::tiffinfs
