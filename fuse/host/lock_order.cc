// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/lock_order.h"

#include <cstdio>

namespace tiffin::fuse {

const char* lock_class_name(host::LockClass lock_class) {
    // In the order of host::LockClass.
    static constexpr const char* kNames[] = {
        "session",        "rename",      "entry_name",      "object_state", "object_table",
        "maintenance",    "transaction", "directory_count", "tree_root",    "tree_node",
        "node_cache",     "node_pool",   "allocator_group", "allocator",    "journal_commit",
        "journal_buffer", "leaf",
    };
    constexpr size_t kCount = sizeof kNames / sizeof kNames[0];
    static_assert(kCount == static_cast<size_t>(host::LockClass::leaf) + 1);
    const auto index = static_cast<size_t>(lock_class);
    return index < kCount ? kNames[index] : "unknown";
}

bool HeldLocks::may_wait_for(const Lock& lock, char* reason, size_t reason_bytes) const {
    // Locks taken with try_lock may stand anywhere in the order, so all of them are looked at.
    for (size_t i = 0; i < count_; ++i) {
        const Lock& held = locks_[i];
        if (held.address == lock.address) {
            snprintf(reason, reason_bytes, "takes a lock of class %s that it holds already",
                     lock_class_name(lock.lock_class));
            return false;
        }
        const bool greater = held.lock_class != host::LockClass::leaf &&
                             (lock.lock_class > held.lock_class ||
                              (lock.lock_class == held.lock_class && lock.level > held.level));
        if (!greater) {
            snprintf(reason, reason_bytes,
                     "takes a lock of class %s (level %llu) while it holds one of class %s "
                     "(level %llu)",
                     lock_class_name(lock.lock_class), static_cast<unsigned long long>(lock.level),
                     lock_class_name(held.lock_class), static_cast<unsigned long long>(held.level));
            return false;
        }
    }
    return true;
}

bool HeldLocks::add(const Lock& lock) {
    if (count_ == kMaxLocks || find(lock.address) != nullptr) {
        return false;
    }
    locks_[count_++] = lock;
    return true;
}

bool HeldLocks::remove(const void* address, Lock* removed) {
    const Lock* lock = find(address);
    if (lock == nullptr) {
        return false;
    }
    if (removed != nullptr) {
        *removed = *lock;
    }
    for (size_t i = static_cast<size_t>(lock - locks_); i + 1 < count_; ++i) {
        locks_[i] = locks_[i + 1];
    }
    --count_;
    return true;
}

const HeldLocks::Lock* HeldLocks::find(const void* address) const {
    for (size_t i = count_; i-- > 0;) {
        if (locks_[i].address == address) {
            return &locks_[i];
        }
    }
    return nullptr;
}

}  // namespace tiffin::fuse
