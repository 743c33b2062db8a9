// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Objects that are lent to one thread at a time and kept to be used again: workspaces, buffers. Threads on
// different processors begin at different slots, each in a cache line of its own, so that in the steady state
// a thread gets back what it has given, and no line travels.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/race_point.h"
#include "fs/vfs/host.h"

namespace tiffin {

// Any thread; no locks. Keeps at most kSlots objects, which belong to the pool until they are taken.
template <typename T>
class SlotPool {
  public:
    static constexpr uint32_t kSlots = 32;

    SlotPool() = default;
    SlotPool(const SlotPool&) = delete;
    SlotPool& operator=(const SlotPool&) = delete;

    // One that was given back, which belongs to the caller then; nullptr when none is found.
    [[nodiscard]] T* take() {
        const uint32_t first = host::concurrency_hint();
        for (uint32_t i = 0; i < kSlots; ++i) {
            std::atomic<T*>& slot = slots_[(first + i) % kSlots].object;
            // A slot is emptied as a whole, so no object is taken or returned twice.
            if (slot.load(std::memory_order_relaxed) == nullptr) {
                continue;
            }
            race_point();
            if (T* object = slot.exchange(nullptr, std::memory_order_acquire); object != nullptr) {
                return object;
            }
        }
        return nullptr;
    }

    // False, and the object is still the caller's, when all slots are taken.
    [[nodiscard]] bool give_back(T* object) {
        const uint32_t first = host::concurrency_hint();
        for (uint32_t i = 0; i < kSlots; ++i) {
            std::atomic<T*>& slot = slots_[(first + i) % kSlots].object;
            T* empty = nullptr;
            if (slot.load(std::memory_order_relaxed) == nullptr &&
                slot.compare_exchange_strong(empty, object, std::memory_order_release,
                                             std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }

  private:
    // Padded instead of aligned: an over-aligned class cannot be a member of every other one.
    struct Slot {
        std::atomic<T*> object{nullptr};
        unsigned char padding[64 - sizeof(std::atomic<T*>)];
    };
    Slot slots_[kSlots];
};

}  // namespace tiffin
