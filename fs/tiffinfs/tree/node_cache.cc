// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The cache of tree nodes: finding, loading, evicting.
#include "fs/tiffinfs/tree/node_cache.h"

#include <new>

#include "fs/base/race_point.h"
#include "fs/base/text.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// Blocks are handed out in runs, so neighbours must spread over the shards.
uint64_t hash_block(uint64_t block) {
    block ^= block >> 31;
    block *= 0x9e3779b97f4a7c15;
    return block ^ (block >> 29);
}

// At least as many as shards, so that all nodes of a bucket belong to one shard.
constexpr uint32_t kMinimumBuckets = 4096;
constexpr uint32_t kMaximumBuckets = 1U << 27;  // 1 GiB of them; a greater budget has longer chains
// How many nodes an eviction looks at before the budget is exceeded instead, and how many it takes at
// most: one look at all readers serves them all.
constexpr uint32_t kEvictionEffort = 256;
constexpr uint32_t kEvictedAtOnce = 16;

}  // namespace

NodeCache::NodeCache(vfs::BlockDevice& device, uint64_t budget_bytes, DamageListener& listener)
    : device_(device), listener_(listener), budget_nodes_(budget_bytes / kBlockBytes) {}

NodeCache::~NodeCache() {
    // Dropped nodes that were to be written are on the list only; the others are in the hash too.
    Node* node = take_dirty();
    while (node != nullptr) {
        Node* next = node->dirty_next;
        if ((node->pins.load(std::memory_order_relaxed) & Node::kDropped) != 0) {
            free_node(node);
        }
        node = next;
    }
    for (uint32_t i = 0; i < bucket_count_; ++i) {
        node = buckets_[i].load(std::memory_order_relaxed);
        while (node != nullptr) {
            Node* next = node->hash_next.load(std::memory_order_relaxed);
            free_node(node);
            node = next;
        }
    }
    host::release(buckets_, bucket_count_ * sizeof(*buckets_));
    MutexLock lock(retired_lock_);
    for (Node* list : {retired_, waiting_, reusable_}) {
        free_list(list);
    }
}

Result<void> NodeCache::start(uint64_t volume_nonce, uint64_t total_blocks) {
    volume_nonce_ = volume_nonce;
    total_blocks_ = total_blocks;
    uint32_t count = kMinimumBuckets;
    while (count < budget_nodes_ && count < kMaximumBuckets) {
        count *= 2;
    }
    buckets_ = static_cast<std::atomic<Node*>*>(host::allocate(count * sizeof(*buckets_)));
    if (buckets_ == nullptr) {
        return Error::enomem;
    }
    bucket_count_ = count;
    for (uint32_t i = 0; i < count; ++i) {
        new (&buckets_[i]) std::atomic<Node*>(nullptr);
    }
    return {};
}

NodeCache::Shard& NodeCache::shard_of(uint64_t block) {
    static_assert(kMinimumBuckets % kShards == 0);
    return shards_[hash_block(block) % kShards];
}

std::atomic<Node*>& NodeCache::bucket_of(uint64_t block) const {
    return buckets_[hash_block(block) & (bucket_count_ - 1)];
}

void NodeCache::link(Shard& shard, Node* node) {
    std::atomic<Node*>& bucket = bucket_of(node->block);
    node->hash_next.store(bucket.load(std::memory_order_relaxed), std::memory_order_relaxed);
    bucket.store(node, std::memory_order_release);
    if (shard.clock_hand == nullptr) {
        node->clock_next = node;
        node->clock_previous = node;
        shard.clock_hand = node;
    } else {
        // Behind the hand: it is looked at last.
        node->clock_next = shard.clock_hand;
        node->clock_previous = shard.clock_hand->clock_previous;
        node->clock_previous->clock_next = node;
        node->clock_next->clock_previous = node;
    }
    shard.count++;
}

void NodeCache::unlink(Shard& shard, Node* node) {
    std::atomic<Node*>* place = &bucket_of(node->block);
    Node* found = place->load(std::memory_order_relaxed);
    while (found != node) {
        TIFFIN_ASSERT(found != nullptr);
        place = &found->hash_next;
        found = place->load(std::memory_order_relaxed);
    }
    // Sequentially consistent: no reader that enters an epoch after this finds the node. Readers that have
    // found it go on from it to the next.
    place->store(node->hash_next.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    if (node->clock_next == node) {
        shard.clock_hand = nullptr;
    } else {
        node->clock_previous->clock_next = node->clock_next;
        node->clock_next->clock_previous = node->clock_previous;
        if (shard.clock_hand == node) {
            shard.clock_hand = node->clock_next;
        }
    }
    node->clock_next = nullptr;
    node->clock_previous = nullptr;
    shard.count--;
}

Node* NodeCache::find_and_pin(Shard& /*shard*/, uint64_t block) {
    Node* node = peek(block);
    if (node != nullptr) {
        node->pins.fetch_add(1, std::memory_order_relaxed);
    }
    return node;
}

Node* NodeCache::peek(uint64_t block) const {
    Node* node = bucket_of(block).load(std::memory_order_seq_cst);
    while (node != nullptr && node->block != block) {
        node = node->hash_next.load(std::memory_order_seq_cst);
    }
    return node;
}

bool NodeCache::try_pin(Node* node) {
    uint32_t pins = node->pins.load(std::memory_order_relaxed);
    do {
        if ((pins & Node::kDropped) != 0) {
            return false;
        }
    } while (!node->pins.compare_exchange_weak(pins, pins + 1, std::memory_order_acquire,
                                               std::memory_order_relaxed));
    return true;
}

Node* NodeCache::find_cached(uint64_t block) {
    Shard& shard = shard_of(block);
    MutexLock lock(shard.lock);
    return find_and_pin(shard, block);
}

NodeCache::Counters NodeCache::counters() const {
    return {static_cast<uint64_t>(hits_.sum()), misses_.load(std::memory_order_relaxed),
            evictions_.load(std::memory_order_relaxed)};
}

Result<Node*> NodeCache::get(uint64_t block, uint64_t generation, uint8_t level) {
    Node* node = find_cached(block);
    if (node == nullptr) {
        return load(block, generation, level);
    }
    count_hits(1);
    note_use(node);
    if (node->generation != generation || node->level != level) {
        unpin(node);
        return report_second_parent(block);
    }
    return node;
}

// Two pointers claim one block: only a crafted or damaged tree does that.
Error NodeCache::report_second_parent(uint64_t block) {
    log_line(host::LogLevel::error, "tree node at block ", block,
             " is claimed by two different parents");
    listener_.damage_met();
    return Error::euclean;
}

Error NodeCache::report_misplaced_keys(const Node* node) {
    if (last_failed_block_.exchange(node->block, std::memory_order_relaxed) != node->block) {
        log_line(host::LogLevel::error, "tree node at block ", node->block,
                 " has keys that belong elsewhere");
    }
    listener_.damage_met();
    return Error::euclean;
}

// The loader enters the node first, locked, so that all other threads that want it wait for the one read.
Result<Node*> NodeCache::load(uint64_t block, uint64_t generation, uint8_t level)
    NO_THREAD_SAFETY_ANALYSIS {  // the lock of a node that no other thread can see yet
    Node* node = TRY(allocate_node());
    node->block = block;
    node->generation = generation;
    node->level = level;
    node->pins.store(1, std::memory_order_relaxed);
    bool locked = node->lock.try_lock();
    TIFFIN_ASSERT(locked);
    Node* present = nullptr;
    {
        Shard& shard = shard_of(block);
        MutexLock lock(shard.lock);
        present = find_and_pin(shard, block);
        if (present == nullptr) {
            link(shard, node);
        }
    }
    if (present != nullptr) {
        node->lock.unlock();
        free_node(node);
        if (present->generation != generation || present->level != level) {
            unpin(present);
            return report_second_parent(block);
        }
        return present;
    }
    race_point();
    misses_.fetch_add(1, std::memory_order_relaxed);
    Result<void> read = device_.read(block * kBlockBytes, node->page, kBlockBytes);
    const char* reason = "a failed read";
    if (read.ok() &&
        check_page(node->page, volume_nonce_, block, generation, level, total_blocks_, reason)) {
        node->version.store(Node::kUnreadable + 1, std::memory_order_release);
        node->lock.unlock();
        return node;
    }
    node->load_error = read.ok() ? Error::euclean : read.error();
    node->failed = true;
    node->lock.unlock();
    // Once: a search goes there again and again.
    if (last_failed_block_.exchange(block, std::memory_order_relaxed) != block) {
        log_line(host::LogLevel::error, "tree node at block ", block, " (generation ", generation,
                 ", level ", uint32_t{level}, "): ", reason);
    }
    Error error = node->load_error;
    if (error == Error::euclean) {
        listener_.damage_met();
    }
    drop(node, false);
    unpin(node);
    return error;
}

void NodeCache::insert_dirty(Node* node) {
    node->pins.fetch_add(1, std::memory_order_relaxed);
    node->referenced.store(true, std::memory_order_relaxed);
    dirty_nodes_.fetch_add(1, std::memory_order_relaxed);
    {
        Shard& shard = shard_of(node->block);
        MutexLock lock(shard.lock);
        link(shard, node);
    }
    MutexLock lock(dirty_lock_);
    node->dirty_next = dirty_list_;
    dirty_list_ = node;
}

void NodeCache::drop(Node* node, bool obsolete) {
    if (obsolete) {
        // Not written otherwise: a checkpoint may be reading it in a node that it has sealed.
        node->obsolete = true;
    }
    Shard& shard = shard_of(node->block);
    MutexLock lock(shard.lock);
    unlink(shard, node);
    node->pins.fetch_or(Node::kDropped, std::memory_order_relaxed);
}

Node* NodeCache::take_dirty() {
    MutexLock lock(dirty_lock_);
    Node* list = dirty_list_;
    dirty_list_ = nullptr;
    return list;
}

void NodeCache::clean(Node* node) {
    dirty_nodes_.fetch_sub(1, std::memory_order_relaxed);
    unpin(node);
}

void NodeCache::give_back_dirty(Node* list) {
    if (list == nullptr) {
        return;
    }
    Node* last = list;
    while (last->dirty_next != nullptr) {
        last = last->dirty_next;
    }
    MutexLock lock(dirty_lock_);
    last->dirty_next = dirty_list_;
    dirty_list_ = list;
}

// Looks at some nodes of the shard for one that is clean, without pins, and was not used since the hand
// came by last, and takes it out.
Node* NodeCache::evict_from(Shard& shard, uint32_t& looked_at) {
    const uint32_t steps = shard.count < 16 ? 2 * shard.count : 32;
    for (uint32_t step = 0; step < steps; ++step, ++looked_at) {
        Node* node = shard.clock_hand;
        shard.clock_hand = node->clock_next;
        // Dirty nodes are always pinned. A reader without locks may be about to pin it: only one of us succeeds.
        uint32_t pins = 0;
        if (node->pins.load(std::memory_order_relaxed) == 0 &&
            !node->referenced.exchange(false, std::memory_order_relaxed) &&
            node->pins.compare_exchange_strong(pins, Node::kDropped, std::memory_order_acq_rel)) {
            race_point();
            node->version.store(Node::kUnreadable, std::memory_order_release);
            race_point();
            unlink(shard, node);
            return node;
        }
    }
    return nullptr;
}

uint64_t NodeCache::shrink(uint64_t wanted_bytes) {
    const uint64_t before = nodes_.load(std::memory_order_relaxed);
    const uint64_t wanted = wanted_bytes / kBlockBytes;
    uint64_t taken = 0;
    for (Shard& shard : shards_) {
        // Twice around the ring: the first time spares what was used.
        uint32_t looked_at = 0;
        uint32_t end = 1;
        while (taken < wanted && looked_at < end && shard.lock.try_lock()) {
            end = 2 * shard.count;
            const uint32_t seen = looked_at;
            Node* victim = evict_from(shard, looked_at);
            shard.lock.unlock();
            if (victim != nullptr) {
                taken++;
                retire(victim);
            } else if (looked_at == seen) {
                break;  // an empty one
            }
        }
    }
    evictions_.fetch_add(taken, std::memory_order_relaxed);
    free_reusable();
    const uint64_t after = nodes_.load(std::memory_order_relaxed);
    return after < before ? (before - after) * kBlockBytes : 0;
}

// Several at once, since one look at the readers serves them all.
void NodeCache::evict_some() {
    const uint64_t share = budget_nodes_ / 64 + 1;
    const uint64_t wanted = share < kEvictedAtOnce ? share : kEvictedAtOnce;
    uint64_t taken = 0;
    uint32_t looked_at = 0;
    for (uint32_t i = 0; i < kShards && taken < wanted && looked_at < kEvictionEffort; ++i) {
        Shard& shard = shards_[evict_cursor_.fetch_add(1, std::memory_order_relaxed) % kShards];
        if (!shard.lock.try_lock()) {
            continue;
        }
        Node* victim = evict_from(shard, looked_at);
        shard.lock.unlock();
        if (victim != nullptr) {
            taken++;
            retire(victim);
        }
    }
    evictions_.fetch_add(taken, std::memory_order_relaxed);
}

}  // namespace tiffin::tiffinfs
