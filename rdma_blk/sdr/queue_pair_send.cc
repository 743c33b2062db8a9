// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Sending: one-shot and streaming messages become ranges in a bounded queue, ranges become runs.
#include <algorithm>

#include "rdma_blk/sdr/queue_pair.h"

namespace tiffin::rdma_blk::sdr {

QueuePair::SendSlot* QueuePair::open_send(uint64_t number) {
    SendSlot& slot = send_slot(number);
    const bool is_open = slot.state == SendState::open && slot.message_number == number;
    return is_open ? &slot : nullptr;
}

Result<uint64_t> QueuePair::send_stream_start(uint64_t message_bytes, uint32_t user_immediate,
                                              SchemeChoice scheme) {
    if (!connected_ || message_bytes == 0 || message_bytes > attributes_.max_message_bytes) {
        return Error::einval;
    }
    SendSlot& slot = send_slot(next_send_);
    if (slot.state != SendState::free) {
        return Error::eagain;
    }
    slot.state = SendState::open;
    slot.flags = 0;
    slot.scheme = scheme;
    slot.message_number = next_send_;
    slot.message_bytes = message_bytes;
    slot.user_immediate = user_immediate;
    slot.queued_ranges = 0;
    return next_send_++;
}

Result<void> QueuePair::send_stream_continue(uint64_t message_number, uint64_t offset_bytes,
                                             const RegisteredMemory& memory) {
    SendSlot* slot = open_send(message_number);
    const uint64_t size_bytes = memory.size_bytes();
    if (slot == nullptr || size_bytes == 0 || offset_bytes % attributes_.packet_bytes != 0 ||
        offset_bytes >= slot->message_bytes || size_bytes > slot->message_bytes - offset_bytes) {
        return Error::einval;
    }
    const bool reaches_end = offset_bytes + size_bytes == slot->message_bytes;
    if (!reaches_end && size_bytes % attributes_.packet_bytes != 0) {
        return Error::einval;
    }
    SendRange range;
    range.message_number = message_number;
    range.flags = slot->flags;
    range.first_packet = static_cast<uint32_t>(offset_bytes / attributes_.packet_bytes);
    range.packet_count = attributes_.packets_of(size_bytes);
    range.payload = memory.data();
    range.payload_bytes = size_bytes;
    range.gather = memory.gather();
    range.gather_offset = memory.gather_offset();
    return queue_range(*slot, range);
}

Result<void> QueuePair::send_parity(uint64_t message_number, uint32_t first_packet,
                                    uint32_t packet_count, const unsigned char* payload) {
    SendSlot* slot = open_send(message_number);
    if (slot == nullptr || packet_count == 0) {
        return Error::einval;
    }
    SendRange range;
    range.message_number = message_number;
    range.kind = PacketKind::parity;
    range.first_packet = first_packet;
    range.packet_count = packet_count;
    range.payload = payload;
    range.payload_bytes = uint64_t{packet_count} * attributes_.packet_bytes;
    return queue_range(*slot, range);
}

Result<void> QueuePair::queue_range(SendSlot& slot, const SendRange& range) {
    if (queue_count_ == kSendQueueRanges) {
        return Error::eagain;
    }
    queue_[(queue_first_ + queue_count_) % kSendQueueRanges] = range;
    queue_count_++;
    slot.queued_ranges++;
    return {};
}

Result<void> QueuePair::send_stream_end(uint64_t message_number) {
    SendSlot* slot = open_send(message_number);
    if (slot == nullptr) {
        SendSlot& failed = send_slot(message_number);
        const bool is_too_big =
            failed.state == SendState::too_big && failed.message_number == message_number;
        return is_too_big ? Result<void>() : Result<void>(Error::einval);
    }
    slot->state = SendState::ended;
    return {};
}

Result<uint64_t> QueuePair::send_post(const RegisteredMemory& memory, uint32_t user_immediate) {
    // Both can be full; nothing may have changed then.
    if (queue_count_ == kSendQueueRanges) {
        return Error::eagain;
    }
    const uint64_t number = TRY(send_stream_start(memory.size_bytes(), user_immediate));
    TRY(send_stream_continue(number, 0, memory));
    TRY(send_stream_end(number));
    return number;
}

Result<void> QueuePair::send_poll(uint64_t message_number) {
    SendSlot& slot = send_slot(message_number);
    if (slot.state == SendState::free || slot.message_number != message_number) {
        return Error::einval;
    }
    if (slot.queued_ranges > 0 || slot.state == SendState::open) {
        return Error::eagain;
    }
    const bool is_too_big = slot.state == SendState::too_big;
    slot.state = SendState::free;
    return is_too_big ? Result<void>(Error::e2big) : Result<void>();
}

// Parts that are still queued become empty ones: removing them would cost a walk for every message. But none is left
// at the front: a queue of nothing but empty parts must look empty, or nobody puts the next part in.
void QueuePair::send_abort(uint64_t message_number) {
    SendSlot& slot = send_slot(message_number);
    if (slot.state == SendState::free || slot.message_number != message_number) {
        return;
    }
    for (uint32_t index = 0; slot.queued_ranges > 0 && index < queue_count_; index++) {
        SendRange& range = queue_[(queue_first_ + index) % kSendQueueRanges];
        if (range.message_number == message_number && range.packet_count > 0) {
            range.packet_count = 0;
            slot.queued_ranges--;
        }
    }
    while (queue_count_ > 0 && queue_[queue_first_].packet_count == 0) {
        drop_front_range();
    }
    slot.state = SendState::free;
}

void QueuePair::set_data_flags(uint64_t message_number, uint8_t flags) {
    SendSlot* slot = open_send(message_number);
    if (slot != nullptr) {
        slot->flags = flags;
    }
}

void QueuePair::drop_front_range() {
    if (queue_[queue_first_].packet_count > 0) {
        send_slot(queue_[queue_first_].message_number).queued_ranges--;
    }
    queue_first_ = (queue_first_ + 1) % kSendQueueRanges;
    queue_count_--;
}

void QueuePair::fill_run(uint64_t now_ns, const SendSlot& slot, const SendRange& range,
                         uint32_t packet_count, DataRun& run) const {
    run.kind = range.kind;
    run.flags = range.flags;
    run.scheme = slot.scheme;
    run.message_number = range.message_number;
    run.message_bytes = slot.message_bytes;
    run.first_packet = range.first_packet;
    run.packet_count = packet_count;
    run.user_immediate = slot.user_immediate;
    run.send_time_us = static_cast<uint32_t>(now_ns / 1000);
    run.round_trip_us = round_trip_us_;
    run.payload = range.payload;
    run.payload_bytes =
        std::min(range.payload_bytes, uint64_t{packet_count} * attributes_.packet_bytes);
    run.gather = range.gather;
    run.gather_offset = range.gather_offset;
}

// The first part whose message is clear to send comes to the front: repetitions of older messages do not wait behind a
// message whose receive is not posted. False: there is none.
bool QueuePair::bring_sendable_to_front(uint64_t now_ns) {
    while (queue_count_ > 0 && queue_[queue_first_].packet_count == 0) {
        drop_front_range();
    }
    if (queue_count_ == 0) {
        return false;
    }
    const uint64_t front_number = queue_[queue_first_].message_number;
    if (is_clear_to_send(front_number)) {
        return true;
    }
    want_clear_to_send(now_ns, front_number);
    for (uint32_t index = 1; index < queue_count_; index++) {
        const SendRange& range = queue_[(queue_first_ + index) % kSendQueueRanges];
        if (range.packet_count > 0 && is_clear_to_send(range.message_number)) {
            const SendRange sendable = range;
            for (; index > 0; index--) {
                queue_[(queue_first_ + index) % kSendQueueRanges] =
                    queue_[(queue_first_ + index - 1) % kSendQueueRanges];
            }
            queue_[queue_first_] = sendable;
            return true;
        }
    }
    return false;
}

// The front of the queue, as far as `max_packets` go and without cutting a chunk.
bool QueuePair::transmit_range(uint64_t now_ns, uint32_t max_packets, Transmit& out) {
    while (bring_sendable_to_front(now_ns)) {
        SendRange& range = queue_[queue_first_];
        SendSlot& slot = send_slot(range.message_number);
        if (slot.granted_bytes < slot.message_bytes) {
            slot.state = SendState::too_big;  // and stays in use until send_poll() has told it
            drop_front_range();
            continue;
        }
        const uint32_t per_chunk = attributes_.packets_per_chunk();
        const uint32_t into_chunk = range.first_packet % per_chunk;
        const uint64_t aligned_end = std::max<uint64_t>(
            (uint64_t{into_chunk} + max_packets) / per_chunk * per_chunk, per_chunk);
        const auto count =
            static_cast<uint32_t>(std::min<uint64_t>(range.packet_count, aligned_end - into_chunk));
        fill_run(now_ns, slot, range, count, out.run);
        out.is_control = false;
        out.control_bytes = 0;
        tell(out.run);
        statistics_.packets_sent += count;
        if (count == range.packet_count) {
            drop_front_range();
            return true;
        }
        range.first_packet += count;
        range.packet_count -= count;
        range.payload = range.payload == nullptr ? nullptr : range.payload + out.run.payload_bytes;
        range.payload_bytes -= out.run.payload_bytes;
        range.gather_offset += out.run.payload_bytes;
        return true;
    }
    return false;
}

bool QueuePair::next_control(uint64_t now_ns, Transmit& out) {
    return make_clear_to_send(now_ns, out) || make_clear_to_send_request(now_ns, out) ||
           make_user_control(out);
}

bool QueuePair::may_transmit(uint64_t now_ns) const {
    const bool waits = announce_since_ns_ != 0 && now_ns < announce_since_ns_ + hold_ns_;
    return queue_count_ > 0 || (must_announce_ && (is_asked_ || !waits)) ||
           (wants_grant_ && now_ns >= request_time_ns_) || controls_out_->front() != nullptr;
}

bool QueuePair::next_transmit(uint64_t now_ns, uint32_t max_packets, Transmit& out) {
    return max_packets > 0 &&
           (next_control(now_ns, out) || transmit_range(now_ns, max_packets, out));
}

}  // namespace tiffin::rdma_blk::sdr
