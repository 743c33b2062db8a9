// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Spare tree nodes: memory and blocks set aside before a transaction changes anything.
#include "fs/tiffinfs/tree/node_cache.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {

NodePool::NodePool(NodeCache& cache, Allocator& allocator) : cache_(cache), allocator_(allocator) {
    unreserved_.start(0, 0, 0);
}

void NodePool::start() {
    keeps_at_hand_ =
        cache_.budget_bytes() > kSmallCacheBytes && allocator_.total_blocks() > kSmallVolumeBlocks;
    unreserved_.start(0, keeps_at_hand_ ? kNodesAtHand : 0, 0);
}

NodePool::~NodePool() {
    MutexLock lock(lock_);
    while (spare_ != nullptr) {
        Node* node = spare_;
        spare_ = node->clock_next;
        cache_.free_node(node);
    }
}

bool NodePool::leaves_reserve(uint32_t count, SpacePriority priority) const {
    const uint64_t needed = count + allocator_.kept_blocks(priority);
    if (allocator_.has_more_free_than(needed)) {
        return true;
    }
    // Spare nodes that others took from the reserve still count as part of it.
    const int64_t spare = unreserved_.sum();
    return allocator_.free_blocks() + static_cast<uint64_t>(spare > 0 ? spare : 0) >= needed;
}

bool NodePool::take_unreserved(uint32_t count, NodeReservation& reservation) {
    if (!unreserved_.take(count)) {
        return false;
    }
    reservation.nodes += count;
    return true;
}

Result<void> NodePool::reserve(uint32_t count, SpacePriority priority,
                               NodeReservation& reservation) {
    // Bounded: others may take what we refill, but each round adds what we need.
    for (uint32_t attempt = 0; attempt < 16; ++attempt) {
        if (!leaves_reserve(count, priority)) {
            return Error::enospc;
        }
        if (unreserved_.take_at_hand(count)) {
            reservation.nodes += count;
            return {};
        }
        const int64_t unreserved = unreserved_.estimate();
        // What other processors have at hand is left to them, unless there is a lot of it, or no more.
        const bool takes_all = attempt > 0 || !keeps_at_hand_ || unreserved > count + kLotOfNodes;
        if (takes_all && take_unreserved(count, reservation)) {
            return {};
        }
        const auto missing = unreserved < count ? static_cast<uint32_t>(count - unreserved) : 0;
        uint32_t made = 0;
        Result<void> refilled = refill(missing + kMarginNodes, priority, made);
        if (!refilled.ok() && made < missing) {
            // The margin is a convenience; what is needed is not.
            Result<void> rest = refill(missing - made, priority, made);
            if (!rest.ok()) {
                // The estimate may have missed some.
                return take_unreserved(count, reservation) ? Result<void>() : rest;
            }
        }
    }
    return take_unreserved(count, reservation) ? Result<void>() : Error::enospc;
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
            node.value()->clock_next = nullptr;
            node.value()->referenced.store(false, std::memory_order_relaxed);
            if (last == nullptr) {
                first = node.value();
            } else {
                last->clock_next = node.value();
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
        last->clock_next = spare_;
        spare_ = first;
        spare_count_.fetch_add(made, std::memory_order_relaxed);
        unreserved_.give(made);
    }
    if (made < count) {
        return error;
    }
    return {};
}

void NodePool::unreserve(NodeReservation& reservation) {
    if (reservation.nodes > 0) {
        unreserved_.give(reservation.nodes);
    }
    reservation = {};
}

Node* NodePool::take(NodeReservation& reservation) {
    // More than was thought to be needed at most: a mistake that the margin may cover.
    const bool overdrawn = reservation.nodes == 0;
    if (overdrawn) {
        const bool spare = unreserved_.take(1);
        TIFFIN_ASSERT(spare);
    }
    MutexLock lock(lock_);
    spare_count_.fetch_sub(1, std::memory_order_relaxed);
    overdrawn_ += overdrawn ? 1 : 0;
    reservation.nodes -= overdrawn ? 0 : 1;
    if (reservation.kept > 0) {
        reservation.kept--;
    }
    Node* node = spare_;
    TIFFIN_ASSERT(node != nullptr);
    spare_ = node->clock_next;
    node->clock_next = nullptr;
    node->pins.store(1, std::memory_order_relaxed);
    return node;
}

void NodePool::drain() {
    while (unreserved_.take(1)) {
        Node* node = nullptr;
        {
            MutexLock lock(lock_);
            spare_count_.fetch_sub(1, std::memory_order_relaxed);
            node = spare_;
            spare_ = node->clock_next;
        }
        allocator_.cancel({node->block, 1});
        cache_.free_node(node);
    }
}

uint64_t NodePool::reserved_nodes() {
    // A thread that adds spare nodes changes both under the lock; one that takes some away for good counts them off
    // from the unreserved ones before.
    MutexLock lock(lock_);
    const int64_t reserved = static_cast<int64_t>(spare_blocks()) - unreserved_.sum();
    return reserved > 0 ? static_cast<uint64_t>(reserved) : 0;
}

uint64_t NodePool::overdrawn_nodes() {
    MutexLock lock(lock_);
    return overdrawn_;
}

}  // namespace tiffin::tiffinfs
