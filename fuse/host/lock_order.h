// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The lock-order checker of the user-space host: knows which locks each thread holds and says which
// one it may take next, by the rule of host::LockClass.
//
// Mutex, SharedMutex and Condition use it in builds without optimisation, with the address or thread
// sanitizer, and wherever TIFFIN_CHECK_LOCK_ORDER is defined; elsewhere they do not even call it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/host.h"

namespace tiffin::fuse {

// The locks that one thread holds. Not thread-safe: each thread has its own.
class HeldLocks {
  public:
    // More locks than any correct operation holds at once.
    static constexpr size_t kMaxLocks = 128;

    struct Lock {
        const void* address = nullptr;
        host::LockClass lock_class = host::LockClass::leaf;
        uint64_t level = 0;
    };

    // Whether the thread may wait for `lock`: its class is greater than that of every lock it holds,
    // or the class is the same and the level greater; nothing while a leaf lock is held. When not,
    // one sentence that names both classes is written to `reason`.
    bool may_wait_for(const Lock& lock, char* reason, size_t reason_bytes) const;

    // Notes that a lock was taken. Returns false when it is held already (locks are not recursive)
    // or the thread holds kMaxLocks locks.
    [[nodiscard]] bool add(const Lock& lock);
    // Notes that a lock was released, in any order. Returns false when it was not held.
    [[nodiscard]] bool remove(const void* address, Lock* removed = nullptr);

    size_t count() const { return count_; }

  private:
    const Lock* find(const void* address) const;

    Lock locks_[kMaxLocks];
    size_t count_ = 0;
};

// The name of a class as in host::LockClass.
const char* lock_class_name(host::LockClass lock_class);

// Whether the locks of this build check their order.
bool lock_order_is_checked();

}  // namespace tiffin::fuse
