// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A lock with one exclusive or many shared owners whose shared owners write to no cache line that others write to:
// BRAVO (Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019). While the lock is biased
// towards sharing, a shared owner says so in a slot of its processor, in a table that all locks have in common, and
// leaves the lock itself alone. An exclusive owner takes the bias away first and then waits for the owners in the
// slots.
//
// The paper chooses slots by thread and searches all of them; here each lock has one slot for each of several
// processors, so that taking the bias away is a look at sixteen lines. When that slot is taken, or the lock is not
// biased, sharing is an operation on the host's lock. One in 32 of these makes its lock biased again: so what
// exclusive owners lose by taking it away is a fraction of what shared ones have paid in between.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/base/race_point.h"
#include "fs/vfs/host.h"

namespace tiffin {

// As host::SharedMutex: it may sleep, is not recursive, and levels order several locks of one class. It may be destroyed
// when no thread is inside one of its functions.
class CAPABILITY("shared mutex") BiasedSharedMutex {
    using Slot = std::atomic<const BiasedSharedMutex*>;

  public:
    // How the shared owner has become one, which unlock_shared() has to know; may be handed on with the ownership.
    class Sharing {
      public:
        Sharing() = default;

      private:
        friend class BiasedSharedMutex;
        explicit Sharing(Slot* slot) : slot_(slot) {}
        Slot* slot_ = nullptr;  // nullptr: by the host's lock
    };

    explicit BiasedSharedMutex(host::LockClass lock_class) : mutex_(lock_class) {}
    BiasedSharedMutex(const BiasedSharedMutex&) = delete;
    BiasedSharedMutex& operator=(const BiasedSharedMutex&) = delete;

    void lock(uint64_t level = 0) ACQUIRE() NO_THREAD_SAFETY_ANALYSIS {
        mutex_.lock(level);
        // It becomes biased under the shared lock only, so before we had it.
        if (is_biased_.load(std::memory_order_relaxed)) [[unlikely]] {
            wait_for_slots();
        }
    }
    void unlock() RELEASE() NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
    // Does not wait.
    [[nodiscard]] bool try_lock() TRY_ACQUIRE(true) NO_THREAD_SAFETY_ANALYSIS {
        if (!mutex_.try_lock()) {
            return false;
        }
        if (is_biased_.load(std::memory_order_relaxed) && !try_to_find_slots_empty()) [[unlikely]] {
            mutex_.unlock();
            return false;
        }
        return true;
    }

    [[nodiscard]] Sharing lock_shared(uint64_t level = 0)
        ACQUIRE_SHARED() NO_THREAD_SAFETY_ANALYSIS {
        if (is_biased_.load(std::memory_order_relaxed)) {
            Stripe& stripe = my_stripe();
            Slot& slot = stripe.slots[slot_number()];
            const BiasedSharedMutex* empty = nullptr;
            // Either this sees that the bias is gone, or the thread that has taken it away sees the slot: all four
            // steps are sequentially consistent.
            if (slot.load(std::memory_order_relaxed) == nullptr &&
                slot.compare_exchange_strong(empty, this, std::memory_order_seq_cst)) {
                race_point();
                if (is_biased_.load(std::memory_order_seq_cst)) [[likely]] {
                    mutex_.note_shared_owner(level);
                    return Sharing(&slot);
                }
                slot.store(nullptr, std::memory_order_release);
            }
        }
        return share_by_mutex(level);
    }
    // The same, for callers that hardly ever come without an exclusive owner in between: never makes it biased.
    // Left by unlock_shared() without an argument.
    void lock_shared_unbiased(uint64_t level = 0) ACQUIRE_SHARED() NO_THREAD_SAFETY_ANALYSIS {
        mutex_.lock_shared(level);
    }
    void unlock_shared() RELEASE_SHARED() NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock_shared(); }
    void unlock_shared(Sharing sharing) RELEASE_SHARED() NO_THREAD_SAFETY_ANALYSIS {
        if (sharing.slot_ == nullptr) {
            mutex_.unlock_shared();
            return;
        }
        mutex_.forget_shared_owner();
        sharing.slot_->store(nullptr, std::memory_order_release);
    }

    // For tests.
    bool is_biased() const { return is_biased_.load(std::memory_order_relaxed); }
    static constexpr uint32_t kSharingsUntilBias = 32;

  private:
    static constexpr uint32_t kStripes = 16;
    static constexpr uint32_t kSlots = 64;
    struct alignas(64) Stripe {
        Slot slots[kSlots]{};
        std::atomic<uint32_t> sharings_by_mutex{0};
    };
    static Stripe stripes_[kStripes];  // NOLINT: constinit, in the .cc

    static Stripe& my_stripe() { return stripes_[host::concurrency_hint() % kStripes]; }
    uint32_t slot_number() const {
        // The lowest bits are those of the alignment.
        const auto address = reinterpret_cast<uintptr_t>(this);
        return static_cast<uint32_t>((address >> 6 ^ address >> 12) % kSlots);
    }
    Sharing share_by_mutex(uint64_t level) ACQUIRE_SHARED();
    void wait_for_slots();
    bool try_to_find_slots_empty();

    // What follows it lies in its padding.
    [[no_unique_address]] host::SharedMutex mutex_;
    std::atomic<bool> is_biased_{
        false};  // set by shared owners of mutex_, taken away by the exclusive one
};

// Scoped owners.
class SCOPED_CAPABILITY BiasedSharedLock {
  public:
    explicit BiasedSharedLock(BiasedSharedMutex& mutex, uint64_t level = 0) ACQUIRE_SHARED(mutex)
        : mutex_(mutex), sharing_(mutex.lock_shared(level)) {}
    ~BiasedSharedLock() RELEASE() { mutex_.unlock_shared(sharing_); }
    BiasedSharedLock(const BiasedSharedLock&) = delete;
    BiasedSharedLock& operator=(const BiasedSharedLock&) = delete;

  private:
    BiasedSharedMutex& mutex_;
    BiasedSharedMutex::Sharing sharing_;
};

class SCOPED_CAPABILITY BiasedExclusiveLock {
  public:
    explicit BiasedExclusiveLock(BiasedSharedMutex& mutex, uint64_t level = 0) ACQUIRE(mutex)
        : mutex_(mutex) {
        mutex_.lock(level);
    }
    ~BiasedExclusiveLock() RELEASE() { mutex_.unlock(); }
    BiasedExclusiveLock(const BiasedExclusiveLock&) = delete;
    BiasedExclusiveLock& operator=(const BiasedExclusiveLock&) = delete;

  private:
    BiasedSharedMutex& mutex_;
};

}  // namespace tiffin
