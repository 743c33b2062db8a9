// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/operation_waiters.h"

namespace tiffin::rdma_blk {

void OperationWaiters::Waiter::wake() {
    if (!is_woken) {
        is_woken = true;
        semaphore.post();
    }
}

void OperationWaiters::sleep(const Operation& operation, host::Mutex& mutex) {
    Waiter waiter;
    waiter.operation = &operation;
    waiter.next = waiters_;
    waiters_ = &waiter;
    mutex.unlock();
    waiter.semaphore.wait();
    mutex.lock();
    Waiter** place = &waiters_;
    while (*place != &waiter) {
        place = &(*place)->next;
    }
    *place = waiter.next;
}

void OperationWaiters::wake_finished() {
    for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next) {
        if (is_finished(*waiter->operation)) {
            waiter->wake();
        }
    }
}

bool OperationWaiters::wake_leader() {
    for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next) {
        if (!is_finished(*waiter->operation)) {
            waiter->wake();
            return true;
        }
    }
    return false;
}

}  // namespace tiffin::rdma_blk
