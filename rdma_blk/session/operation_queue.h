// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What state machines and transports ask of an operation, and a queue of operations, linked by their own `next`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "rdma_blk/remote_memory.h"

namespace tiffin::rdma_blk {

inline bool is_atomic(const Operation& operation) {
    return operation.kind == OperationKind::compare_swap ||
           operation.kind == OperationKind::fetch_add;
}

// Whether the volume may be another one afterwards.
inline bool is_change(const Operation& operation) {
    return operation.kind == OperationKind::write || is_atomic(operation);
}

// Whether its deadline has passed.
inline bool is_late(const Operation& operation, uint64_t now_ns) {
    return operation.deadline_ns != 0 && operation.deadline_ns <= now_ns;
}

// What it reads or writes: the bytes of its buffers; an atomic's word.
inline uint64_t transfer_bytes(const Operation& operation) {
    if (is_atomic(operation)) {
        return sizeof(uint64_t);
    }
    uint64_t total = 0;
    for (size_t i = 0; i < operation.buffer_count; i++) {
        total += operation.buffers[i].size_bytes;
    }
    return total;
}

// Whether what `follower` changes is what `read` reads. It must not be sent before the read has its answer, however they
// are ordered at the server: after a broken connection the read is done again.
inline bool changes_what_is_read(const Operation& follower, const Operation& read) {
    return read.kind == OperationKind::read && is_change(follower) &&
           follower.space == read.space &&
           follower.offset_bytes < read.offset_bytes + transfer_bytes(read) &&
           read.offset_bytes < follower.offset_bytes + transfer_bytes(follower);
}

// 0: none.
inline uint64_t earlier_deadline_ns(uint64_t one_ns, uint64_t other_ns) {
    return one_ns == 0 || (other_ns != 0 && other_ns < one_ns) ? other_ns : one_ns;
}

// First in, first out. An operation is in one queue at most. No lock: its owner's.
class OperationQueue {
  public:
    OperationQueue() = default;
    // Of what is linked from `first` on.
    explicit OperationQueue(Operation& first) : head_(&first), tail_(&first), size_(1) {
        for (; tail_->next != nullptr; size_++) {
            tail_ = tail_->next;
        }
    }

    // nullptr: there is none. The others follow by `next`.
    Operation* front() const { return head_; }
    size_t size() const { return size_; }

    void push_back(Operation& operation) {
        operation.next = nullptr;
        (tail_ == nullptr ? head_ : tail_->next) = &operation;
        tail_ = &operation;
        size_++;
    }
    void push_front(Operation& operation) {
        operation.next = head_;
        head_ = &operation;
        tail_ = tail_ == nullptr ? &operation : tail_;
        size_++;
    }
    // Precondition: there is one.
    Operation& pop_front() {
        Operation* operation = head_;
        head_ = std::exchange(operation->next, nullptr);
        tail_ = head_ == nullptr ? nullptr : tail_;
        size_--;
        return *operation;
    }
    // Puts all of `earlier`, which is empty then, in front.
    void prepend(OperationQueue& earlier) {
        if (earlier.head_ == nullptr) {
            return;
        }
        earlier.tail_->next = head_;
        tail_ = tail_ == nullptr ? earlier.tail_ : tail_;
        head_ = earlier.head_;
        size_ += earlier.size_;
        earlier = OperationQueue();
    }
    // Takes out those for which `condition` holds, in their order.
    template <typename Condition>
    OperationQueue take_if(Condition condition) {
        OperationQueue taken;
        OperationQueue kept;
        while (head_ != nullptr) {
            Operation& operation = pop_front();
            (condition(operation) ? taken : kept).push_back(operation);
        }
        *this = kept;
        return taken;
    }
    // The earliest deadline, 0 when no operation has one.
    uint64_t earliest_deadline_ns() const {
        uint64_t earliest = 0;
        for (const Operation* operation = head_; operation != nullptr;
             operation = operation->next) {
            earliest = earlier_deadline_ns(earliest, operation->deadline_ns);
        }
        return earliest;
    }

  private:
    Operation* head_ = nullptr;
    Operation* tail_ = nullptr;
    size_t size_ = 0;
};

// What RequestSlots::collect_completions() has brought there.
inline void hand_back(OperationQueue completed) {
    while (completed.front() != nullptr) {
        Operation& operation = completed.pop_front();
        complete_operation(operation, operation.outcome);
    }
}

}  // namespace tiffin::rdma_blk
