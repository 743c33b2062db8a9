// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A fixed number of objects, handed out and given back without allocation.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <new>

#include "fs/vfs/host.h"
#include "fs/vfs/result.h"

namespace tiffin::rdma_blk {

// T has a member `T* next_free`. give_back() takes no lock: completions call it. take() has one, so that
// only one thread at a time removes objects, without which a list like this one would break.
template <typename T>
class FreeList {
  public:
    FreeList() : mutex_(host::LockClass::leaf) {}
    FreeList(const FreeList&) = delete;
    FreeList& operator=(const FreeList&) = delete;

    // Called once, before all else. Errors: enomem.
    Result<void> create(size_t count) {
        objects_.reset(new (std::nothrow) T[count]());
        if (objects_ == nullptr) {
            return Error::enomem;
        }
        count_ = count;
        for (size_t i = 0; i < count; ++i) {
            give_back(objects_[i]);
        }
        return {};
    }

    // All objects, also those in use.
    template <typename Function>
    void for_each(Function function) {
        for (size_t i = 0; i < count_; ++i) {
            function(objects_[i]);
        }
    }

    // nullptr when all are in use.
    T* take() {
        MutexLock lock(mutex_);
        if (taken_ == nullptr) {
            taken_ = returned_.exchange(nullptr);
        }
        T* object = taken_;
        if (object != nullptr) {
            taken_ = object->next_free;
        }
        return object;
    }

    // The object must not be touched afterwards.
    void give_back(T& object) {
        T* first = returned_.load();
        do {
            object.next_free = first;
        } while (!returned_.compare_exchange_weak(first, &object));
    }

  private:
    std::unique_ptr<T[]> objects_;
    size_t count_ = 0;
    std::atomic<T*> returned_{nullptr};
    host::Mutex mutex_;
    T* taken_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace tiffin::rdma_blk
