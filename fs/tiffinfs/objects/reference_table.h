// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How many references a host holds on each node: node id -> count, 16 bytes a slot.
//
// A kernel that has walked a large tree remembers millions of nodes, so the table is made for size: open
// addressing with linear probing, filled up to seven eighths, growing by a quarter. Right after it has
// grown an entry takes 23 bytes, and 18 right before.
#pragma once

#include <cstdint>

#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

// Threading: none of its own; the owner's lock guards it.
class ReferenceTable {
  public:
    ReferenceTable() = default;
    ~ReferenceTable() { clear(); }
    ReferenceTable(const ReferenceTable&) = delete;
    ReferenceTable& operator=(const ReferenceTable&) = delete;

    // One reference more. `node` is not 0. Errors: enomem; then nothing changed.
    Result<void> add(uint64_t node);
    // `count` references less, at most all there are (a host that drops more than it holds does no
    // harm). Returns true when the node had references and has none now. Never fails, allocates nothing:
    // the memory of nodes that are forgotten is given back by add(), and by the last of them.
    bool drop(uint64_t node, uint64_t count);
    uint64_t count(uint64_t node) const;
    // Forgets everything and frees the memory.
    void clear();

    // Nodes that have references, and slots in memory.
    uint32_t size() const { return size_; }
    uint32_t capacity() const { return capacity_; }
    // Writes those nodes, size() of them, to `nodes`.
    void copy_nodes(uint64_t* nodes) const;
    // Slots that a search for `node` looks at, for tests.
    uint32_t search_length(uint64_t node) const;

  private:
    struct Slot {
        uint64_t node;  // 0: free
        uint64_t count;
    };

    uint32_t home(uint64_t node) const;
    uint32_t after(uint32_t index) const { return index + 1 == capacity_ ? 0 : index + 1; }
    // The slot of `node`, or the free one where it would go. Precondition: a slot is free.
    uint32_t find(uint64_t node) const;
    bool resize(uint32_t capacity);
    void erase(uint32_t index);

    Slot* slots_ = nullptr;
    uint32_t capacity_ = 0;
    uint32_t size_ = 0;
};

}  // namespace tiffin::tiffinfs
