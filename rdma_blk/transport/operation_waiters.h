// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The threads that sleep in a transport's wait(), each for an operation of its own. One thread that waits is awake: it
// leads, that is, it polls the network for all. Who leads, and when somebody must, is the transport's to know.
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

    // Lets go of `mutex` and sleeps until one of the other two functions wakes this thread. It may then be complete
    // and chosen to lead at once: who finds `operation` finished passes the lead on.
    void sleep(const Operation& operation, host::Mutex& mutex) REQUIRES(mutex);
    bool empty() const { return waiters_ == nullptr; }
    // Wakes those whose operations are complete.
    void wake_finished();
    // Wakes one whose operation is not, so that it leads. False: there is none.
    bool wake_leader();

  private:
    struct Waiter {
        const Operation* operation = nullptr;
        Waiter* next = nullptr;
        bool is_woken = false;
        host::Semaphore semaphore;

        void wake();
    };

    Waiter* waiters_ = nullptr;  // on their threads' stacks
};

}  // namespace tiffin::rdma_blk
