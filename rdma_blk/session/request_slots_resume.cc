// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The slots when a connection opens: what is told to the server, what it answers, and what is sent again.
#include <algorithm>

#include "fs/vfs/host.h"
#include "rdma_blk/session/request_slots.h"

namespace tiffin::rdma_blk {

// ---- Opening an incarnation -----------------------------------------------------------------------

// Puts the used slots into order_, the first used_count_ places of it.
void RequestSlots::sort_by_sequence() {
    uint16_t count = 0;
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (is_used(index)) {
            order_[count++] = index;
        }
    }
    std::sort(order_.get(), order_.get() + count, [this](uint16_t left, uint16_t right) {
        return slots_[left].sequence < slots_[right].sequence;
    });
}

uint16_t RequestSlots::fill_outstanding(wire::OutstandingEntry* entries) {
    TIFFIN_ASSERT(!connected_);
    opening_ = true;
    sort_by_sequence();
    for (uint16_t i = 0; i < used_count_; i++) {
        const Slot& slot = slots_[order_[i]];
        entries[i] = wire::OutstandingEntry{};
        entries[i].sequence = slot.sequence;
        entries[i].slot = order_[i];
        entries[i].operation = static_cast<uint8_t>(slot.operation->kind);
    }
    return used_count_;
}

uint16_t RequestSlots::fill_sent(wire::OutstandingEntry* entries) {
    sort_by_sequence();
    uint16_t count = 0;
    for (uint16_t i = 0; i < used_count_; i++) {
        const Slot& slot = slots_[order_[i]];
        if (slot.state == SlotState::sent) {
            entries[count] = wire::OutstandingEntry{};
            entries[count].sequence = slot.sequence;
            entries[count].slot = order_[i];
            entries[count].operation = static_cast<uint8_t>(slot.operation->kind);
            count++;
        }
    }
    return count;
}

RequestSlots::Recovery RequestSlots::recover(const wire::OutstandingEntry& entry, Outcome outcome) {
    Slot& slot = slots_[entry.slot];
    statistics_.recovered += outcome != Outcome::not_executed ? 1 : 0;
    if (slot.state != SlotState::sent || slot.sequence != entry.sequence) {
        return Recovery::settled;
    }
    if (outcome != Outcome::not_executed) {
        return Recovery::answer_comes;
    }
    take_back(slot);
    statistics_.resent++;
    return Recovery::again;
}

void RequestSlots::grant(uint16_t granted_slots) {
    TIFFIN_ASSERT(used_count_ == 0 && granted_slots > 0);
    const uint16_t usable_count = std::min(slot_count_, granted_slots);
    free_count_ = 0;
    while (free_count_ < usable_count) {
        free_slots_[free_count_] = static_cast<uint16_t>(usable_count - 1 - free_count_);
        free_count_++;
    }
}

void RequestSlots::opened(uint16_t granted_slots) {
    TIFFIN_ASSERT(next_sequence_ == 1);
    grant(granted_slots);
    connected_ = true;
    opening_ = false;
}

void RequestSlots::send_again(uint16_t index, SlotState state) {
    slots_[index].state = state;
    slots_[index].fetch_only = state == SlotState::to_fetch;
    again_count_++;
    statistics_.replayed++;
    statistics_.fetched += state == SlotState::to_fetch ? 1 : 0;
}

void RequestSlots::settle_one(uint16_t index, Outcome answer) {
    const Slot& slot = slots_[index];
    if (answer == Outcome::unknown) {
        complete_slot(index, Outcome::unknown, Error::eio);
    } else if (slot.cancelled ||
               (answer == Outcome::executed && slot.operation->kind != OperationKind::read)) {
        // What was cancelled and never executed gets its answer by this, too: the server was told of its
        // sequence and would wait for it.
        send_again(index, SlotState::to_fetch);
    } else {
        send_again(index, SlotState::to_send);
    }
}

Result<void> RequestSlots::resumed(ByteSpan outcomes) {
    if (!opening_ || outcomes.size() != used_count_) {
        return Error::eproto;
    }
    opening_ = false;
    connected_ = true;
    // Ascending, so that what follows a failure is marked before it is looked at. order_ is from
    // fill_outstanding(): nothing has completed since.
    for (size_t i = 0; i < outcomes.size(); i++) {
        settle_one(order_[i], static_cast<Outcome>(outcomes[i]));
    }
    return {};
}

void RequestSlots::restarted(uint16_t granted_slots) {
    opening_ = false;
    again_count_ = 0;
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (is_used(index) && is_atomic(*slots_[index].operation)) {
            complete_slot(index, Outcome::unknown, Error::estale);
        }
    }
    for (uint16_t index = 0; index < slot_count_; index++) {
        if (is_used(index) && slots_[index].cancelled) {
            complete_slot(index, Outcome::unknown, Error::ecanceled);
        }
    }
    sort_by_sequence();
    for (uint16_t i = used_count_; i > 0; i--) {
        Operation& operation = *slots_[order_[i - 1]].operation;
        restarted_through_ = std::max(restarted_through_, operation.submit_number);
        release(order_[i - 1]);
        queue_.push_front(operation);
        statistics_.replayed++;
    }
    next_sequence_ = 1;
    grant(granted_slots);
    connected_ = true;
}

}  // namespace tiffin::rdma_blk
