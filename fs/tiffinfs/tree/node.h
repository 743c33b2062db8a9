// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A tree node in memory: one 4096-byte page in the on-disk layout (format.h), its lock and its place in
// the cache. The functions here search and change pages; they know nothing of other nodes.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "fs/vfs/span.h"

namespace tiffin::tiffinfs {

// Threading: `page` is guarded by `lock`, except that a node of a sealed generation never changes
// again and may be read without it. The links belong to the cache and its locks.
struct Node {
    host::SharedMutex lock{host::LockClass::tree_node};
    uint64_t block = 0;
    uint64_t generation = 0;
    unsigned char* page = nullptr;
    uint8_t level = 0;

    // How many use the node now; kDropped is added when it has left the cache, so that the last one
    // who unpins it knows, in one atomic step, that it is his to free.
    std::atomic<uint32_t> pins{0};
    static constexpr uint32_t kDropped = 1U << 31;
    std::atomic<bool> referenced{false};  // second chance against eviction
    bool obsolete = false;                // dropped in the generation that made it: not written
    bool failed = false;                  // could not be read, with load_error; guarded by lock
    Error load_error = Error::eio;
    Node* hash_next = nullptr;
    Node* dirty_next = nullptr;
    Node* clock_next = nullptr;
    Node* clock_previous = nullptr;

    // Nearer to the root is locked first.
    uint64_t lock_level() const { return kMaximumLevel + 1U - level; }

    NodeHeader& header() { return *reinterpret_cast<NodeHeader*>(page); }
    const NodeHeader& header() const { return *reinterpret_cast<const NodeHeader*>(page); }
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
inline InnerEntry* inner_entries(unsigned char* page) {
    return reinterpret_cast<InnerEntry*>(page + sizeof(NodeHeader));
}
inline const InnerEntry* inner_entries(const unsigned char* page) {
    return reinterpret_cast<const InnerEntry*>(page + sizeof(NodeHeader));
}
// The index of the child whose range holds `key`: keys below the first entry belong to it.
uint32_t inner_find(const unsigned char* page, Key key);
void inner_insert(unsigned char* page, uint32_t index, const InnerEntry& entry);
// Removes entry `index`; when it is the first, the next entry takes over its key.
void inner_erase(unsigned char* page, uint32_t index);
// Moves the entries from `first` on to the empty inner node `right`; returns its first key.
Key inner_split(unsigned char* page, unsigned char* right, uint32_t first);

}  // namespace tiffin::tiffinfs
