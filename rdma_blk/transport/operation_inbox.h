// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Threads that submit leave their batches here for the holder of a transport's lock, so that no thread waits for a lock
// while another one is in a system call with it, and what many threads submit at once is sent at once (flat combining).
// Operations also wait here for those that are to be sent with them (Operation::more_follows).
//
//     submit:       switch (inbox.put(first, more_follows)) ... to_send: if (mutex.try_lock()) { leave() }
//     leave:        take() all and start it; unlock; if must_be_sent() now: try_lock() again, from the beginning
//
// What was put cannot be forgotten: a thread that puts and then fails to get the lock has put it in before the lock's holder
// looks for the last time, after its unlock. Both change the same word, so one of the two sees the other. Hence all
// unlocking has to be a leave().
//
// No memory is taken: batches are linked by their first operations. At most kMostBatches are in it.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/vfs/host.h"
#include "rdma_blk/remote_memory.h"

namespace tiffin::rdma_blk {

class OperationInbox {
  public:
    static constexpr uint32_t kMostBatches = 1024;

    enum class Put : uint8_t {
        to_send,     // it has to be taken: by the caller, if it gets the lock
        first_kept,  // it waits for what follows: it has to be looked after in a short time
        kept,        // likewise, and that is done already for those before it
        full,        // it was not put
    };

    OperationInbox() = default;
    ~OperationInbox() { TIFFIN_ASSERT(is_empty()); }
    OperationInbox(const OperationInbox&) = delete;
    OperationInbox& operator=(const OperationInbox&) = delete;

    // Any thread, without a lock. The batch is what is linked from `first` on.
    Put put(Operation& first, bool more_follows) {
        if (count_.fetch_add(1, std::memory_order_relaxed) >= kMostBatches) {
            count_.fetch_sub(1, std::memory_order_relaxed);
            return Put::full;
        }
        uintptr_t latest = latest_.load(std::memory_order_relaxed);
        uintptr_t mine = 0;
        do {
            first.next_batch = operation_of(latest);
            // One that cannot wait takes all of them along.
            const bool is_kept = more_follows && (latest == 0 || (latest & kKept) != 0);
            mine = reinterpret_cast<uintptr_t>(&first) | (is_kept ? kKept : 0);
        } while (!latest_.compare_exchange_weak(latest, mine, std::memory_order_acq_rel,
                                                std::memory_order_relaxed));
        if ((mine & kKept) == 0) {
            return Put::to_send;
        }
        return latest == 0 ? Put::first_kept : Put::kept;
    }

    // With the lock: all batches, the oldest first, linked by next_batch; nullptr: none.
    Operation* take() {
        if (is_empty()) {
            return nullptr;
        }
        Operation* left = operation_of(latest_.exchange(0, std::memory_order_acq_rel));
        Operation* oldest = nullptr;
        uint32_t taken = 0;
        while (left != nullptr) {
            Operation* const earlier = left->next_batch;
            left->next_batch = oldest;
            oldest = left;
            left = earlier;
            taken++;
        }
        count_.fetch_sub(taken, std::memory_order_relaxed);
        return oldest;
    }

    // Whether something is there, as far as this thread knows.
    bool is_empty() const { return latest_.load(std::memory_order_acquire) == 0; }
    // Whether all that is there waits for what follows it; else the thread that put the last of it sees to it.
    bool is_kept() const { return (latest_.load(std::memory_order_acquire) & kKept) != 0; }
    // Whether something is there that need not be kept any longer.
    bool is_to_be_sent() const { return is_for_sending(latest_.load(std::memory_order_acquire)); }
    // The same for a thread that has just made something visible to those that put (that the lock is free, that it
    // sleeps): if this does not see what another thread puts, that thread sees it.
    bool must_be_sent() { return is_for_sending(look()); }
    bool must_be_seen_to() { return look() != 0; }

  private:
    static constexpr uintptr_t kKept = 1;

    static Operation* operation_of(uintptr_t word) {
        return reinterpret_cast<Operation*>(word & ~kKept);
    }
    static bool is_for_sending(uintptr_t word) { return word != 0 && (word & kKept) == 0; }
    // A change, so that it has its place in the order of all changes.
    uintptr_t look() { return latest_.fetch_or(0, std::memory_order_acq_rel); }

    // The batch that was put last, and kKept.
    std::atomic<uintptr_t> latest_{0};
    std::atomic<uint32_t> count_{0};
};

}  // namespace tiffin::rdma_blk
