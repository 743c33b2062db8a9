// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Spare tree nodes: memory and blocks set aside before a transaction changes anything.
#include "fs/tiffinfs/tree/node_cache.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {

NodePool::NodePool(NodeCache& cache, Allocator& allocator) : cache_(cache), allocator_(allocator) {}

NodePool::~NodePool() {
    MutexLock lock(lock_);
    while (spare_ != nullptr) {
        Node* node = spare_;
        spare_ = node->hash_next;
        cache_.free_node(node);
    }
}

Result<void> NodePool::reserve(uint32_t count, SpacePriority priority,
                               NodeReservation& reservation) {
    // Bounded: others may take what we refill, but each round adds what we need.
    for (uint32_t attempt = 0; attempt < 16; ++attempt) {
        uint32_t missing = 0;
        {
            MutexLock lock(lock_);
            // Spare nodes that others took from the reserve still count as part of it.
            const uint64_t left = allocator_.free_blocks() + spare_count_ - reserved_;
            if (left < count + allocator_.kept_blocks(priority)) {
                return Error::enospc;
            }
            if (spare_count_ >= reserved_ + count) {
                reserved_ += count;
                reservation.nodes += count;
                return {};
            }
            missing = reserved_ + count - spare_count_;
        }
        uint32_t made = 0;
        Result<void> refilled = refill(missing + kMarginNodes, priority, made);
        if (!refilled.ok() && made < missing) {
            // The margin is a convenience; what is needed is not.
            TRY(refill(missing - made, priority, made));
        }
    }
    return Error::enospc;
}

Result<void> NodePool::refill(uint32_t count, SpacePriority priority, uint32_t& made) {
    Node* first = nullptr;
    Node* last = nullptr;
    made = 0;
    Error error = Error::enospc;
    while (made < count) {
        Result<BlockRange> range = allocator_.allocate(0, count - made, priority);
        if (!range.ok()) {
            error = range.error();
            break;
        }
        bool failed = false;
        for (uint64_t i = 0; i < range->block_count; ++i) {
            Result<Node*> node = cache_.allocate_node();
            if (!node.ok()) {
                allocator_.cancel({range->first_block + i, range->block_count - i});
                error = node.error();
                failed = true;
                break;
            }
            node.value()->block = range->first_block + i;
            node.value()->hash_next = nullptr;
            node.value()->referenced.store(false, std::memory_order_relaxed);
            if (last == nullptr) {
                first = node.value();
            } else {
                last->hash_next = node.value();
            }
            last = node.value();
            made++;
        }
        if (failed) {
            break;
        }
    }
    if (first != nullptr) {
        // In the order of their blocks, so that what is taken together is written together.
        MutexLock lock(lock_);
        last->hash_next = spare_;
        spare_ = first;
        spare_count_ += made;
    }
    if (made < count) {
        return error;
    }
    return {};
}

void NodePool::unreserve(NodeReservation& reservation) {
    MutexLock lock(lock_);
    TIFFIN_ASSERT(reserved_ >= reservation.nodes);
    reserved_ -= reservation.nodes;
    reservation = {};
}

Node* NodePool::take(NodeReservation& reservation) {
    MutexLock lock(lock_);
    if (reservation.nodes > 0) {
        reservation.nodes--;
        reserved_--;
    } else {
        // More than was thought to be needed at most: a mistake that the margin may cover.
        TIFFIN_ASSERT(spare_count_ > reserved_);
        overdrawn_++;
    }
    if (reservation.kept > 0) {
        reservation.kept--;
    }
    Node* node = spare_;
    TIFFIN_ASSERT(node != nullptr);
    spare_ = node->hash_next;
    spare_count_--;
    node->hash_next = nullptr;
    node->pins.store(1, std::memory_order_relaxed);
    return node;
}

void NodePool::drain() {
    while (true) {
        Node* node = nullptr;
        {
            MutexLock lock(lock_);
            if (spare_count_ <= reserved_) {
                return;
            }
            node = spare_;
            spare_ = node->hash_next;
            spare_count_--;
        }
        allocator_.cancel({node->block, 1});
        cache_.free_node(node);
    }
}

uint64_t NodePool::spare_blocks() {
    MutexLock lock(lock_);
    return spare_count_;
}

uint64_t NodePool::overdrawn_nodes() {
    MutexLock lock(lock_);
    return overdrawn_;
}

uint64_t NodePool::reserved_nodes() {
    MutexLock lock(lock_);
    return reserved_;
}

}  // namespace tiffin::tiffinfs
