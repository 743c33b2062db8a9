// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Receiving: what arrives is looked at first, and copied to its place only then.
#include <algorithm>
#include <cstring>

#include "rdma_blk/sdr/queue_pair.h"

namespace tiffin::rdma_blk::sdr {

Result<uint64_t> QueuePair::recv_post(const RegisteredMemory& memory) {
    const uint64_t capacity_bytes = memory.size_bytes();
    if (!connected_ || memory.gather() != nullptr || capacity_bytes == 0 ||
        capacity_bytes > attributes_.max_message_bytes ||
        capacity_bytes > attributes_.bytes_in_flight) {
        return Error::einval;
    }
    ReceiveSlot& slot = receive_slots_[next_receive_ & slot_mask_];
    if (slot.posted || capacity_bytes > attributes_.bytes_in_flight - posted_bytes_) {
        return Error::eagain;
    }
    has_one_capacity_ =
        has_one_capacity_ && (told_capacity_ == 0 || capacity_bytes == told_capacity_);
    slot.posted = true;
    slot.message_number = next_receive_;
    slot.memory = memory;
    slot.message_bytes = 0;
    slot.packet_count = 0;
    slot.chunk_count = 0;
    slot.chunks_received = 0;
    slot.chunks_seen = 0;
    slot.packets_seen = 0;
    posted_bytes_ += capacity_bytes;
    const uint64_t number = next_receive_++;
    if (!must_announce_ || announce_end_ == number) {
        announce_from_ = must_announce_ ? announce_from_ : number;
        announce_end_ = next_receive_;
        must_announce_ = true;
    }  // else the sender is far behind, and asks for it when it gets here
    return number;
}

const QueuePair::ReceiveSlot* QueuePair::receive_slot(uint64_t message_number) const {
    const ReceiveSlot& slot = receive_slots_[message_number & slot_mask_];
    return slot.posted && slot.message_number == message_number ? &slot : nullptr;
}

Result<BitmapView> QueuePair::recv_bitmap_get(uint64_t message_number) const {
    const ReceiveSlot* slot = receive_slot(message_number);
    if (slot == nullptr) {
        return Error::einval;
    }
    BitmapView view;
    view.words = slot->chunks;
    view.chunk_count = slot->chunk_count;
    view.chunks_received = slot->chunks_received;
    view.message_bytes = slot->message_bytes;
    return view;
}

Result<uint32_t> QueuePair::recv_imm_get(uint64_t message_number) const {
    const ReceiveSlot* slot = receive_slot(message_number);
    if (slot == nullptr) {
        return Error::einval;
    }
    if (slot->message_bytes == 0) {
        return Error::eagain;
    }
    return slot->user_immediate;
}

Result<void> QueuePair::recv_complete(uint64_t message_number) {
    if (receive_slot(message_number) == nullptr) {
        return Error::einval;
    }
    ReceiveSlot& slot = receive_slots_[message_number & slot_mask_];
    bitmap_clear(slot.packets, 0, slot.packet_count);
    if (slot.chunks != slot.packets) {
        bitmap_clear(slot.chunks, 0, slot.chunk_count);
    }
    posted_bytes_ -= slot.memory.size_bytes();
    slot.memory = {};
    slot.posted = false;
    return {};
}

// Which slot a run is for, if it is for one that still waits for it.
Arrival::Kind QueuePair::admit(const DataRun& run, ReceiveSlot*& slot) {
    if (run.message_number >= next_receive_) {
        statistics_.packets_not_posted += run.packet_count;
        return Arrival::Kind::not_posted;
    }
    slot = &receive_slots_[run.message_number & slot_mask_];
    if (!slot->posted || slot->message_number != run.message_number) {
        statistics_.packets_late += run.packet_count;
        return Arrival::Kind::late;
    }
    if (!learn_message(*slot, run)) {
        statistics_.packets_malformed += run.packet_count;
        return Arrival::Kind::malformed;
    }
    return Arrival::Kind::placed;
}

// The first packet says what the message is; all others must say the same, and fit.
bool QueuePair::learn_message(ReceiveSlot& slot, const DataRun& run) const {
    if (slot.message_bytes != 0) {
        if (run.message_bytes != slot.message_bytes || run.scheme != slot.scheme ||
            run.user_immediate != slot.user_immediate) {
            return false;
        }
    } else if (run.message_bytes == 0 || run.message_bytes > slot.memory.size_bytes()) {
        return false;
    }
    const uint64_t packet_bytes = attributes_.packet_bytes;
    const uint32_t packet_count = attributes_.packets_of(run.message_bytes);
    const uint64_t end = uint64_t{run.first_packet} + run.packet_count;
    uint64_t expected_bytes = run.packet_count * packet_bytes;
    if (run.kind == PacketKind::data) {
        if (end > packet_count) {
            return false;
        }
        expected_bytes = std::min(end * packet_bytes, run.message_bytes) -
                         uint64_t{run.first_packet} * packet_bytes;
    }
    if (run.packet_count == 0 || run.payload_bytes != expected_bytes) {
        return false;
    }
    if (slot.message_bytes == 0) {
        slot.message_bytes = run.message_bytes;
        slot.user_immediate = run.user_immediate;
        slot.scheme = run.scheme;
        slot.packet_count = packet_count;
        slot.chunk_count = attributes_.chunks_of(run.message_bytes);
    }
    return true;
}

// Copies what is new; what is there already may be in use, and is not written again.
uint32_t QueuePair::place_packets(ReceiveSlot& slot, const DataRun& run) {
    const uint32_t end = run.first_packet + run.packet_count;
    if (slot.memory.data() != nullptr && run.payload != nullptr) {
        const uint64_t packet_bytes = attributes_.packet_bytes;
        uint32_t begin = bitmap_next_clear(slot.packets, run.first_packet, end);
        while (begin < end) {
            const uint32_t stop = bitmap_next_set(slot.packets, begin, end);
            const uint64_t offset_bytes = begin * packet_bytes;
            const uint64_t stop_bytes = std::min(stop * packet_bytes, slot.message_bytes);
            unsigned char* const place = slot.memory.data() + offset_bytes;
            const unsigned char* const bytes =
                run.payload + (begin - run.first_packet) * packet_bytes;
            if (place != bytes) {  // else it was received there: expected_place()
                std::memcpy(place, bytes, stop_bytes - offset_bytes);
                statistics_.bytes_copied += stop_bytes - offset_bytes;
            }
            begin = bitmap_next_clear(slot.packets, stop, end);
        }
    } else if (slot.memory.data() != nullptr) {
        return 0;  // a simulation's run without bytes must not complete a message that has some
    }
    return bitmap_set(slot.packets, run.first_packet, end);
}

// Sets the bits of the chunks of which all packets are there.
void QueuePair::coalesce(ReceiveSlot& slot, uint32_t first_packet, uint32_t packet_end) const {
    const uint32_t shift = attributes_.packets_per_chunk_log2;
    const uint32_t first_chunk = first_packet >> shift;
    const uint32_t chunk_end = ((packet_end - 1) >> shift) + 1;
    slot.chunks_seen = std::max(slot.chunks_seen, chunk_end);
    for (uint32_t chunk = first_chunk; chunk < chunk_end; chunk++) {
        const uint32_t begin = chunk << shift;
        const uint32_t end = std::min(slot.packet_count, (chunk + 1) << shift);
        if (bitmap_next_clear(slot.packets, begin, end) == end) {
            slot.chunks_received += bitmap_set(slot.chunks, chunk, chunk + 1);
        }
    }
}

Arrival QueuePair::place(const DataRun& run) {
    Arrival arrival;
    ReceiveSlot* slot = nullptr;
    arrival.kind = admit(run, slot);
    if (arrival.kind != Arrival::Kind::placed || run.kind == PacketKind::parity) {
        return arrival;
    }
    arrival.new_packets = place_packets(*slot, run);
    statistics_.packets_placed += arrival.new_packets;
    statistics_.packets_repeated += run.packet_count - arrival.new_packets;
    const uint32_t end = run.first_packet + run.packet_count;
    slot->packets_seen = std::max(slot->packets_seen, end);
    if (run.message_number >= newest_receive_) {
        newest_receive_ = run.message_number;
        newest_packet_count_ = slot->packet_count;
    }
    if (arrival.new_packets == 0) {
        arrival.kind = Arrival::Kind::repeated;
    } else if (slot->chunks != slot->packets) {
        coalesce(*slot, run.first_packet, end);
    } else {
        slot->chunks_received += arrival.new_packets;
        slot->chunks_seen = std::max(slot->chunks_seen, end);
    }
    return arrival;
}

// What was sent for the first time comes in order: behind the last packet of the newest message, or at the beginning of
// the next one. Small messages come as they like: several of them are received in one call.
ExpectedPlace QueuePair::expected_place() {
    const ReceiveSlot& newest = receive_slots_[newest_receive_ & slot_mask_];
    const bool is_newest_open = newest.posted && newest.message_number == newest_receive_;
    ExpectedPlace place;
    if (is_newest_open && newest.packets_seen < newest.packet_count) {
        const uint64_t offset_bytes = uint64_t{newest.packets_seen} * attributes_.packet_bytes;
        place.bytes =
            newest.memory.data() == nullptr ? nullptr : newest.memory.data() + offset_bytes;
        place.size_bytes = newest.message_bytes - offset_bytes;
        place.message_number = newest_receive_;
        place.first_packet = newest.packets_seen;
        return place;
    }
    const ReceiveSlot& next = receive_slots_[(newest_receive_ + 1) & slot_mask_];
    if (newest_packet_count_ >= kLargeMessagePackets && next.posted &&
        next.message_number == newest_receive_ + 1 && next.message_bytes == 0) {
        place.bytes = next.memory.data();
        place.size_bytes = next.memory.size_bytes();
        place.message_number = next.message_number;
    }
    return place;
}

void QueuePair::on_data(uint64_t /*now_ns*/, const DataRun& run) { (void)place(run); }

void QueuePair::chunk_restored(uint64_t message_number, uint32_t chunk) {
    ReceiveSlot& slot = receive_slots_[message_number & slot_mask_];
    const uint32_t begin = chunk << attributes_.packets_per_chunk_log2;
    const uint32_t end = std::min(slot.packet_count, begin + attributes_.packets_per_chunk());
    bitmap_set(slot.packets, begin, end);
    slot.packets_seen = std::max(slot.packets_seen, end);
    if (slot.chunks == slot.packets) {
        slot.chunks_received++;
        slot.chunks_seen = std::max(slot.chunks_seen, chunk + 1);
    } else {
        coalesce(slot, begin, end);
    }
}

}  // namespace tiffin::rdma_blk::sdr
