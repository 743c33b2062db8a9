// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The ordered tree that holds everything: a copy-on-write B+ tree of keys and values (format.h).
//
// Readers come to their leaf without a lock and without writing to anything that others read: each inner
// node has a version, which says afterwards whether what was read is so (optimistic lock coupling: Leis,
// Scheibner, Kemper, Neumann, "The ART of Practical Synchronization", DaMoN 2016). Only the leaf is locked, and
// pinned if it is to be changed. Where that does not lead there, because a node is not in memory or changes all the time, they
// take shared locks hand over hand from the root. Writing first tries the same ways with an exclusive lock
// on the leaf; when the leaf was not made in this generation (it must be copied first: what a checkpoint
// has sealed never changes) or has no room, it starts over with exclusive locks from the lowest ancestor
// that can absorb the change. A copied node gets its new block at once, so that a checkpoint has nothing to
// fix up.
//
// Changes happen inside an open transaction, after prepare() has loaded and pinned the paths and
// nodes have been reserved: then they cannot fail. What one tree operation does is atomic; isolation
// between operations is the business of the callers' object locks.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/tree/node.h"
#include "fs/tiffinfs/tree/node_cache.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "fs/vfs/span.h"

namespace tiffin::tiffinfs {

struct TreeRoot {
    uint64_t block = 0;
    uint64_t generation = 0;
    uint8_t level = 0;
};

// A key with a copy of its value: about 1.3 KiB, so not for the stack of a kernel.
struct KeyAndValue {
    Key key{};
    uint32_t value_bytes = 0;
    alignas(8) unsigned char value[kMaximumValueBytes];

    ByteSpan bytes() const { return ByteSpan(value, value_bytes); }
};

// Sees keys in order. visit() runs under the leaf's shared lock: it must not sleep, take locks or call
// the tree, and `value` is valid during the call only. It returns false to stop.
class TreeVisitor {
  public:
    virtual bool visit(Key key, ByteSpan value) = 0;

  protected:
    ~TreeVisitor() = default;
};

// A number of new nodes, by what they are for.
struct NodesNeeded {
    uint32_t copies = 0;
    uint32_t splits = 0;

    uint32_t total() const { return copies + splits; }
};

class Tree {
  public:
    // `cache` and `pool` must outlive the tree.
    Tree(NodeCache& cache, NodePool& pool);

    // Takes over an existing tree; `generation` is that of changes to come.
    void start(const TreeRoot& root, uint64_t generation);
    // mkfs: a tree of one empty leaf, in an open transaction.
    void start_empty(uint64_t generation, NodeReservation& reservation);

    // ---- Reading. Errors of all: eio, euclean, enomem. ----

    // Copies the value of `key` to `buffer` and returns its size. Errors also: enoent; erange when
    // the buffer is too small.
    Result<uint32_t> get(Key key, MutableByteSpan buffer);
    // A value of fixed size. Errors also: enoent; euclean when the size differs.
    template <typename T>
    Result<void> get_value(Key key, T& value) {
        uint32_t size =
            TRY(get(key, MutableByteSpan(reinterpret_cast<unsigned char*>(&value), sizeof(T))));
        if (size != sizeof(T)) {
            return Error::euclean;
        }
        return {};
    }
    // Visits all keys in [first, end).
    Result<void> scan(Key first, Key end, TreeVisitor& visitor);
    // The same, and before them, unless there is `first` itself, the greatest key in [not_before, first).
    Result<void> scan_from_last(Key not_before, Key first, Key end, TreeVisitor& visitor);
    // The greatest key in [not_before, at_or_before], with its value. Errors also: enoent.
    // With `pins`, looks first among the leaves that are pinned, which needs no way down.
    Result<void> find_last(Key at_or_before, Key not_before, KeyAndValue& found,
                           const NodePins* pins = nullptr);
    // The smallest key in [first, end), with its value. Errors also: enoent.
    Result<void> find_first(Key first, Key end, KeyAndValue& found);

    // ---- Writing, in an open transaction. ----

    // A caller that only puts keys wants no neighbours: a leaf keeps its range then.
    enum class Neighbours : uint8_t { unwanted, wanted };
    // Loads and pins, until `pins` is released, every node on the paths to the keys in [first, last],
    // and where neighbours are wanted to the key before `first`. Until the transaction ends, changes of
    // these keys then need no node that is not in memory, whatever other transactions do. Errors: eio,
    // euclean, enomem.
    Result<void> prepare(Key first, Key last, NodePins& pins,
                         Neighbours neighbours = Neighbours::wanted);

    // Puts key := value. Returns true when the key is new. Preconditions: prepared, reserved.
    bool put(Key key, ByteSpan value, NodeReservation& reservation);
    // Returns false when there is no such key.
    bool erase(Key key, NodeReservation& reservation);
    // find_last() and find_first() for prepared keys: cannot fail. Return false when there is no such key.
    bool find_last_prepared(Key at_or_before, Key not_before, const NodeReservation& reservation,
                            KeyAndValue& found);
    bool find_first_prepared(Key first, Key end, const NodeReservation& reservation,
                             KeyAndValue& found);

    // What `records` changes scattered over the tree can use up at most, or changes of neighbouring
    // keys with `contiguous_bytes` of slots and values in all.
    NodesNeeded nodes_needed(uint32_t records, uint32_t contiguous_bytes) const;

    // ---- Checkpoint, with no transaction open. ----
    TreeRoot root() const;
    // From now on nodes of older generations are copied before they change.
    void advance_generation(uint64_t generation);
    uint64_t generation() const { return generation_; }

  private:
    struct Bounds {
        Key lower;  // the leaf covers [lower, upper)
        Key upper;
        // The leaf has no neighbour before it that would take its range over, but one behind it.
        bool falls_to_right = false;
    };
    // A node on the way down, held exclusively, and which child was taken.
    struct Step {
        Node* node = nullptr;
        uint32_t child = 0;
    };
    // The locked part of a way from the root: nodes above `first` have been let go.
    struct Path {
        Step steps[kMaximumLevel + 2];
        uint32_t first = 0;
        uint32_t count = 0;
        bool root_locked = false;

        Node* leaf() { return steps[count - 1].node; }
    };

    enum class LeafUse : uint8_t {
        read,     // locked shared, not pinned
        prepare,  // locked shared, on a way that nothing but its leaf needs to be pinned for
        change,   // locked exclusively
    };
    // The leaf that covers `key`, pinned and locked, without another lock; nullptr when the way with locks
    // has to be taken. The bounds lie within those that a descent with locks would find: a neighbour's range
    // may have been added meanwhile. Not for reading.
    Node* find_leaf(Key key, LeafUse use, Bounds& bounds);
    // A leaf while it is read, locked shared. What keeps its memory is a pin or, so that reading writes to nothing
    // that others write to, the stay among the cache's readers; either way nothing is waited for until the end.
    struct ReadLeaf {
        Node* node = nullptr;
        BiasedSharedMutex::Sharing sharing;
        bool is_pinned = false;
        uint32_t epoch = 0;  // to leave, of one that is not pinned
    };
    // The same for reading. False: the way with locks has to be taken.
    bool find_leaf_to_read(Key key, Bounds& bounds, ReadLeaf& leaf);
    enum class Attempt : uint8_t { found, again, give_up };
    class Look;
    Attempt try_find_leaf(Key key, LeafUse use, Bounds& bounds, Node*& leaf);
    Attempt try_find_leaf_to_read(Key key, Bounds& bounds, ReadLeaf& leaf);
    Attempt walk_to_leaf(Key key, LeafUse use, Bounds& bounds, Node*& leaf, Look& above);
    static Attempt judge_leaf(const Node* leaf, const Bounds& bounds, const Look& above);
    static bool look_up_child(const Node* node, Key key, Bounds& bounds, InnerEntry& child);
    static void lock_leaf(Node* leaf, LeafUse use);
    static void unlock_leaf(Node* leaf, LeafUse use);

    // The same with locks. With `pins`, all nodes on the way that could leave memory are pinned.
    Result<Node*> descend_shared(Key key, Bounds& bounds, NodePins* pins);
    Result<ReadLeaf> find_leaf_shared(Key key, Bounds& bounds);
    static bool visit_leaf(const Node* leaf, uint32_t first_index, Key end, TreeVisitor& visitor);
    void leave_read(const ReadLeaf& leaf);
    Result<void> pin_for_change(Node* node, const Bounds& bounds, NodePins& pins);
    enum class Way : uint8_t { any, with_locks };
    Result<Node*> find_leaf_to_prepare(Key key, Bounds& bounds, NodePins& pins, Way way);
    Error leave_misplaced(Node* node);
    Result<void> lock_loaded_shared(Node* node);
    void leave_shared(Node* node);

    // A leaf among `pins` (which may be nullptr) that is in the tree, has keys and covers `key`, pinned and locked; nullptr
    // when none is found. That it covers the key is known from when it was found, unless it has been split since;
    // else, and for reading always, it must have keys on both sides of `key`, or `key` itself: ranges of leaves do not
    // overlap, so it is the leaf that a descent would come to. But a descent meets all other threads at the root, and
    // locking other leaves to look meets the threads that use them.
    Node* lock_pinned_leaf(Key key, const NodePins* pins, bool exclusive);
    // find_last() in such a leaf; false when there is none.
    bool find_last_pinned(Key at_or_before, const NodePins* pins, KeyAndValue& found);

    // Fast ways: false when the leaf cannot take the change as it is.
    bool put_in_place(Key key, ByteSpan value, const NodePins* pins, bool& is_new);
    bool erase_in_place(Key key, const NodePins* pins, bool& existed);
    Node* lock_leaf_exclusive(Key key, const NodePins* pins);

    void descend_exclusive(Key key, uint32_t needed_bytes, bool erasing,
                           NodeReservation& reservation, Path& path);
    void release_above(Path& path);
    void release_path(Path& path);
    bool absorbs_change(const Node* node, uint32_t needed_bytes, bool erasing) const;
    void split_leaf(Path& path, Key key, ByteSpan value, NodeReservation& reservation);
    void insert_into_parent(Path& path, uint32_t depth, Key separator, Node* right,
                            NodeReservation& reservation);
    void remove_empty_leaf(Path& path, NodeReservation& reservation);
    bool leave_to_sibling(Path& path, uint32_t survivor, NodeReservation& reservation);
    bool prepare_absorbing_sibling(Node* parent, uint32_t child, NodeReservation& reservation);
    void merge_with_right(Path& path);
    void collapse_root(Path& path, uint32_t depth);
    Node* lock_if_at_hand(uint64_t block, uint64_t generation, uint8_t level);
    bool is_whole(const Node* node, uint64_t generation, uint8_t level);

    Node* new_node(uint8_t level, NodeReservation& reservation);
    Node* copy_node(Node* node, NodeReservation& reservation);
    static void publish_node(Node* node);
    void drop_node(Node* node);
    void set_root(const TreeRoot& root) REQUIRES(root_lock_);
    uint8_t root_level() const { return shown_root_.level.load(std::memory_order_relaxed); }

    // root_ for readers without its lock; `version` is odd while it changes.
    struct ShownRoot {
        std::atomic<uint32_t> version{0};
        std::atomic<uint64_t> block{0};
        std::atomic<uint64_t> generation{0};
        std::atomic<uint8_t> level{0};
    };

    // Read by every descent; the lock, which splits write to, lies apart.
    NodeCache& cache_;
    NodePool& pool_;
    ShownRoot shown_root_;
    uint64_t generation_ = 0;  // changes only while no transaction is open
    alignas(64) mutable host::SharedMutex root_lock_{host::LockClass::tree_root};
    TreeRoot root_ GUARDED_BY(root_lock_);
};

}  // namespace tiffin::tiffinfs
