// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a receiver does with packets: place, decode, notice what is lost.
#include <algorithm>
#include <bit>
#include <cstring>

#include "rdma_blk/sdr/reliability/connection.h"

namespace tiffin::rdma_blk::sdr {

void Connection::on_data(uint64_t now_ns, const DataRun& run) {
    if (failed_) {
        must_tell_failure_ = true;  // whoever still sends has not heard
        return;
    }
    on_told(run);
    const Arrival arrival = queue_pair_->place(run);
    if (arrival.kind != Arrival::Kind::not_posted && arrival.kind != Arrival::Kind::malformed) {
        senders_next_ = std::max(senders_next_, run.message_number + 1);
    }
    if (arrival.kind == Arrival::Kind::late) {
        hear(now_ns);
        answer_late(run.message_number);
        return;
    }
    if (arrival.kind != Arrival::Kind::placed && arrival.kind != Arrival::Kind::repeated) {
        return;
    }
    hear(now_ns);
    const QueuePair::ReceiveSlot& slot = *queue_pair_->receive_slot(run.message_number);
    Receiving& message = receiving(run.message_number);
    note_arrival(now_ns, run, slot, message);
    if (run.kind == PacketKind::parity && slot.scheme.is_erasure()) {
        on_parity(now_ns, run, slot, message);
    } else if (message.parity != ParityStore::kNone && arrival.new_packets > 0) {
        decode_touched(run, slot, message);
    }
    if (slot.chunks_received == slot.chunk_count) {
        close_receive(message, true);
        return;
    }
    const ReceivePolicy& policy = receive_policy(slot.scheme.kind);
    if (policy.asks()) {
        if (queue_attributes_.channel_count > 1) {
            judge_later(now_ns, slot, message);
        } else {
            judge(policy.judged_end(slot), slot, message);
        }
        if ((run.flags & data_flag::acknowledge_now) != 0) {
            // The sender has waited in vain: whatever was asked for has not helped.
            bitmap_clear(message.asked, 0, slot.chunk_count);
            message.tail_asked_ns = 0;
            ask_silent(now_ns, slot, message);
        }
    }
}

void Connection::note_arrival(uint64_t now_ns, const DataRun& run,
                              const QueuePair::ReceiveSlot& slot, Receiving& receiving) {
    peer_knows_round_trip_ = run.round_trip_us != 0;
    if (run.round_trip_us != 0) {
        peer_round_trip_us_ = std::min(run.round_trip_us, kMaxRoundTripUs);
    }
    begun_receives_ += receiving.round_trip_us == 0 ? 1 : 0;
    receiving.round_trip_us = peer_round_trip_us_;
    receiving.new_chunks += (run.packet_count + queue_attributes_.packets_per_chunk() - 1) >>
                            queue_attributes_.packets_per_chunk_log2;
    // A sender that knows no round trip hears of its first packet at once.
    const bool is_due = receiving.new_chunks >= kAcknowledgeChunks ||
                        (run.flags & data_flag::acknowledge_now) != 0 ||
                        (run.round_trip_us == 0 && receiving.echo_arrival_ns == 0);
    receiving.echo_time_us = run.send_time_us;
    receiving.echo_arrival_ns = now_ns;
    const uint64_t due_ns =
        is_due ? now_ns
               : now_ns + part_of_round_trip_ns(receiving.round_trip_us, kAcknowledgePercent,
                                                kMinAcknowledgeDelayNs, kMaxAcknowledgeDelayNs);
    receiving.acknowledge_ns = std::min(receiving.acknowledge_ns, due_ns);
    next_acknowledgement_ns_ = std::min(next_acknowledgement_ns_, due_ns);
    if (receive_policy(slot.scheme.kind).asks()) {
        receiving.silence_ns = silence_time_ns(now_ns, receiving);
        receiving.came_since_tail = true;
    }
}

// ---- Erasure codes ---------------------------------------------------------------------------------------

// A run may hold the parity of several groups.
void Connection::on_parity(uint64_t /*now_ns*/, const DataRun& run,
                           const QueuePair::ReceiveSlot& slot, Receiving& receiving) {
    uint32_t offset = 0;
    while (offset < run.packet_count) {
        offset += keep_parity(run, offset, slot, receiving);
    }
    if (queue_attributes_.channel_count > 1) {
        return;  // other packets may come yet; if none does, that is noticed
    }
    // Nothing follows the last parity packet: what cannot be decoded by now never will be.
    const uint32_t last = group_count(slot.scheme, slot.chunk_count) - 1;
    const GroupShape shape = group_shape(slot.scheme, slot.chunk_count, last);
    const uint32_t per_chunk = queue_attributes_.packets_per_chunk();
    const uint64_t end =
        (uint64_t{last} * slot.scheme.parity_chunks + shape.parity_chunks) * per_chunk;
    if (uint64_t{run.first_packet} + run.packet_count == end &&
        slot.chunks_received < slot.chunk_count) {
        judge(slot.chunk_count, slot, receiving);
    }
}

// Keeps what belongs to the group of packet `offset` of the run; returns how many packets these were.
uint32_t Connection::keep_parity(const DataRun& run, uint32_t offset,
                                 const QueuePair::ReceiveSlot& slot, Receiving& receiving) {
    const uint32_t per_chunk = queue_attributes_.packets_per_chunk();
    const uint32_t stride = slot.scheme.parity_chunks * per_chunk;
    const uint32_t packet = run.first_packet + offset;
    const uint32_t group = packet / stride;
    const uint32_t begin = packet % stride;
    const uint32_t count = std::min(stride - begin, run.packet_count - offset);
    if (group >= group_count(slot.scheme, slot.chunk_count)) {
        return count;  // no such group
    }
    const GroupShape shape = group_shape(slot.scheme, slot.chunk_count, group);
    const uint32_t end = std::min(begin + count, shape.parity_chunks * per_chunk);
    const uint32_t data_end = shape.first_chunk + shape.data_chunks;
    if (begin >= end || bitmap_next_clear(slot.chunks, shape.first_chunk, data_end) == data_end) {
        return count;  // complete: parity is of no use
    }
    const bool has_bytes = slot.memory.data() != nullptr;
    ParityStore::Group* kept = nullptr;
    if (slot.scheme.parity_chunks <= parity_.group_chunks() && stride <= kMaxParityPackets &&
        (!has_bytes || (run.payload != nullptr && !attributes_.without_bytes))) {
        kept = parity_.find(receiving.parity, group);
        kept = kept != nullptr ? kept : parity_.add(receiving.parity, group);
    }
    if (kept == nullptr) {
        statistics_.parity_dropped += end - begin;
        return count;
    }
    if (has_bytes) {
        const uint64_t packet_bytes = queue_attributes_.packet_bytes;
        std::memcpy(kept->bytes + begin * packet_bytes, run.payload + offset * packet_bytes,
                    (end - begin) * packet_bytes);
    }
    bitmap_set(kept->packets, begin, end);
    try_decode(group, slot, receiving);
    return count;
}

void Connection::decode_touched(const DataRun& run, const QueuePair::ReceiveSlot& slot,
                                Receiving& receiving) {
    const uint32_t shift = queue_attributes_.packets_per_chunk_log2;
    const uint32_t k = slot.scheme.data_chunks;
    const uint32_t first = (run.first_packet >> shift) / k;
    const uint32_t last = ((run.first_packet + run.packet_count - 1) >> shift) / k;
    for (uint32_t group = first; group <= last && receiving.parity != ParityStore::kNone; group++) {
        if (parity_.find(receiving.parity, group) != nullptr) {
            try_decode(group, slot, receiving);
        }
    }
}

// Precondition: parity of the group is kept.
void Connection::try_decode(uint32_t group, const QueuePair::ReceiveSlot& slot,
                            Receiving& receiving) {
    const GroupShape shape = group_shape(slot.scheme, slot.chunk_count, group);
    const uint32_t per_chunk = queue_attributes_.packets_per_chunk();
    const ParityStore::Group& kept = *parity_.find(receiving.parity, group);
    GroupState state;
    for (uint32_t index = 0; index < shape.data_chunks; index++) {
        state.data |= uint64_t{bitmap_has(slot.chunks, shape.first_chunk + index)} << index;
    }
    for (uint32_t index = 0; index < shape.parity_chunks; index++) {
        const uint32_t end = (index + 1) * per_chunk;
        const bool is_there = bitmap_next_clear(kept.packets, index * per_chunk, end) == end;
        state.parity |= uint32_t{is_there} << index;
    }
    const uint64_t wanted = restorable_chunks(slot.scheme.kind, shape, state);
    if (wanted != 0) {
        if (slot.memory.data() != nullptr) {
            decode_group(shape, state, wanted, slot, kept);
        }
        for (uint64_t rest = wanted; rest != 0; rest &= rest - 1) {
            const auto index = static_cast<uint32_t>(std::countr_zero(rest));
            queue_pair_->chunk_restored(slot.message_number, shape.first_chunk + index);
        }
        const auto count = static_cast<uint32_t>(std::popcount(wanted));
        statistics_.groups_decoded++;
        statistics_.chunks_decoded += count;
        receiving.missed_chunks += count;
        receiving.missed_runs += static_cast<uint32_t>(std::popcount(wanted & ~(wanted << 1)));
    }
    const uint32_t end = shape.first_chunk + shape.data_chunks;
    if (bitmap_next_clear(slot.chunks, shape.first_chunk, end) == end) {
        parity_.remove(receiving.parity, group);
    }
}

// In the message's own memory; only the last chunk of a message, which may be shorter, takes a copy.
void Connection::decode_group(const GroupShape& shape, const GroupState& state, uint64_t wanted,
                              const QueuePair::ReceiveSlot& slot,
                              const ParityStore::Group& parity) {
    const uint64_t chunk_bytes = queue_attributes_.chunk_bytes();
    unsigned char* data[kMaxDataChunks] = {};
    const unsigned char* parity_chunks[kMaxParityChunks] = {};
    uint64_t short_bytes = 0;
    for (uint32_t index = 0; index < shape.data_chunks; index++) {
        const uint64_t offset_bytes = (shape.first_chunk + index) * chunk_bytes;
        const uint64_t size_bytes = std::min(chunk_bytes, slot.message_bytes - offset_bytes);
        data[index] = slot.memory.data() + offset_bytes;
        if (size_bytes < chunk_bytes) {
            short_bytes = size_bytes;
            std::memcpy(padded_chunk_.get(), data[index], size_bytes);
            std::memset(padded_chunk_.get() + size_bytes, 0, chunk_bytes - size_bytes);
            data[index] = padded_chunk_.get();
        }
    }
    for (uint32_t index = 0; index < shape.parity_chunks; index++) {
        parity_chunks[index] = parity.bytes + index * chunk_bytes;
    }
    code_.decode(slot.scheme.kind, shape, chunk_bytes, state, wanted, data, parity_chunks);
    const uint32_t last = shape.data_chunks - 1;
    if (short_bytes > 0 && (wanted >> last & 1) != 0) {
        std::memcpy(slot.memory.data() + (shape.first_chunk + last) * chunk_bytes,
                    padded_chunk_.get(), short_bytes);
    }
}

// ---- What is lost ----------------------------------------------------------------------------------------

// Chunks before `end` that are missing are lost.
void Connection::judge(uint32_t end, const QueuePair::ReceiveSlot& slot, Receiving& receiving) {
    if (end > receiving.judged_end) {
        ask(receiving.judged_end, end, slot, receiving);
        receiving.judged_end = end;
    }
}

// The same, when it is still missing after a moment: the packets of another channel may be on their way.
void Connection::judge_later(uint64_t now_ns, const QueuePair::ReceiveSlot& slot,
                             Receiving& receiving) {
    if (receiving.judge_ns <= now_ns) {
        judge(receiving.judge_end, slot, receiving);
        receiving.judge_ns = kNoTimer;
    }
    const uint32_t end = receive_policy(slot.scheme.kind).judged_end(slot);
    if (receiving.judge_ns != kNoTimer || end <= receiving.judged_end) {
        return;
    }
    if (bitmap_next_clear(slot.chunks, receiving.judged_end, end) == end) {
        receiving.judged_end = end;  // all there
    } else {
        receiving.judge_end = end;
        receiving.judge_ns = silence_time_ns(now_ns, receiving);
    }
}

uint64_t Connection::silence_time_ns(uint64_t now_ns, const Receiving& receiving) const {
    return now_ns + part_of_round_trip_ns(receiving.round_trip_us, kSilencePercent, kMinSilenceNs,
                                          kMaxSilenceNs);
}

// Asks for what is missing in [begin, end) and was not asked for.
void Connection::ask(uint32_t begin, uint32_t end, const QueuePair::ReceiveSlot& slot,
                     Receiving& receiving) {
    const uint32_t k = slot.scheme.is_erasure() ? slot.scheme.data_chunks : 0;
    uint32_t last_group = ParityStore::kNone;
    uint32_t chunk = bitmap_next_clear(slot.chunks, begin, end);
    while (chunk < end) {
        uint32_t stop = bitmap_next_set(slot.chunks, chunk, end);
        if (k > 0) {
            stop = static_cast<uint32_t>(std::min<uint64_t>(stop, (chunk / k + uint64_t{1}) * k));
        }
        uint32_t first = bitmap_next_clear(receiving.asked, chunk, stop);
        while (first < stop) {
            const uint32_t until = bitmap_next_set(receiving.asked, first, stop);
            bitmap_set(receiving.asked, first, until);
            const uint32_t count = bitmap_set(receiving.to_ask, first, until);
            receiving.to_ask_count += count;
            to_ask_total_ += count;
            receiving.missed_chunks += count;
            // What is missing just before was asked for before, as a part of the same run.
            const bool begins = first == 0 || bitmap_has(slot.chunks, first - 1);
            receiving.missed_runs += count > 0 && begins ? 1 : 0;
            if (k > 0 && chunk / k != last_group) {
                last_group = chunk / k;
                statistics_.groups_failed++;
            }
            first = bitmap_next_clear(receiving.asked, until, stop);
        }
        chunk = bitmap_next_clear(slot.chunks, stop, end);
    }
}

// Nothing comes: everything that is missing is asked for. The sender repeats what it has sent of it, and long enough
// ago.
void Connection::ask_silent(uint64_t now_ns, const QueuePair::ReceiveSlot& slot,
                            Receiving& receiving) {
    ask(0, slot.chunks_seen, slot, receiving);
    if (slot.chunks_seen == slot.chunk_count) {
        return;
    }
    // Repetitions need a round trip. When something came since, a sender that pauses after each part of its window is
    // asked in its pauses, and not just before the next part comes.
    const uint64_t interval_ns = tail_request_ns() / 8 * (receiving.came_since_tail ? 7 : 8);
    const uint64_t again_ns =
        receiving.tail_asked_ns == 0 ? now_ns : receiving.tail_asked_ns + interval_ns;
    if (now_ns < again_ns) {
        receiving.silence_ns = again_ns;
        return;
    }
    set_asks_tail(receiving, true);
    receiving.tail_asked_ns = now_ns;
    receiving.came_since_tail = false;
    receiving.silence_ns = now_ns + tail_request_ns();
}

void Connection::set_asks_tail(Receiving& receiving, bool asks) {
    to_ask_total_ -= receiving.asks_tail ? 1 : 0;
    to_ask_total_ += asks ? 1 : 0;
    receiving.asks_tail = asks;
}

// A packet of a receive that has ended: its sender has not heard so. An end of which nothing is known is one that was
// given up before the sender could send to it; when it is another message's, later by two windows or more, the sender
// has sent that one, too, so it has heard.
void Connection::answer_late(uint64_t number) {
    Ended& end = ended(number);
    const uint32_t capacity = 2 * uint32_t{queue_attributes_.max_messages};
    if (number < senders_next_ && (!end.is_known || end.message_number < number)) {
        end = {};
        end.is_known = true;
        end.message_number = number;
    }
    if (!end.is_known || end.message_number != number || end.is_queued ||
        answers_count_ == capacity) {
        return;
    }
    end.is_queued = true;
    answers_[(answers_first_ + answers_count_) % capacity] = number;
    answers_count_++;
}

}  // namespace tiffin::rdma_blk::sdr
