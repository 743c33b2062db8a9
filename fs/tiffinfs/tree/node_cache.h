// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Tree nodes in memory, found by the block they live in, and the pool of spare nodes.
//
// Since a node of a sealed generation never changes and a changed one gets a new block, the cache needs
// no versions. Clean nodes without pins are evicted (second chance) when the budget is used up; dirty
// ones stay until a checkpoint has written them.
//
// A node can also be looked at without a lock or a pin, inside an epoch of readers(): what leaves the cache
// is used again only when all readers that could have found it have left (epoch-based reclamation, Fraser,
// "Practical lock-freedom", 2004).
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/reader_epochs.h"
#include "fs/base/relaxed_number.h"
#include "fs/base/striped_budget.h"
#include "fs/base/striped_counter.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/damage_listener.h"
#include "fs/tiffinfs/tree/node.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

class NodeCache;
class NodePool;

// Nodes that stay in memory until release(), and what their leaves covered when they were found.
class NodePins {
  public:
    struct Pinned {
        Node* node = nullptr;
        // A leaf: as long as it is in the tree and has this version, it covers [lower, upper) and perhaps more.
        uint32_t version = 0;
        Key lower{};
        Key upper{};

        bool covers(Key key) const { return lower <= key && key < upper; }
    };

    explicit NodePins(NodeCache& cache) : cache_(cache) {}
    ~NodePins() { release(); }
    NodePins(const NodePins&) = delete;
    NodePins& operator=(const NodePins&) = delete;

    // Takes over a pin. Errors: enomem (the pin stays with the caller).
    Result<void> add(Node* node);
    // The same for a leaf that the caller has locked, and that covers [lower, upper).
    Result<void> add_leaf(Node* leaf, Key lower, Key upper);
    void release();
    // How many, some of them perhaps counted twice.
    uint32_t size() const { return count_; }
    const Pinned& operator[](uint32_t index) const { return nodes_[index]; }
    // How many that a change would have to copy, since an older generation made them.
    uint32_t count_older(uint64_t generation) const;
    bool contains(const Node* node) const;

  private:
    Result<void> add(const Pinned& pinned);

    static constexpr uint32_t kInlineNodes = 48;
    NodeCache& cache_;
    uint32_t count_ = 0;
    uint32_t capacity_ = kInlineNodes;
    Pinned inline_nodes_[kInlineNodes];
    Pinned* nodes_ = inline_nodes_;
};

// What a transaction may still take from the pool. Filled by NodePool::reserve.
struct NodeReservation {
    uint32_t nodes = 0;
    // Of these, what the prepared changes themselves can need: copies of pinned nodes, and splits.
    uint32_t kept = 0;
    const NodePins* pins = nullptr;

    // A node that would have to be copied for its own sake.
    bool keeps_copy_of(const Node* node) const { return pins != nullptr && pins->contains(node); }
};

class NodeCache {
  public:
    // `budget_bytes` bounds the nodes in memory (dirty ones may exceed it until the next checkpoint).
    NodeCache(vfs::BlockDevice& device, uint64_t budget_bytes, DamageListener& listener);
    ~NodeCache();

    // Allocates the hash. Errors: enomem.
    Result<void> start(uint64_t volume_nonce, uint64_t total_blocks);
    // The volume has become larger. Any time.
    void grow(uint64_t total_blocks) { total_blocks_ = total_blocks; }

    // The node at `block`, pinned; reads and checks it when it is not in memory. Errors: eio,
    // euclean (with a log line: what and where), enomem.
    Result<Node*> get(uint64_t block, uint64_t generation, uint8_t level);
    // Says that a node's keys do not lie where its parent says; returns euclean to pass on.
    Error report_misplaced_keys(const Node* node);
    // Only when it is in memory and could be pinned at once; else nullptr.
    Node* find_cached(uint64_t block);
    void unpin(Node* node) {
        if (node->pins.fetch_sub(1, std::memory_order_acq_rel) == (Node::kDropped | 1U)) {
            retire(node);
        }
    }

    // ---- Without locks. Readers neither wait for anything inside an epoch but for a node's lock, nor
    // call get(), which may have to wait for readers. ----
    ReaderEpochs& readers() { return readers_; }
    // Inside an epoch: the node at `block` when it is in memory, else nullptr. It may be leaving.
    Node* peek(uint64_t block) const;
    // Inside an epoch: false when the node has left the cache.
    [[nodiscard]] static bool try_pin(Node* node);
    // For the counters, and for eviction: `node` was used.
    static void note_use(Node* node) {
        if (!node->referenced.load(std::memory_order_relaxed)) {
            node->referenced.store(true, std::memory_order_relaxed);
        }
    }
    void count_hits(uint32_t nodes) { hits_.add(nodes); }

    // Enters a new node, made from the pool, as dirty: it stays pinned for the caller, and a second
    // time until clean().
    void insert_dirty(Node* node);
    // The node was replaced or emptied: it leaves the hash, and its memory is freed with the last
    // pin. The caller holds a pin. `obsolete`: it was made in the generation that drops it, so no
    // tree that is ever written contains it.
    void drop(Node* node, bool obsolete);

    // Checkpoint: takes the list of nodes made since the last call, linked by dirty_next. The caller
    // writes them and then calls clean() for each.
    Node* take_dirty();
    void clean(Node* node);
    // After a failed checkpoint: the nodes are dirty again.
    void give_back_dirty(Node* list);

    // Gives about `wanted_bytes` of clean nodes that are not in use back to the host, the least recently used
    // first; returns how many bytes. Passes shards by whose lock is held, and waits for no reader: what readers may
    // still look at goes later.
    uint64_t shrink(uint64_t wanted_bytes);
    // What that could give at most.
    uint64_t reclaimable_bytes() const {
        const uint64_t resident = resident_bytes();
        const uint64_t dirty = dirty_bytes();
        return resident > dirty ? resident - dirty : 0;
    }

    // A node object with a page, from evicted or new memory. Errors: enomem.
    Result<Node*> allocate_node();
    // Frees one that has not been in the cache since.
    void free_node(Node* node);

    uint64_t dirty_bytes() const {
        return dirty_nodes_.load(std::memory_order_relaxed) * kBlockBytes;
    }
    uint64_t budget_bytes() const { return budget_nodes_ * kBlockBytes; }
    uint64_t resident_bytes() const { return nodes_.load(std::memory_order_relaxed) * kBlockBytes; }
    uint64_t volume_nonce() const { return volume_nonce_; }

    // How often a node was asked for and was in memory or not, and how often one made room.
    struct Counters {
        uint64_t hits = 0;
        uint64_t misses = 0;
        uint64_t evictions = 0;
    };
    Counters counters() const;

  private:
    static constexpr uint32_t kShards = 64;
    struct alignas(64) Shard {
        host::Mutex lock{host::LockClass::node_cache};
        Node* clock_hand GUARDED_BY(lock) = nullptr;  // ring of all nodes of the shard
        uint32_t count GUARDED_BY(lock) = 0;
    };
    Shard& shard_of(uint64_t block);
    Node* find_and_pin(Shard& shard, uint64_t block) REQUIRES(shard.lock);
    std::atomic<Node*>& bucket_of(uint64_t block) const;
    void link(Shard& shard, Node* node) REQUIRES(shard.lock);
    void unlink(Shard& shard, Node* node) REQUIRES(shard.lock);
    Error report_second_parent(uint64_t block);
    Result<Node*> load(uint64_t block, uint64_t generation, uint8_t level);
    // Takes out nodes that are not in use, up to a small number.
    void evict_some();
    Node* evict_from(Shard& shard, uint32_t& looked_at) REQUIRES(shard.lock);
    // The node has left the cache, and no thread has it pinned.
    void retire(Node* node);
    // One that no reader can have found, or nullptr.
    Node* take_retired();
    void poll_readers() REQUIRES(retired_lock_);
    void free_list(Node* list);
    // Frees what readers have left.
    void free_reusable();

    vfs::BlockDevice& device_;
    DamageListener& listener_;
    uint64_t budget_nodes_;
    uint64_t volume_nonce_ = 0;
    RelaxedNumber total_blocks_;
    uint32_t bucket_count_ = 0;  // a power of two
    // Changed under the locks of the shards; a bucket's nodes all belong to one.
    std::atomic<Node*>* buckets_ = nullptr;
    alignas(64) std::atomic<uint64_t> nodes_{0};  // in memory, spare ones included
    std::atomic<uint64_t> dirty_nodes_{0};
    std::atomic<uint32_t> evict_cursor_{0};
    std::atomic<uint64_t> last_failed_block_{0};
    StripedCounter hits_;
    std::atomic<uint64_t> misses_{0};
    std::atomic<uint64_t> evictions_{0};
    Shard shards_[kShards];

    ReaderEpochs readers_;
    host::Mutex retired_lock_{host::LockClass::node_cache};
    // Three stages, linked by clock_next: those that have left the cache lately; those for whose readers
    // grace_period_ waits; those that can be used again.
    Node* retired_ GUARDED_BY(retired_lock_) = nullptr;
    Node* waiting_ GUARDED_BY(retired_lock_) = nullptr;
    Node* reusable_ GUARDED_BY(retired_lock_) = nullptr;
    uint64_t grace_period_ GUARDED_BY(retired_lock_) = 0;
    uint32_t retired_count_ GUARDED_BY(retired_lock_) = 0;
    uint32_t reusable_count_ GUARDED_BY(retired_lock_) = 0;

    host::Mutex dirty_lock_{host::LockClass::leaf};
    Node* dirty_list_ GUARDED_BY(dirty_lock_) = nullptr;
};

// Spare nodes, each with memory and a block of its own: what a transaction takes while it changes the
// tree, so that it can fail neither for memory nor for space nor for I/O.
class NodePool {
  public:
    NodePool(NodeCache& cache, Allocator& allocator);
    ~NodePool();
    // Before the first use, when the allocator has started: decides what processors keep for themselves.
    void start();

    // Adds `count` nodes to `reservation`. Errors: enospc, enomem, eio.
    Result<void> reserve(uint32_t count, SpacePriority priority, NodeReservation& reservation);
    void unreserve(NodeReservation& reservation);
    // A spare node, pinned, its page not initialised. Precondition: reservation.nodes > 0.
    Node* take(NodeReservation& reservation);
    // Tells the allocator about a block that left the tree.
    void free_block(uint64_t block, uint64_t generation) {
        allocator_.mark_node_free(block, generation);
    }
    // Gives all spare blocks that are not reserved back (unmount; before enospc is final).
    void drain();
    uint64_t spare_blocks() const { return spare_count_.load(std::memory_order_relaxed); }
    // What open transactions may still take; never less than that.
    uint64_t reserved_nodes();
    // How many were taken beyond a reservation: 0, as tests assert.
    uint64_t overdrawn_nodes();
    Allocator& allocator() { return allocator_; }

  private:
    // Spare nodes beyond what is reserved, so that refilling is rare.
    static constexpr uint32_t kMarginNodes = 64;
    // What a processor keeps for its next reservations, unless cache or volume are small.
    static constexpr int64_t kNodesAtHand = 32;
    static constexpr uint64_t kSmallCacheBytes = 16U << 20;
    static constexpr uint64_t kSmallVolumeBlocks = 32768;
    // With more spare nodes than that, some are fetched from other processors rather than made.
    static constexpr int64_t kLotOfNodes = 512;
    // From what all processors have; false when that is too little.
    bool take_unreserved(uint32_t count, NodeReservation& reservation);
    // Adds `count` spare nodes; `made` says how many, also on failure. Errors: enospc, enomem, eio.
    Result<void> refill(uint32_t count, SpacePriority priority, uint32_t& made);

    // Whether as many as that can be left to `priority` when all spare nodes were given back.
    bool leaves_reserve(uint32_t count, SpacePriority priority) const;

    NodeCache& cache_;
    Allocator& allocator_;
    bool keeps_at_hand_ = false;  // fixed from start() on
    host::Mutex lock_{host::LockClass::node_pool};
    Node* spare_ GUARDED_BY(lock_) = nullptr;  // linked by clock_next
    uint64_t overdrawn_ GUARDED_BY(lock_) = 0;
    std::atomic<uint64_t> spare_count_{0};  // changed under the lock
    // Those of them that no reservation has: a thread that adds nodes counts them here afterwards, one that takes
    // any away has counted them off before.
    StripedBudget unreserved_;
};

}  // namespace tiffin::tiffinfs
