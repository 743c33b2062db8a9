// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The control path of a queue pair: clear-to-send, its requests, and messages of schemes.
#include <algorithm>
#include <cstring>

#include "rdma_blk/sdr/queue_pair.h"

namespace tiffin::rdma_blk::sdr {

void QueuePair::on_control(uint64_t /*now_ns*/, ByteSpan message) {
    Result<ControlView> parsed = parse_control(message);
    if (!parsed.ok()) {
        statistics_.control_malformed++;
        return;
    }
    switch (parsed->kind) {
        case ControlKind::clear_to_send:
            on_clear_to_send(*parsed);
            break;
        case ControlKind::clear_to_send_request:
            on_clear_to_send_request(*parsed);
            break;
        case ControlKind::user:
            if (!controls_in_->push(ByteSpan(parsed->entries, parsed->entry_count))) {
                statistics_.control_malformed++;  // nobody takes them
            }
            break;
        default:
            statistics_.control_malformed++;  // of schemes that this end does not run
    }
}

// The numbers that a sender can use are those of its window; others will be asked for when their time comes.
void QueuePair::on_clear_to_send(const ControlView& message) {
    const uint64_t window_end = next_send_ + attributes_.max_messages;
    for (size_t index = 0; index < message.entry_count; index++) {
        const uint64_t number = message.message_number + index;
        const uint64_t capacity_bytes = message.clear_to_send_entry(index).capacity_bytes;
        SendSlot& slot = send_slot(number);
        const bool is_in_use = slot.state != SendState::free;
        const bool is_ours = is_in_use ? slot.message_number == number : number >= next_send_;
        if (number >= window_end || number < message.message_number || !is_ours ||
            slot.granted_number == number) {
            continue;
        }
        slot.granted_number = number;
        slot.granted_bytes = capacity_bytes;
        peer_capacity_ = capacity_bytes != 0 ? capacity_bytes : peer_capacity_;
        if (wants_grant_ && wanted_number_ == number) {
            wants_grant_ = false;
            request_time_ns_ = kNoTimer;
        }
    }
}

// A receiver that gives receives up can be ahead of its sender by any number. The sender can use two windows from what
// it asks for; others it will ask for when their time comes.
void QueuePair::on_clear_to_send_request(const ControlView& message) {
    const uint64_t wanted = std::min(message.message_number, next_receive_);
    const uint64_t usable_end =
        wanted + std::min(next_receive_ - wanted, 2 * uint64_t{attributes_.max_messages});
    if (must_announce_ && announce_from_ <= usable_end && wanted <= announce_end_) {
        announce_from_ = std::min(announce_from_, wanted);
        announce_end_ = std::max(announce_end_, usable_end);
    } else {
        announce_from_ = wanted;
        announce_end_ = usable_end;
    }
    is_asked_ = true;
    must_announce_ = true;  // an empty answer, too, tells the sender that somebody is there
}

// With data: what they tell needs no message of its own.
void QueuePair::tell(DataRun& run) {
    if (hold_ns_ == 0) {
        return;
    }
    run.flags |= data_flag::tells_delivered;
    run.delivered_until = static_cast<uint16_t>(delivered_until_);
    if (!has_one_capacity_ || told_capacity_ == 0) {
        return;  // the sender would not know the capacity
    }
    run.flags |= data_flag::tells_posted;
    run.posted_until = static_cast<uint16_t>(next_receive_);
    if (!is_asked_ && announce_end_ == next_receive_) {
        must_announce_ = false;
        announce_since_ns_ = 0;
    }
}

void QueuePair::on_posted_until(uint16_t number) {
    const uint64_t end = std::min(near_next_send(number), next_send_ + attributes_.max_messages);
    const uint64_t begin = end - std::min<uint64_t>(end, attributes_.max_messages);
    // Those before the last one that is known are known, too: only the new ones are looked at.
    for (uint64_t place = end; peer_capacity_ != 0 && place > begin; place--) {
        const uint64_t granted = place - 1;
        SendSlot& slot = send_slot(granted);
        if (slot.granted_number == granted) {
            break;
        }
        const bool is_ours =
            slot.state != SendState::free ? slot.message_number == granted : granted >= next_send_;
        if (!is_ours) {
            continue;
        }
        slot.granted_number = granted;
        slot.granted_bytes = peer_capacity_;
        if (wants_grant_ && wanted_number_ == granted) {
            wants_grant_ = false;
            request_time_ns_ = kNoTimer;
        }
    }
}

void QueuePair::hold_clear_to_send(uint64_t now_ns) {
    if (must_announce_ && announce_since_ns_ == 0 && hold_ns_ != 0 && told_capacity_ != 0) {
        announce_since_ns_ = now_ns;
    }
}

bool QueuePair::make_clear_to_send(uint64_t now_ns, Transmit& out) {
    if (!must_announce_) {
        return false;
    }
    hold_clear_to_send(now_ns);
    if (announce_since_ns_ != 0 && !is_asked_ && now_ns < announce_since_ns_ + hold_ns_) {
        return false;
    }
    is_asked_ = false;
    announce_since_ns_ = 0;
    make_control(ControlKind::clear_to_send, 0, announce_from_, out);
    for (; announce_from_ < announce_end_; announce_from_++) {
        const ReceiveSlot* slot = receive_slot(announce_from_);
        const uint64_t capacity_bytes = slot == nullptr ? 0 : slot->memory.size_bytes();
        if (!add_clear_to_send({capacity_bytes}, out)) {
            break;
        }
        told_capacity_ = told_capacity_ == 0 ? capacity_bytes : told_capacity_;
        has_one_capacity_ =
            has_one_capacity_ && (capacity_bytes == 0 || capacity_bytes == told_capacity_);
    }
    must_announce_ = announce_from_ < announce_end_;
    return true;
}

bool QueuePair::is_clear_to_send(uint64_t message_number) const {
    return send_slot(message_number).granted_number == message_number;
}

uint64_t QueuePair::granted_bytes(uint64_t message_number) const {
    return send_slot(message_number).granted_bytes;
}

void QueuePair::want_clear_to_send(uint64_t now_ns, uint64_t message_number) {
    if (wants_grant_ && wanted_number_ == message_number) {
        return;
    }
    wants_grant_ = true;
    wanted_number_ = message_number;
    request_interval_ns_ = kFirstGrantRequestNs;
    request_time_ns_ = now_ns + request_interval_ns_;
}

bool QueuePair::make_clear_to_send_request(uint64_t now_ns, Transmit& out) {
    if (now_ns < request_time_ns_ || !wants_grant_) {
        return false;
    }
    request_interval_ns_ = std::min(request_interval_ns_ * 2, kMaxGrantRequestNs);
    request_time_ns_ = now_ns + request_interval_ns_;
    statistics_.clear_to_send_requests++;
    make_control(ControlKind::clear_to_send_request, 0, wanted_number_, out);
    return true;
}

uint64_t QueuePair::next_timer_ns() const {
    const bool waits = must_announce_ && announce_since_ns_ != 0;
    return waits ? std::min(request_time_ns_, announce_since_ns_ + hold_ns_) : request_time_ns_;
}

// The request is made by next_transmit(), which the carrier calls after every timer.
void QueuePair::on_timer(uint64_t /*now_ns*/) {}

bool QueuePair::UserControlQueue::push(ByteSpan message) {
    if (count == kMaxUserControls || message.size() > kMaxUserControlBytes) {
        return false;
    }
    UserControl& entry = entries[(first + count) % kMaxUserControls];
    entry.size_bytes = message.size();
    std::memcpy(entry.bytes, message.data(), message.size());
    count++;
    return true;
}

void QueuePair::UserControlQueue::pop() {
    first = (first + 1) % kMaxUserControls;
    count--;
}

Result<void> QueuePair::control_send(ByteSpan message) {
    if (message.empty() || message.size() > kMaxUserControlBytes) {
        return Error::einval;
    }
    return controls_out_->push(message) ? Result<void>() : Result<void>(Error::eagain);
}

Result<size_t> QueuePair::control_poll(MutableByteSpan out) {
    const UserControl* oldest = controls_in_->front();
    if (oldest == nullptr) {
        return Error::eagain;
    }
    const size_t size_bytes = oldest->size_bytes;
    if (size_bytes > out.size()) {
        return Error::einval;
    }
    std::memcpy(out.data(), oldest->bytes, size_bytes);
    controls_in_->pop();
    return size_bytes;
}

bool QueuePair::make_user_control(Transmit& out) {
    const UserControl* oldest = controls_out_->front();
    if (oldest == nullptr) {
        return false;
    }
    sdr::make_user_control(ByteSpan(oldest->bytes, oldest->size_bytes), out);
    controls_out_->pop();
    return true;
}

}  // namespace tiffin::rdma_blk::sdr
