// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/operation_waiters.h"

namespace tiffin::rdma_blk {

void OperationWaiters::Waiter::wake() {
    if (!is_woken_) {
        is_woken_ = true;
        semaphore_.post();
    }
}

void OperationWaiters::add(Waiter& waiter) {
    waiter.next_ = waiters_;
    waiters_ = &waiter;
}

void OperationWaiters::remove(const Waiter& waiter) {
    Waiter** place = &waiters_;
    while (*place != &waiter) {
        place = &(*place)->next_;
    }
    *place = waiter.next_;
}

void OperationWaiters::sleep(const Operation& operation, host::Mutex& mutex) {
    Waiter waiter(operation);
    add(waiter);
    mutex.unlock();
    waiter.sleep();
    mutex.lock();
    remove(waiter);
}

void OperationWaiters::wake_finished() {
    for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next_) {
        if (is_finished(*waiter->operation_)) {
            waiter->wake();
        }
    }
}

bool OperationWaiters::wake_leader() {
    for (Waiter* waiter = waiters_; waiter != nullptr; waiter = waiter->next_) {
        if (!is_finished(*waiter->operation_)) {
            waiter->wake();
            return true;
        }
    }
    return false;
}

}  // namespace tiffin::rdma_blk
