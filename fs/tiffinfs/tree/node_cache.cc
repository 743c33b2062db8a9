// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The cache of tree nodes: finding, loading, evicting.
#include "fs/tiffinfs/tree/node_cache.h"

#include <new>

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

constexpr uint32_t kMinimumBucketsPerShard = 64;
// How many nodes an eviction looks at before the budget is exceeded instead.
constexpr uint32_t kEvictionEffort = 256;

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
    for (Shard& shard : shards_) {
        MutexLock lock(shard.lock);
        if (shard.buckets == nullptr) {
            continue;
        }
        for (uint32_t i = 0; i < buckets_per_shard_; ++i) {
            while (shard.buckets[i] != nullptr) {
                Node* cached = shard.buckets[i];
                shard.buckets[i] = cached->hash_next;
                free_node(cached);
            }
        }
        host::release(shard.buckets, buckets_per_shard_ * sizeof(Node*));
    }
}

Result<void> NodeCache::start(uint64_t volume_nonce, uint64_t total_blocks) {
    volume_nonce_ = volume_nonce;
    total_blocks_ = total_blocks;
    buckets_per_shard_ = kMinimumBucketsPerShard;
    while (uint64_t{buckets_per_shard_} * kShards < budget_nodes_) {
        buckets_per_shard_ *= 2;
    }
    for (Shard& shard : shards_) {
        MutexLock lock(shard.lock);
        size_t size_bytes = buckets_per_shard_ * sizeof(Node*);
        shard.buckets = static_cast<Node**>(host::allocate(size_bytes));
        if (shard.buckets == nullptr) {
            return Error::enomem;
        }
        __builtin_memset(shard.buckets, 0, size_bytes);
    }
    return {};
}

NodeCache::Shard& NodeCache::shard_of(uint64_t block) {
    return shards_[hash_block(block) % kShards];
}

Node** NodeCache::bucket_of(Shard& shard, uint64_t block) {
    return &shard.buckets[(hash_block(block) / kShards) & (buckets_per_shard_ - 1)];
}

void NodeCache::link(Shard& shard, Node* node) {
    Node** bucket = bucket_of(shard, node->block);
    node->hash_next = *bucket;
    *bucket = node;
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
    Node** place = bucket_of(shard, node->block);
    while (*place != node) {
        TIFFIN_ASSERT(*place != nullptr);
        place = &(*place)->hash_next;
    }
    *place = node->hash_next;
    if (node->clock_next == node) {
        shard.clock_hand = nullptr;
    } else {
        node->clock_previous->clock_next = node->clock_next;
        node->clock_next->clock_previous = node->clock_previous;
        if (shard.clock_hand == node) {
            shard.clock_hand = node->clock_next;
        }
    }
    node->hash_next = nullptr;
    node->clock_next = nullptr;
    node->clock_previous = nullptr;
    shard.count--;
}

Node* NodeCache::find_and_pin(Shard& shard, uint64_t block) {
    for (Node* node = *bucket_of(shard, block); node != nullptr; node = node->hash_next) {
        if (node->block == block) {
            node->pins.fetch_add(1, std::memory_order_relaxed);
            return node;
        }
    }
    return nullptr;
}

Node* NodeCache::find_cached(uint64_t block) {
    Shard& shard = shard_of(block);
    MutexLock lock(shard.lock);
    return find_and_pin(shard, block);
}

Node* NodeCache::find_and_count(uint64_t block) {
    Shard& shard = shard_of(block);
    MutexLock lock(shard.lock);
    Node* node = find_and_pin(shard, block);
    if (node != nullptr) {
        shard.hits.store(shard.hits.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }
    return node;
}

NodeCache::Counters NodeCache::counters() const {
    Counters counters{0, misses_.load(std::memory_order_relaxed),
                      evictions_.load(std::memory_order_relaxed)};
    for (const Shard& shard : shards_) {
        counters.hits += shard.hits.load(std::memory_order_relaxed);
    }
    return counters;
}

Result<Node*> NodeCache::get(uint64_t block, uint64_t generation, uint8_t level) {
    Node* node = find_and_count(block);
    if (node == nullptr) {
        return load(block, generation, level);
    }
    if (!node->referenced.load(std::memory_order_relaxed)) {
        node->referenced.store(true, std::memory_order_relaxed);
    }
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

// The loader enters the node first, locked, so that everybody else who wants it waits for the one read.
Result<Node*> NodeCache::load(uint64_t block, uint64_t generation, uint8_t level)
    NO_THREAD_SAFETY_ANALYSIS {  // the lock of a node nobody else can see yet
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
        for (present = *bucket_of(shard, block); present != nullptr; present = present->hash_next) {
            if (present->block == block) {
                present->pins.fetch_add(1, std::memory_order_relaxed);
                break;
            }
        }
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
    misses_.fetch_add(1, std::memory_order_relaxed);
    Result<void> read = device_.read(block * kBlockBytes, node->page, kBlockBytes);
    const char* reason = "a failed read";
    if (read.ok() &&
        check_page(node->page, volume_nonce_, block, generation, level, total_blocks_, reason)) {
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

// Finds a clean node without pins, not used since the hand came by last, and takes it out.
Node* NodeCache::evict_one() {
    uint32_t looked_at = 0;
    for (uint32_t i = 0; i < kShards && looked_at < kEvictionEffort; ++i) {
        Shard& shard = shards_[evict_cursor_.fetch_add(1, std::memory_order_relaxed) % kShards];
        if (!shard.lock.try_lock()) {
            continue;
        }
        Node* victim = nullptr;
        uint32_t steps = shard.count < 16 ? 2 * shard.count : 32;
        for (uint32_t step = 0; step < steps && victim == nullptr; ++step, ++looked_at) {
            Node* node = shard.clock_hand;
            shard.clock_hand = node->clock_next;
            // Nobody can pin it while the shard is locked; dirty nodes are always pinned.
            if (node->pins.load(std::memory_order_acquire) == 0 &&
                !node->referenced.exchange(false, std::memory_order_relaxed)) {
                victim = node;
            }
        }
        if (victim != nullptr) {
            unlink(shard, victim);
        }
        shard.lock.unlock();
        if (victim != nullptr) {
            evictions_.fetch_add(1, std::memory_order_relaxed);
            return victim;
        }
    }
    return nullptr;
}

Result<Node*> NodeCache::allocate_node() {
    if (nodes_.load(std::memory_order_relaxed) >= budget_nodes_) {
        Node* victim = evict_one();
        if (victim != nullptr) {
            victim->failed = false;
            victim->obsolete = false;
            victim->dirty_next = nullptr;
            return victim;
        }
    }
    void* memory = host::allocate(sizeof(Node));
    void* page = memory != nullptr ? host::allocate_pages(kBlockBytes) : nullptr;
    if (page == nullptr) {
        host::release(memory, sizeof(Node));
        return Error::enomem;
    }
    nodes_.fetch_add(1, std::memory_order_relaxed);
    Node* node = new (memory) Node;
    node->page = static_cast<unsigned char*>(page);
    return node;
}

void NodeCache::free_node(Node* node) {
    host::release_pages(node->page, kBlockBytes);
    node->~Node();
    host::release(node, sizeof(Node));
    nodes_.fetch_sub(1, std::memory_order_relaxed);
}

Result<void> NodePins::add(Node* node) {
    for (uint32_t i = count_; i > 0 && i + 8 > count_; --i) {
        if (nodes_[i - 1] == node) {
            cache_.unpin(node);
            return {};
        }
    }
    if (count_ == capacity_) {
        size_t size_bytes = size_t{2} * capacity_ * sizeof(Node*);
        auto* grown = static_cast<Node**>(host::allocate(size_bytes));
        if (grown == nullptr) {
            return Error::enomem;
        }
        __builtin_memcpy(grown, nodes_, count_ * sizeof(Node*));
        if (nodes_ != inline_nodes_) {
            host::release(nodes_, capacity_ * sizeof(Node*));
        }
        nodes_ = grown;
        capacity_ *= 2;
    }
    nodes_[count_++] = node;
    return {};
}

uint32_t NodePins::count_older(uint64_t generation) const {
    uint32_t older = 0;
    for (uint32_t i = 0; i < count_; ++i) {
        older += nodes_[i]->generation < generation ? 1 : 0;
    }
    return older;
}

bool NodePins::contains(const Node* node) const {
    for (uint32_t i = count_; i > 0; --i) {
        if (nodes_[i - 1] == node) {
            return true;
        }
    }
    return false;
}

void NodePins::release() {
    for (uint32_t i = 0; i < count_; ++i) {
        cache_.unpin(nodes_[i]);
    }
    count_ = 0;
    if (nodes_ != inline_nodes_) {
        host::release(nodes_, capacity_ * sizeof(Node*));
        nodes_ = inline_nodes_;
        capacity_ = kInlineNodes;
    }
}

}  // namespace tiffin::tiffinfs
