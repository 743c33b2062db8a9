// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/one_sided_queue.h"

#include <algorithm>
#include <new>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

Result<std::unique_ptr<OneSidedQueue>> OneSidedQueue::create(uint16_t depth) {
    if (depth == 0 || depth > wire::kMaxSlots) {
        return Error::einval;
    }
    std::unique_ptr<Operation*[]> posted(new (std::nothrow) Operation*[depth]());
    if (!posted) {
        return Error::enomem;
    }
    std::unique_ptr<OneSidedQueue> made(new (std::nothrow) OneSidedQueue(std::move(posted), depth));
    if (!made) {
        return Error::enomem;
    }
    return made;
}

OneSidedQueue::~OneSidedQueue() { TIFFIN_ASSERT(pending_count() == 0); }

// ---- The caller's side ----------------------------------------------------------------------------------

// `by` is 1, or -1 modulo 2^64.
void OneSidedQueue::count_pending(const Operation& operation, size_t by) {
    deadline_count_ += operation.deadline_ns != 0 ? by : 0;
    callback_count_ += operation.complete != nullptr ? by : 0;
    follower_count_ += operation.after_earlier ? by : 0;
}

void OneSidedQueue::submit(Operation& first) {
    Operation* operation = &first;
    while (operation != nullptr) {
        Operation* next = std::exchange(operation->next, nullptr);
        operation->submit_number = next_submit_number_++;
        operation->outcome = Outcome::pending;
        operation->transport_data = nullptr;
        count_pending(*operation, 1);
        if (failed_) {
            complete(*operation, Outcome::not_executed, failure_);
        } else {
            queue_.push_back(*operation);
        }
        operation = next;
    }
}

uint64_t OneSidedQueue::next_deadline_ns() const {
    if (deadline_count_ == 0) {
        return 0;
    }
    uint64_t earliest_ns = queue_.earliest_deadline_ns();
    for (uint64_t number = finished_ + 1; number <= started_; number++) {
        earliest_ns = earlier_deadline_ns(earliest_ns, posted(number)->deadline_ns);
    }
    return earliest_ns;
}

bool OneSidedQueue::expire(uint64_t now_ns) {
    if (deadline_count_ == 0) {
        return false;
    }
    complete_queued([now_ns](const Operation& operation) { return is_late(operation, now_ns); },
                    Error::etimedout);
    for (uint64_t number = finished_ + 1; number <= started_; number++) {
        if (is_late(*posted(number), now_ns)) {
            return true;
        }
    }
    return false;
}

// ---- The connection's side -----------------------------------------------------------------------------

// In the order of submission throughout: an operation that has to wait holds up those behind it.
Operation* OneSidedQueue::peek(bool& is_control) const {
    Operation* operation = queue_.front();
    if (operation == nullptr || !connected_) {
        return nullptr;
    }
    is_control = operation->kind == OperationKind::flush || is_atomic(*operation);
    if (!is_control && posted_count() == depth_) {
        return nullptr;
    }
    // Between the device and the control connection order is made by waiting.
    const bool must_wait =
        operation->after_earlier && (control_count_ > 0 || (is_control && posted_count() > 0));
    return must_wait || must_wait_for_read(*operation) ? nullptr : operation;
}

bool OneSidedQueue::must_wait_for_read(const Operation& operation) const {
    if (!operation.after_earlier || last_late_number_ <= finished_) {
        return false;
    }
    for (uint64_t number = finished_ + 1; number <= last_late_number_; number++) {
        if (changes_what_is_read(operation, *posted(number))) {
            return true;
        }
    }
    return false;
}

uint64_t OneSidedQueue::start_device(bool& is_fenced) {
    Operation& operation = queue_.pop_front();
    if (operation.transport_data != nullptr) {
        replayed_++;
        replayed_bytes_ += is_change(operation) ? transfer_bytes(operation) : 0;
    }
    started_++;
    posted(started_) = &operation;
    is_fenced = operation.after_earlier && last_late_number_ > finished_;
    if (operation.kind == OperationKind::read) {
        last_late_number_ = started_;
    }
    return started_;
}

void OneSidedQueue::start_control() {
    queue_.pop_front();
    control_count_++;
}

void OneSidedQueue::refuse(Error error) {
    Operation& operation = queue_.pop_front();
    const bool was_posted = operation.transport_data != nullptr;
    complete(operation, was_posted ? Outcome::unknown : Outcome::not_executed, error);
}

Operation& OneSidedQueue::oldest() const {
    TIFFIN_ASSERT(finished_ < started_);
    return *posted(finished_ + 1);
}

void OneSidedQueue::finish_oldest() {
    Operation& operation = oldest();
    finished_++;
    complete(operation, Outcome::executed, Error::eio);
}

void OneSidedQueue::finish_control(Operation& operation, Outcome outcome, Error error) {
    TIFFIN_ASSERT(control_count_ > 0);
    control_count_--;
    complete(operation, outcome, error);
}

// What was posted is in front, and in the order of submission.
Operation* OneSidedQueue::find_executed(uint64_t executed_through) const {
    Operation* operation = queue_.front();
    while (operation != nullptr && operation->submit_number <= executed_through) {
        if (operation->transport_data != nullptr && operation->kind == OperationKind::write) {
            return operation;
        }
        operation = operation->next;
    }
    return nullptr;
}

void OneSidedQueue::finish_executed(Operation& found) {
    queue_.take_if([&](const Operation& operation) { return &operation == &found; });
    recovered_++;
    complete(found, Outcome::executed, Error::eio);
}

void OneSidedQueue::broken(uint64_t now_ns) {
    connected_ = false;
    last_late_number_ = 0;
    OperationQueue again;
    uint64_t failed_submit_number = ~uint64_t{0};
    while (finished_ < started_) {
        Operation& operation = oldest();
        finished_++;
        const bool follows_failure =
            operation.after_earlier && operation.submit_number > failed_submit_number;
        if (is_late(operation, now_ns) || follows_failure) {
            failed_submit_number = std::min(failed_submit_number, operation.submit_number);
            complete(operation, Outcome::unknown,
                     follows_failure ? Error::ecanceled : Error::etimedout);
            continue;
        }
        operation.transport_data = this;  // it may have been executed
        again.push_back(operation);
    }
    queue_.prepend(again);
}

void OneSidedQueue::fail_all(Error error) {
    connected_ = false;
    failed_ = true;
    failure_ = error;
    while (finished_ < started_) {
        Operation& operation = oldest();
        finished_++;
        complete(operation, Outcome::unknown, error);
    }
    complete_queued([](const Operation&) { return true; }, error);
}

// ---- Completing ------------------------------------------------------------------------------------------

void OneSidedQueue::complete(Operation& operation, Outcome outcome, Error error) {
    count_pending(operation, ~size_t{0});
    completed_[static_cast<size_t>(outcome)]++;
    const uint64_t submit_number = operation.submit_number;
    if (outcome != Outcome::executed) {
        operation.error = error;
    }
    complete_operation(operation, outcome);
    // What was ordered behind it and is posted is the device's to drop: it breaks as a whole.
    if (outcome != Outcome::executed && follower_count_ > 0) {
        complete_queued(
            [submit_number](const Operation& other) {
                return other.after_earlier && other.submit_number > submit_number;
            },
            Error::ecanceled);
    }
}

// They are taken out first, since each completion may cancel more of the queue.
template <typename Condition>
void OneSidedQueue::complete_queued(Condition condition, Error error) {
    OperationQueue found = queue_.take_if(condition);
    while (found.front() != nullptr) {
        Operation& operation = found.pop_front();
        const bool was_posted = operation.transport_data != nullptr;
        complete(operation, was_posted ? Outcome::unknown : Outcome::not_executed, error);
    }
}

}  // namespace tiffin::rdma_blk
