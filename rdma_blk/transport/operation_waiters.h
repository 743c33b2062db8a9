// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The threads that sleep in a transport's wait(), each for an operation of its own. One thread that waits is awake: it
// leads, that is, it polls the network for all. The transport decides which one leads, and when one must.
//
// No lock of its own: everything is called with the transport's.
#pragma once

#include "fs/vfs/host.h"
#include "rdma_blk/remote_memory.h"

namespace tiffin::rdma_blk {

inline bool is_finished(const Operation& operation) {
    return operation.finished.load(std::memory_order_acquire) != 0;
}

class OperationWaiters {
  public:
    OperationWaiters() = default;
    OperationWaiters(const OperationWaiters&) = delete;
    OperationWaiters& operator=(const OperationWaiters&) = delete;

    // One thread that waits, on its stack. Between add() and remove() it lets go of the lock and sleeps, until one of the
    // last two functions wakes it. It may then be complete and chosen to lead at once: a thread that finds `operation`
    // finished passes the lead on.
    class Waiter {
      public:
        explicit Waiter(const Operation& operation) : operation_(&operation) {}
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;
        void sleep() { semaphore_.wait(); }

      private:
        friend OperationWaiters;
        void wake();

        const Operation* operation_;
        Waiter* next_ = nullptr;
        bool is_woken_ = false;
        host::Semaphore semaphore_;
    };
    void add(Waiter& waiter);
    void remove(const Waiter& waiter);
    // All of that, for a transport that has nothing else to do when it lets go of its lock.
    void sleep(const Operation& operation, host::Mutex& mutex) REQUIRES(mutex);
    bool empty() const { return waiters_ == nullptr; }
    // Wakes those whose operations are complete.
    void wake_finished();
    // Wakes one whose operation is not, so that it leads. False: there is none.
    bool wake_leader();

  private:
    Waiter* waiters_ = nullptr;
};

}  // namespace tiffin::rdma_blk
