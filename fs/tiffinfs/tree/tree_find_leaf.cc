// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The way to a leaf without locks.
//
// What makes it right: a thread that changes which leaf covers a key changes the page of the leaf's parent, or takes
// the parent out of the tree, and has the leaf locked meanwhile. So a leaf that is locked here, has not been
// dropped, and whose parent then still has the version with which it was read, is the leaf of the key. Nodes on
// the way are only looked at: the epoch keeps their memory from being used for anything else.
//
// The analysis of locks cannot follow the leaf's lock out of the function; see tree.cc.
#include "fs/base/processor_pause.h"
#include "fs/base/race_point.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// So often a way is tried that others have changed meanwhile, with pauses that double in between: a change takes
// less than a microsecond, the way with locks longer, and it holds up others.
constexpr uint32_t kAttempts = 8;

// The stay of one descent among the readers of the cache.
class Epoch {
  public:
    explicit Epoch(ReaderEpochs& readers) : readers_(readers), token_(readers.enter()) {}
    ~Epoch() { readers_.leave(token_); }
    Epoch(const Epoch&) = delete;
    Epoch& operator=(const Epoch&) = delete;

  private:
    ReaderEpochs& readers_;
    uint32_t token_;
};

}  // namespace

// Something whose version must be the same at the end of a look as at its beginning.
class Tree::Look {
  public:
    explicit Look(const std::atomic<uint32_t>& version)
        : version_(&version), seen_(version.load(std::memory_order_acquire)) {}
    // False: it is being changed.
    bool possible() const { return (seen_ & Node::kUnreadable) == 0; }
    // All that was read since the beginning was read by acquiring loads.
    bool holds() const { return possible() && version_->load(std::memory_order_acquire) == seen_; }

  private:
    const std::atomic<uint32_t>* version_;
    uint32_t seen_;
};

namespace {

// Calls attempt() until it returns something else than `again`, at most kAttempts times.
template <typename Attempt, typename Function>
Attempt try_some_times(Attempt again, Function attempt) {
    Attempt result = again;
    for (uint32_t number = 0; number < kAttempts; ++number) {
        result = attempt();
        if (result != again) {
            break;
        }
        for (uint32_t pauses = 1U << number; pauses > 0; --pauses) {
            pause_processor();
        }
    }
    return result;
}

}  // namespace

Node* Tree::find_leaf(Key key, LeafUse use, Bounds& bounds) {
    Node* leaf = nullptr;
    const Attempt result = try_some_times(Attempt::again, [&] {
        const Epoch epoch(cache_.readers());
        return try_find_leaf(key, use, bounds, leaf);
    });
    return result == Attempt::found ? leaf : nullptr;
}

bool Tree::find_leaf_to_read(Key key, Bounds& bounds, ReadLeaf& leaf) {
    const Attempt result = try_some_times(Attempt::again, [&] {
        leaf.epoch = cache_.readers().enter();
        const Attempt attempt = try_find_leaf_to_read(key, bounds, leaf);
        if (attempt != Attempt::found) {
            cache_.readers().leave(leaf.epoch);
        }
        return attempt;
    });
    return result == Attempt::found;
}

// Reads which child of an inner node `key` belongs to, and what that one covers. False when the keys of the
// node are not those that its parent sends there.
bool Tree::look_up_child(const Node* node, Key key, Bounds& bounds, InnerEntry& child) {
    if (!keys_are_within(node->page, node->level, bounds.lower, bounds.upper)) {
        return false;
    }
    const uint32_t count = inner_count(node->page);
    const uint32_t index = inner_find(node->page, key);
    child = inner_entry(node->page, index);
    if (index + 1 < count) {
        bounds.upper = inner_entry(node->page, index + 1).key;
    }
    if (index > 0) {
        bounds.lower = child.key;
    }
    if (count > 1) {
        bounds.falls_to_right = index == 0;
    }
    return true;
}

// The way down. The leaf is neither locked nor pinned: judge_leaf() has to say afterwards whether it is the right one.
Tree::Attempt Tree::walk_to_leaf(Key key, LeafUse use, Bounds& bounds, Node*& leaf, Look& above) {
    InnerEntry next{kMinimumKey, shown_root_.block.load(std::memory_order_acquire),
                    shown_root_.generation.load(std::memory_order_acquire)};
    uint8_t level = shown_root_.level.load(std::memory_order_acquire);
    bounds = {kMinimumKey, kMaximumKey, false};
    for (uint32_t visited = 1;; ++visited) {
        race_point();
        Node* const node = cache_.peek(next.child_block);
        if (node == nullptr || node->generation != next.child_generation || node->level != level) {
            // It is not in memory, or the tree is damaged; or what was read is not so any more.
            return above.holds() ? Attempt::give_up : Attempt::again;
        }
        NodeCache::note_use(node);
        race_point();
        if (level == 0) {
            cache_.count_hits(visited);
            leaf = node;
            return Attempt::found;
        }
        const Look here(node->version);
        if (!here.possible() || !above.holds()) {
            return Attempt::again;
        }
        if (use == LeafUse::prepare && node->generation != generation_) {
            return Attempt::give_up;
        }
        race_point();
        if (!look_up_child(node, key, bounds, next)) {
            return here.holds() ? Attempt::give_up : Attempt::again;
        }
        level--;
        above = here;
    }
}

// Whether a leaf that the way led to, and that is locked now, is the one that covers the key.
Tree::Attempt Tree::judge_leaf(const Node* leaf, const Bounds& bounds, const Look& above) {
    if ((leaf->pins.load(std::memory_order_relaxed) & Node::kDropped) != 0 || !above.holds()) {
        return Attempt::again;
    }
    const bool is_whole =
        !leaf->failed && keys_are_within(leaf->page, 0, bounds.lower, bounds.upper);
    return is_whole ? Attempt::found : Attempt::give_up;
}

Tree::Attempt Tree::try_find_leaf(Key key, LeafUse use, Bounds& bounds,
                                  Node*& leaf) NO_THREAD_SAFETY_ANALYSIS {
    Look above(shown_root_.version);
    const Attempt walked = walk_to_leaf(key, use, bounds, leaf, above);
    if (walked != Attempt::found) {
        return walked;
    }
    if (!NodeCache::try_pin(leaf)) {
        return Attempt::again;
    }
    race_point();
    lock_leaf(leaf, use);
    race_point();
    const Attempt judged = judge_leaf(leaf, bounds, above);
    if (judged != Attempt::found) {
        unlock_leaf(leaf, use);
        cache_.unpin(leaf);
    }
    return judged;
}

// Without a pin: the epoch keeps the memory. Should the leaf be evicted from now on, then what is read of it is still
// what stands on the device, and a thread that changes that has its keys' object locked.
Tree::Attempt Tree::try_find_leaf_to_read(Key key, Bounds& bounds,
                                          ReadLeaf& leaf) NO_THREAD_SAFETY_ANALYSIS {
    Look above(shown_root_.version);
    const Attempt walked = walk_to_leaf(key, LeafUse::read, bounds, leaf.node, above);
    if (walked != Attempt::found) {
        return walked;
    }
    leaf.sharing = leaf.node->lock.lock_shared(leaf.node->lock_level());
    race_point();
    const Attempt judged = judge_leaf(leaf.node, bounds, above);
    if (judged != Attempt::found) {
        leaf.node->lock.unlock_shared(leaf.sharing);
    }
    return judged;
}

void Tree::lock_leaf(Node* leaf, LeafUse use) NO_THREAD_SAFETY_ANALYSIS {
    if (use == LeafUse::change) {
        leaf->lock.lock(leaf->lock_level());
    } else {
        leaf->lock.lock_shared_unbiased(leaf->lock_level());
    }
}

void Tree::unlock_leaf(Node* leaf, LeafUse use) NO_THREAD_SAFETY_ANALYSIS {
    if (use == LeafUse::change) {
        leaf->lock.unlock();
    } else {
        leaf->lock.unlock_shared();
    }
}

}  // namespace tiffin::tiffinfs
