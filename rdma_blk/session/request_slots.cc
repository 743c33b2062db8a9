// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/request_slots.h"

#include <algorithm>
#include <new>
#include <utility>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {

Result<std::unique_ptr<RequestSlots>> RequestSlots::create(uint16_t slot_count) {
    if (slot_count == 0 || slot_count > wire::kMaxSlots) {
        return Error::einval;
    }
    std::unique_ptr<Slot[]> slots(new (std::nothrow) Slot[slot_count]);
    std::unique_ptr<uint16_t[]> free_slots(new (std::nothrow) uint16_t[slot_count]);
    std::unique_ptr<uint16_t[]> order(new (std::nothrow) uint16_t[slot_count]);
    if (!slots || !free_slots || !order) {
        return Error::enomem;
    }
    std::unique_ptr<RequestSlots> made(new (std::nothrow) RequestSlots(
        std::move(slots), std::move(free_slots), std::move(order), slot_count));
    if (!made) {
        return Error::enomem;
    }
    return made;
}

RequestSlots::RequestSlots(std::unique_ptr<Slot[]> slots, std::unique_ptr<uint16_t[]> free_slots,
                           std::unique_ptr<uint16_t[]> order, uint16_t slot_count)
    : slots_(std::move(slots)),
      free_slots_(std::move(free_slots)),
      order_(std::move(order)),
      slot_count_(slot_count) {}

RequestSlots::~RequestSlots() { TIFFIN_ASSERT(pending_count() == 0); }

// ---- The caller's side --------------------------------------------------------------------------

void RequestSlots::submit(Operation& first) {
    Operation* operation = &first;
    while (operation != nullptr) {
        Operation* next = std::exchange(operation->next, nullptr);
        queue(*operation);
        operation = next;
    }
}

// `by` is 1, or -1 modulo 2^64.
void RequestSlots::count_pending(const Operation& operation, size_t by) {
    deadline_count_ += operation.deadline_ns != 0 ? by : 0;
    follower_count_ += operation.after_earlier ? by : 0;
    change_count_ += is_change(operation) ? by : 0;
    callback_count_ += operation.complete != nullptr ? by : 0;
}

void RequestSlots::queue(Operation& operation) {
    operation.submit_number = next_submit_number_++;
    operation.outcome = Outcome::pending;
    count_pending(operation, 1);
    if (failed_) {
        complete(operation, Outcome::not_executed, failure_);
        return;
    }
    queue_.push_back(operation);
}

uint64_t RequestSlots::next_deadline_ns() const {
    if (deadline_count_ == 0) {
        return 0;
    }
    uint64_t earliest_ns = queue_.earliest_deadline_ns();
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (is_used(index)) {
            earliest_ns = earlier_deadline_ns(earliest_ns, slots_[index].operation->deadline_ns);
        }
    }
    return earliest_ns;
}

bool RequestSlots::expire(uint64_t now_ns) {
    if (deadline_count_ == 0) {
        return false;
    }
    complete_queued([now_ns](const Operation& operation) { return is_late(operation, now_ns); },
                    Error::etimedout);
    if (!connected_ && !opening_) {
        complete_expired(now_ns);
        return false;
    }
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (is_used(index) && is_late(*slots_[index].operation, now_ns)) {
            return true;
        }
    }
    return false;
}

// ---- The connection's side ----------------------------------------------------------------------

const Operation* RequestSlots::peek(uint64_t& sequence) const {
    if (again_count_ > 0) {
        const Slot& slot = slots_[first_to_take_again()];
        sequence = slot.sequence;
        return slot.operation;
    }
    sequence = next_sequence_;
    return queue_.front();
}

Operation* RequestSlots::take_next(wire::Request& request) {
    if (!connected_) {
        return nullptr;
    }
    if (again_count_ > 0) {
        const uint16_t index = first_to_take_again();
        fill_request(index, request);
        slots_[index].state = SlotState::sent;
        again_count_--;
        return slots_[index].operation;
    }
    if (queue_.front() == nullptr || free_count_ == 0 || must_wait_for_read(*queue_.front())) {
        return nullptr;
    }
    Operation* operation = &queue_.pop_front();
    const uint16_t index = free_slots_[--free_count_];
    used_count_++;
    Slot& slot = slots_[index];
    slot = Slot{};
    slot.operation = operation;
    slot.sequence = next_sequence_++;
    slot.state = SlotState::sent;
    if (operation->after_earlier) {
        slot.after = slot.sequence - 1;
        slot.pending_since = smallest_pending_sequence();
    }
    fill_request(index, request);
    return operation;
}

uint16_t RequestSlots::first_to_take_again() const {
    uint16_t first = slot_count_;
    for (uint16_t index = 0; index < slot_count_; index++) {
        const SlotState state = slots_[index].state;
        if ((state == SlotState::to_send || state == SlotState::to_fetch) &&
            (first == slot_count_ || slots_[index].sequence < slots_[first].sequence)) {
            first = index;
        }
    }
    TIFFIN_ASSERT(first < slot_count_);
    return first;
}

uint64_t RequestSlots::smallest_pending_sequence() const {
    uint64_t smallest = next_sequence_;
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (is_used(index)) {
            smallest = std::min(smallest, slots_[index].sequence);
        }
    }
    return smallest;
}

bool RequestSlots::must_wait_for_read(const Operation& operation) const {
    if (!operation.after_earlier || used_count_ == 0) {
        return false;
    }
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (is_used(index) && changes_what_is_read(operation, *slots_[index].operation)) {
            return true;
        }
    }
    return false;
}

void RequestSlots::fill_request(uint16_t index, wire::Request& request) const {
    const Slot& slot = slots_[index];
    const Operation& operation = *slot.operation;
    request = wire::Request{};
    request.sequence = slot.sequence;
    request.slot = index;
    request.operation = static_cast<uint8_t>(operation.kind);
    request.space = static_cast<uint8_t>(operation.space);
    request.flags = slot.state == SlotState::to_fetch ? wire::request_flag::reply_only : 0;
    request.after = slot.after;
    request.pending_since = slot.pending_since;
    switch (operation.kind) {
        case OperationKind::read:
        case OperationKind::write:
            request.offset_bytes = operation.offset_bytes;
            request.length_bytes = static_cast<uint32_t>(transfer_bytes(operation));
            break;
        case OperationKind::compare_swap:
        case OperationKind::fetch_add:
            request.offset_bytes = operation.offset_bytes;
            request.length_bytes = sizeof(uint64_t);
            request.compare = operation.compare;
            request.operand = operation.operand;
            break;
        case OperationKind::flush:
            request.length_bytes =
                static_cast<uint32_t>(operation.range_count * sizeof(wire::FlushRange));
            break;
    }
}

Result<Operation*> RequestSlots::find(const wire::Response& response) {
    if (response.slot >= slot_count_ || response.sequence == 0 ||
        response.sequence >= next_sequence_) {
        return Error::eproto;
    }
    const Slot& slot = slots_[response.slot];
    if (!is_used(response.slot) || response.sequence < slot.sequence) {
        statistics_.stale_responses++;
        return static_cast<Operation*>(nullptr);
    }
    const Operation& operation = *slot.operation;
    const bool is_executed_read = operation.kind == OperationKind::read &&
                                  response.outcome == static_cast<uint8_t>(Outcome::executed);
    if (response.sequence != slot.sequence ||
        response.operation != static_cast<uint8_t>(operation.kind) ||
        response.payload_bytes != (is_executed_read ? transfer_bytes(operation) : 0)) {
        return Error::eproto;
    }
    return slot.operation;
}

void RequestSlots::finish(const wire::Response& response) {
    TIFFIN_ASSERT(is_used(response.slot) && slots_[response.slot].sequence == response.sequence);
    Operation& operation = *slots_[response.slot].operation;
    operation.old_value = response.value;
    if (operation.kind == OperationKind::flush) {
        operation.old_value = 0;
        operation.content_incarnation = response.value;
    }
    complete_slot(response.slot, static_cast<Outcome>(response.outcome),
                  static_cast<Error>(response.error));
}

void RequestSlots::take_back(Slot& slot) {
    slot.state = slot.cancelled || slot.fetch_only ? SlotState::to_fetch : SlotState::to_send;
    again_count_++;
}

void RequestSlots::resend_all() {
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (slots_[index].state == SlotState::sent) {
            take_back(slots_[index]);
        }
    }
}

void RequestSlots::connection_lost(uint64_t now_ns) {
    connected_ = false;
    opening_ = false;
    again_count_ = 0;
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (!is_used(index)) {
            continue;
        }
        slots_[index].state = SlotState::sent;
        slots_[index].fetch_only = false;
    }
    complete_expired(now_ns);
}

void RequestSlots::complete_expired(uint64_t now_ns) {
    for (uint16_t index = 0; deadline_count_ > 0 && index < slot_count_; index++) {
        if (is_used(index) && is_late(*slots_[index].operation, now_ns)) {
            complete_slot(index, Outcome::unknown, Error::etimedout);
        }
    }
}

// ---- Completing -------------------------------------------------------------------------------------

void RequestSlots::release(uint16_t index) {
    Slot& slot = slots_[index];
    if (slot.state == SlotState::to_send || slot.state == SlotState::to_fetch) {
        again_count_ -= again_count_ > 0 ? 1 : 0;
    }
    slot = Slot{};
    free_slots_[free_count_++] = index;
    used_count_--;
}

void RequestSlots::complete_slot(uint16_t index, Outcome outcome, Error error) {
    Operation& operation = *slots_[index].operation;
    release(index);
    complete(operation, outcome, error);
}

// A change that an earlier server had, this one may not have executed, and that one may have.
void RequestSlots::complete(Operation& operation, Outcome outcome, Error error) {
    if (outcome == Outcome::not_executed && operation.kind != OperationKind::read &&
        operation.submit_number <= restarted_through_) {
        outcome = Outcome::unknown;
    }
    count_pending(operation, ~size_t{0});
    statistics_.completed[static_cast<size_t>(outcome)]++;
    const uint64_t submit_number = operation.submit_number;
    if (outcome != Outcome::executed) {
        operation.error = error;
    }
    if (collected_ != nullptr && operation.complete != nullptr) {
        operation.outcome = outcome;
        collected_->push_back(operation);
    } else {
        complete_operation(operation, outcome);
    }
    if (outcome != Outcome::executed && follower_count_ > 0) {
        cancel_followers(submit_number);
    }
}

// Something failed: what is ordered behind it and was not sent will not be. What was sent is for the server
// to refuse; the mark is for the case that it never got it.
void RequestSlots::cancel_followers(uint64_t submit_number) {
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (is_used(index) && slots_[index].operation->after_earlier &&
            slots_[index].operation->submit_number > submit_number) {
            slots_[index].cancelled = true;
        }
    }
    complete_queued(
        [submit_number](const Operation& operation) {
            return operation.after_earlier && operation.submit_number > submit_number;
        },
        Error::ecanceled);
}

// Completes those in the queue for which `condition` holds as not_executed. They are taken out first, since each completion
// may cancel more of the queue.
template <typename Condition>
void RequestSlots::complete_queued(Condition condition, Error error) {
    OperationQueue found = queue_.take_if(condition);
    while (found.front() != nullptr) {
        Operation& operation = found.pop_front();
        complete(operation, Outcome::not_executed, error);
    }
}

void RequestSlots::fail_all(Error error) {
    connected_ = false;
    opening_ = false;
    again_count_ = 0;
    failed_ = true;
    failure_ = error;
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (is_used(index)) {
            complete_slot(index, Outcome::unknown, error);
        }
    }
    complete_queued([](const Operation&) { return true; }, error);
}

}  // namespace tiffin::rdma_blk
