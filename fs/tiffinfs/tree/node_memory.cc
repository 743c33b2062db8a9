// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The memory of nodes: where a new one comes from, and when that of a node that has left the cache is used again.
#include "fs/base/allocate.h"
#include "fs/tiffinfs/tree/node_cache.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// So many leave the cache before their readers are waited for, and so many are kept for use.
constexpr uint32_t kRetiredAtOnce = 32;
constexpr uint32_t kKeptForUse = 64;

}  // namespace

void NodeCache::retire(Node* node) {
    MutexLock lock(retired_lock_);
    node->clock_next = retired_;
    retired_ = node;
    retired_count_++;
    if (retired_count_ >= kRetiredAtOnce) {
        poll_readers();
    }
}

Node* NodeCache::take_retired() {
    MutexLock lock(retired_lock_);
    if (reusable_ == nullptr && (retired_ != nullptr || waiting_ != nullptr)) {
        poll_readers();
    }
    Node* node = reusable_;
    if (node != nullptr) {
        reusable_ = node->clock_next;
        reusable_count_--;
        node->clock_next = nullptr;
    }
    return node;
}

// Moves nodes on by a stage if their readers have left; never waits.
void NodeCache::poll_readers() {
    for (uint32_t stage = 0; stage < 2; ++stage) {
        if (waiting_ != nullptr) {
            if (!readers_.poll_grace_period(grace_period_)) {
                return;
            }
            while (waiting_ != nullptr) {
                Node* node = waiting_;
                waiting_ = node->clock_next;
                if (reusable_count_ >= kKeptForUse) {
                    free_node(node);
                    continue;
                }
                node->clock_next = reusable_;
                reusable_ = node;
                reusable_count_++;
            }
        }
        if (retired_ == nullptr) {
            return;
        }
        waiting_ = retired_;
        retired_ = nullptr;
        retired_count_ = 0;
        grace_period_ = readers_.begin_grace_period();
    }
}

void NodeCache::free_reusable() {
    Node* list = nullptr;
    {
        MutexLock lock(retired_lock_);
        poll_readers();
        poll_readers();
        list = reusable_;
        reusable_ = nullptr;
        reusable_count_ = 0;
    }
    free_list(list);
}

Result<Node*> NodeCache::allocate_node() {
    Node* node = take_retired();
    if (node == nullptr && nodes_.load(std::memory_order_relaxed) >= budget_nodes_) {
        evict_some();
        node = take_retired();
    }
    if (node != nullptr) {
        node->version.store(Node::kUnreadable, std::memory_order_relaxed);
        node->pins.store(0, std::memory_order_relaxed);
        node->failed = false;
        node->obsolete = false;
        node->dirty_next = nullptr;
        return node;
    }
    node = make_object<Node>();
    void* page = node != nullptr ? host::allocate_pages(kBlockBytes) : nullptr;
    if (page == nullptr) {
        destroy_object(node);
        return Error::enomem;
    }
    nodes_.fetch_add(1, std::memory_order_relaxed);
    node->page = static_cast<unsigned char*>(page);
    return node;
}

void NodeCache::free_node(Node* node) {
    host::release_pages(node->page, kBlockBytes);
    destroy_object(node);
    nodes_.fetch_sub(1, std::memory_order_relaxed);
}

void NodeCache::free_list(Node* list) {
    while (list != nullptr) {
        Node* node = list;
        list = node->clock_next;
        free_node(node);
    }
}

}  // namespace tiffin::tiffinfs
