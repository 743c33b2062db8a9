// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A tree node in memory: one 4096-byte page in the on-disk layout (format.h), its lock and its place in
// the cache. The functions here search and change pages; they know nothing of other nodes.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/biased_shared_mutex.h"
#include "fs/tiffinfs/format.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "fs/vfs/span.h"

namespace tiffin::tiffinfs {

// Threading: `page` is guarded by `lock`, except that a node of a sealed generation never changes
// again and may be read without it, and that inner nodes are also read without any lock, see `version`.
// `block`, `generation`, `level` and `page` stay as they are while the node is in the cache. The links
// belong to the cache and its locks.
struct alignas(64) Node {
    // A thread that locks a leaf to change it pins it as well: so both are in one cache line.
    [[no_unique_address]] BiasedSharedMutex lock{host::LockClass::tree_node};
    // How many use the node now; kDropped is added when it has left the cache, so that the last thread that
    // unpins it learns in one atomic step that it must free it, and that no thread pins it any more.
    std::atomic<uint32_t> pins{0};
    static constexpr uint32_t kDropped = 1U << 31;

    // What every descent reads and what changes seldom, in a cache line apart from what else changes.
    uint64_t block = 0;
    uint64_t generation = 0;
    unsigned char* page = nullptr;
    std::atomic<Node*> hash_next{nullptr};
    // Inner nodes: even as long as the page can be read, odd while it is being changed or filled, and from
    // the moment on in which the node leaves the tree or the cache. A reader of the page that finds the same
    // even number before and after has read what was there then (Tree::find_leaf). Changed by the
    // exclusive owner of `lock`, and by the cache when no thread can own it. Leaves: another even number when the
    // leaf has given keys away.
    std::atomic<uint32_t> version{kUnreadable};
    static constexpr uint32_t kUnreadable = 1;
    uint8_t level = 0;
    std::atomic<bool> referenced{false};  // second chance against eviction
    Node* dirty_next = nullptr;

    bool obsolete = false;  // dropped in the generation that made it: not written
    bool failed = false;    // could not be read, with load_error; guarded by lock
    Error load_error = Error::eio;
    Node* clock_next = nullptr;  // out of the cache: links those that wait to be used again
    Node* clock_previous = nullptr;

    // Nearer to the root is locked first.
    uint64_t lock_level() const { return kMaximumLevel + 1U - level; }

    NodeHeader& header() { return *reinterpret_cast<NodeHeader*>(page); }
    const NodeHeader& header() const { return *reinterpret_cast<const NodeHeader*>(page); }
};

// For the time of a change to the page of an inner node, which the caller has locked exclusively: threads
// that read it without a lock begin again.
class InnerChange {
  public:
    explicit InnerChange(Node* node)
        : node_(node), version_(node->version.load(std::memory_order_relaxed)) {
        TIFFIN_ASSERT((version_ & Node::kUnreadable) == 0);
        node_->version.store(version_ + 1, std::memory_order_relaxed);
    }
    ~InnerChange() { node_->version.store(version_ + 2, std::memory_order_release); }
    InnerChange(const InnerChange&) = delete;
    InnerChange& operator=(const InnerChange&) = delete;

  private:
    Node* node_;
    uint32_t version_;
};

// ---- Both kinds of node -----------------------------------------------------------------------
void format_page(unsigned char* page, uint64_t volume_nonce, uint64_t block, uint64_t generation,
                 uint8_t level);
// Stamps the checksum before writing.
void seal_page(unsigned char* page);
// True when a page read from the device is a well-formed node of this volume, at this place: nothing
// in it can lead a search out of the page. `reason` says what is wrong otherwise.
bool check_page(const unsigned char* page, uint64_t volume_nonce, uint64_t block,
                uint64_t generation, uint8_t level, uint64_t total_blocks, const char*& reason);

// Whether the keys of a node are those that its parent sends there. With others (in a damaged tree)
// looking for a key and walking over it would come to different places. An inner node's first key
// counts for nothing: its first child covers all below the second.
bool keys_are_within(const unsigned char* page, uint8_t level, Key lower, Key upper);

// ---- Leaves -------------------------------------------------------------------------------------
// The index of the first slot whose key is >= `key` (count when there is none).
uint32_t leaf_lower_bound(const unsigned char* page, Key key);
Key leaf_key(const unsigned char* page, uint32_t index);
ByteSpan leaf_value(const unsigned char* page, uint32_t index);
// Bytes that an insertion may still use (slot and value). The heap of values is always compact.
uint32_t leaf_free_bytes(const unsigned char* page);
// What slots and values take.
inline uint32_t leaf_used_bytes(const unsigned char* page) {
    return kNodeSpaceBytes - leaf_free_bytes(page);
}
// Puts `key` := `value` at `index`, where leaf_lower_bound found its place; replaces an equal key.
// Precondition: room (leaf_free_bytes, counting what a replaced value gives back).
void leaf_put(unsigned char* page, uint32_t index, Key key, ByteSpan value);
void leaf_erase(unsigned char* page, uint32_t index);
// Moves the upper part of `page` to the empty leaf `right`, such that a value of `incoming_bytes` for
// the new key `incoming` fits on the side where it belongs; returns the first key of the right side.
// Appending at the end leaves `page` full and `right` empty: keys that only grow pack densely.
Key leaf_split(unsigned char* page, unsigned char* right, Key incoming, uint32_t incoming_bytes);
// Appends all of `right` to `page`. Precondition: it fits, and its keys are greater.
void leaf_merge(unsigned char* page, const unsigned char* right);

// ---- Inner nodes ---------------------------------------------------------------------------------
// Their words are read without a lock while others change them, so each is loaded and stored as a whole:
// an acquiring load that sees a changed word also lets its reader see the odd version before the change.
// What such a reader gets may be a mixture, but never leads out of the page.
inline InnerEntry* inner_entries(unsigned char* page) {
    return reinterpret_cast<InnerEntry*>(page + sizeof(NodeHeader));
}
inline const InnerEntry* inner_entries(const unsigned char* page) {
    return reinterpret_cast<const InnerEntry*>(page + sizeof(NodeHeader));
}
uint32_t inner_count(const unsigned char* page);
InnerEntry inner_entry(const unsigned char* page, uint32_t index);
// The index of the child whose range holds `key`: keys below the first entry belong to it.
uint32_t inner_find(const unsigned char* page, Key key);
void inner_set_child(unsigned char* page, uint32_t index, uint64_t block, uint64_t generation);
void inner_insert(unsigned char* page, uint32_t index, const InnerEntry& entry);
// Removes entry `index`; when it is the first, the next entry takes over its key.
void inner_erase(unsigned char* page, uint32_t index);
// Moves the entries from `first` on to the empty inner node `right`, which no thread reads yet; returns its
// first key.
Key inner_split(unsigned char* page, unsigned char* right, uint32_t first);

}  // namespace tiffin::tiffinfs
