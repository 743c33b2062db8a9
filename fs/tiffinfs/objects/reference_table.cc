// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/objects/reference_table.h"

#include "fs/base/allocate.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint32_t kMinimumCapacity = 16;
constexpr uint32_t kMaximumCapacity = 1U << 31;

}  // namespace

// A hash (the finalizer of MurmurHash3), mapped to [0, capacity) without a division. The owner may have
// split the nodes among tables by a simpler hash, so a single multiplication is not enough: all nodes
// of a table could then have their homes in one corner of it.
uint32_t ReferenceTable::home(uint64_t node) const {
    uint64_t mixed = (node ^ (node >> 33)) * 0xff51afd7ed558ccdU;
    mixed = (mixed ^ (mixed >> 33)) * 0xc4ceb9fe1a85ec53U;
    mixed ^= mixed >> 33;
    return static_cast<uint32_t>(((mixed >> 32) * capacity_) >> 32);
}

uint32_t ReferenceTable::search_length(uint64_t node) const {
    if (capacity_ == 0) {
        return 0;
    }
    const uint32_t begin = home(node);
    const uint32_t end = find(node);
    return (end >= begin ? end - begin : end + capacity_ - begin) + 1;
}

uint32_t ReferenceTable::find(uint64_t node) const {
    uint32_t index = home(node);
    while (slots_[index].node != node && slots_[index].node != 0) {
        index = after(index);
    }
    return index;
}

void ReferenceTable::copy_nodes(uint64_t* nodes) const {
    for (uint32_t i = 0; i < capacity_; ++i) {
        if (slots_[i].node != 0) {
            *nodes++ = slots_[i].node;
        }
    }
}

bool ReferenceTable::resize(uint32_t capacity) {
    Slot* const fresh = allocate_array<Slot>(capacity);
    if (fresh == nullptr) {
        return false;
    }
    Slot* const old = slots_;
    const uint32_t old_capacity = capacity_;
    slots_ = fresh;
    capacity_ = capacity;
    for (uint32_t i = 0; i < old_capacity; ++i) {
        if (old[i].node != 0) {
            slots_[find(old[i].node)] = old[i];
        }
    }
    release_array(old, old_capacity);
    return true;
}

Result<void> ReferenceTable::add(uint64_t node) {
    TIFFIN_ASSERT(node != 0);
    if (capacity_ != 0) {
        Slot& slot = slots_[find(node)];
        if (slot.node == node) {
            ++slot.count;
            return {};
        }
    }
    if (uint64_t{size_ + 1} * 8 > uint64_t{capacity_} * 7) {
        const uint64_t wanted = uint64_t{capacity_} + capacity_ / 4 + 1;
        if (wanted > kMaximumCapacity ||
            !resize(wanted < kMinimumCapacity ? kMinimumCapacity : static_cast<uint32_t>(wanted))) {
            return Error::enomem;
        }
    }
    // Here and not in drop(), which a kernel calls because memory is short. Growing again needs as many
    // additions as there are nodes, so that the table does not swing.
    if (capacity_ > kMinimumCapacity && size_ < capacity_ / 4) {
        const uint32_t smaller = capacity_ / 2;
        // Without memory for the smaller table the larger one serves on.
        (void)resize(smaller < kMinimumCapacity ? kMinimumCapacity : smaller);
    }
    slots_[find(node)] = Slot{node, 1};
    ++size_;
    return {};
}

bool ReferenceTable::drop(uint64_t node, uint64_t count) {
    // No object has the number 0, and a free slot has.
    if (size_ == 0 || count == 0 || node == 0) {
        return false;
    }
    const uint32_t index = find(node);
    Slot& slot = slots_[index];
    if (slot.node != node) {
        return false;
    }
    if (slot.count > count) {
        slot.count -= count;
        return false;
    }
    erase(index);
    if (size_ == 0 && capacity_ > kMinimumCapacity) {
        clear();
    }
    return true;
}

uint64_t ReferenceTable::count(uint64_t node) const {
    if (size_ == 0) {
        return 0;
    }
    const Slot& slot = slots_[find(node)];
    return slot.node == node ? slot.count : 0;
}

void ReferenceTable::clear() {
    release_array(slots_, capacity_);
    slots_ = nullptr;
    capacity_ = 0;
    size_ = 0;
}

// Closes the gap: whatever is probed past the free slot moves into it, so that no search ends early.
void ReferenceTable::erase(uint32_t index) {
    uint32_t gap = index;
    for (uint32_t next = after(gap); slots_[next].node != 0; next = after(next)) {
        const uint32_t wanted = home(slots_[next].node);
        const uint32_t from_home = next >= wanted ? next - wanted : next + capacity_ - wanted;
        const uint32_t from_gap = next >= gap ? next - gap : next + capacity_ - gap;
        if (from_home >= from_gap) {
            slots_[gap] = slots_[next];
            gap = next;
        }
    }
    slots_[gap] = Slot{};
    --size_;
}

}  // namespace tiffin::tiffinfs
