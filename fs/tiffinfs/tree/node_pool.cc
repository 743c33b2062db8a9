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
        spare_ = node->clock_next;
        cache_.free_node(node);
    }
}

// Replaces the counts by change(counts) in one step, and returns what they are then.
template <typename Change>
NodePool::Counts NodePool::change_counts(Change change) {
    Counts before = counts();
    Counts after = change(before);
    while (!counts_.compare_exchange_weak(before, after, std::memory_order_relaxed)) {
        after = change(before);
    }
    return after;
}

Result<void> NodePool::reserve(uint32_t count, SpacePriority priority,
                               NodeReservation& reservation) {
    // Bounded: others may take what we refill, but each round adds what we need.
    for (uint32_t attempt = 0; attempt < 16; ++attempt) {
        Counts before = counts();
        do {
            // Spare nodes that others took from the reserve still count as part of it.
            const uint64_t left = allocator_.free_blocks() + before.spare - before.reserved;
            if (left < count + allocator_.kept_blocks(priority)) {
                return Error::enospc;
            }
            if (before.spare < before.reserved + count) {
                break;
            }
        } while (!counts_.compare_exchange_weak(before, {before.spare, before.reserved + count},
                                                std::memory_order_relaxed));
        if (before.spare >= before.reserved + count) {
            reservation.nodes += count;
            return {};
        }
        const uint32_t missing = before.reserved + count - before.spare;
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
        change_counts([&](Counts now) { return Counts{now.spare + made, now.reserved}; });
    }
    if (made < count) {
        return error;
    }
    return {};
}

void NodePool::unreserve(NodeReservation& reservation) {
    if (reservation.nodes > 0) {
        change_counts([&](Counts now) {
            TIFFIN_ASSERT(now.reserved >= reservation.nodes);
            return Counts{now.spare, now.reserved - reservation.nodes};
        });
    }
    reservation = {};
}

Node* NodePool::take(NodeReservation& reservation) {
    MutexLock lock(lock_);
    // More than was thought to be needed at most: a mistake that the margin may cover.
    const bool overdrawn = reservation.nodes == 0;
    change_counts([&](Counts now) {
        TIFFIN_ASSERT(now.spare > 0 && (!overdrawn || now.spare > now.reserved));
        return Counts{now.spare - 1, now.reserved - (overdrawn ? 0 : 1)};
    });
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
    while (true) {
        Node* node = nullptr;
        {
            MutexLock lock(lock_);
            bool taken = false;
            change_counts([&](Counts now) {
                taken = now.spare > now.reserved;
                return Counts{now.spare - (taken ? 1 : 0), now.reserved};
            });
            if (!taken) {
                return;
            }
            node = spare_;
            spare_ = node->clock_next;
        }
        allocator_.cancel({node->block, 1});
        cache_.free_node(node);
    }
}

uint64_t NodePool::overdrawn_nodes() {
    MutexLock lock(lock_);
    return overdrawn_;
}

}  // namespace tiffin::tiffinfs
