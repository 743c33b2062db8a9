// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The state locks of several objects, taken in the one order that cannot deadlock: by ascending id.
//
// Which objects an operation changes is often known only after a look into a directory, which needs a
// lock already. The pattern is: lock what is known, look, try_extend() by what was found; when that
// would break the order, release everything, add what was found to what is known, and begin again.
// What was found must be looked up again then.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/objects/object.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {

// How often an operation begins again before it gives up (ebusy). Each time another operation has
// changed the same names in between, so that this many in a row do not happen by chance.
inline constexpr uint32_t kMaximumLockAttempts = 1000;

// Exclusive owner of up to four state locks. The caller keeps the objects pinned until release().
// The analysis cannot follow a set, so lock(), try_extend() and release() are outside of it, and
// assert_held() tells it what the set holds.
class ObjectLockSet {
  public:
    static constexpr uint32_t kMaximumObjects = 4;

    ObjectLockSet() = default;
    ~ObjectLockSet() { release(); }
    ObjectLockSet(const ObjectLockSet&) = delete;
    ObjectLockSet& operator=(const ObjectLockSet&) = delete;

    // Puts an object into the set, once. Precondition: lock() has not been called.
    void add(Object& object) {
        TIFFIN_ASSERT(!locked_);
        insert(object);
    }

    // Locks all objects of the set.
    void lock() NO_THREAD_SAFETY_ANALYSIS {
        TIFFIN_ASSERT(!locked_);
        for (uint32_t i = 0; i < count_; ++i) {
            objects_[i]->state.lock(objects_[i]->node);
        }
        locked_ = true;
    }

    // Adds objects (nullptr: none) to a locked set and locks them. Returns false, and changes
    // nothing, when one that is not in the set would have to be locked before those that are.
    [[nodiscard]] bool try_extend(Object* first,
                                  Object* second = nullptr) NO_THREAD_SAFETY_ANALYSIS {
        TIFFIN_ASSERT(locked_);
        const uint64_t greatest = count_ == 0 ? 0 : objects_[count_ - 1]->node;
        Object* const candidates[] = {first, second};
        for (Object* object : candidates) {
            if (object != nullptr && !contains(object->node) && object->node < greatest) {
                return false;
            }
        }
        const uint32_t held = count_;
        for (Object* object : candidates) {
            if (object != nullptr) {
                insert(*object);
            }
        }
        for (uint32_t i = held; i < count_; ++i) {
            objects_[i]->state.lock(objects_[i]->node);
        }
        return true;
    }

    bool contains(uint64_t node) const {
        for (uint32_t i = 0; i < count_; ++i) {
            if (objects_[i]->node == node) {
                return true;
            }
        }
        return false;
    }

    // Unlocks and empties the set.
    void release() NO_THREAD_SAFETY_ANALYSIS {
        for (uint32_t i = count_; locked_ && i > 0; --i) {
            objects_[i - 1]->state.unlock();
        }
        count_ = 0;
        locked_ = false;
    }

    // Tells the analysis that `object` is locked until the end of the calling function.
    void assert_held(const Object& object) const
        TIFFIN_THREAD_ANNOTATION(assert_capability(object.state)) {
        TIFFIN_ASSERT(locked_ && contains(object.node));
    }

  private:
    // Keeps the objects sorted.
    void insert(Object& object) {
        if (contains(object.node)) {
            return;
        }
        TIFFIN_ASSERT(count_ < kMaximumObjects);
        uint32_t place = count_++;
        for (; place > 0 && objects_[place - 1]->node > object.node; --place) {
            objects_[place] = objects_[place - 1];
        }
        objects_[place] = &object;
    }

    Object* objects_[kMaximumObjects] = {};
    uint32_t count_ = 0;
    bool locked_ = false;
};

}  // namespace tiffin::tiffinfs
