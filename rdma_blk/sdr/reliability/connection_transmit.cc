// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What is sent next: answers, then what is wanted again, then what was never sent.
#include <algorithm>
#include <cstring>

#include "rdma_blk/sdr/reliability/connection.h"

namespace tiffin::rdma_blk::sdr {

// The same conditions as in next_transmit(), and what it calls, without doing anything.
bool Connection::may_transmit(uint64_t now_ns) const {
    if (failed_) {
        return must_tell_failure_;
    }
    const bool has_answer = answers_count_ > 0 || to_ask_total_ > 0 ||
                            now_ns >= next_acknowledgement_ns_ ||
                            (held_count_ > 0 && now_ns >= held_ns_);
    const bool has_data = active_sends_ > 0 && (wanted_total_ > 0 || first_pass_ < next_send_);
    return has_answer || has_data || queue_pair_->may_transmit(now_ns);
}

bool Connection::next_transmit(uint64_t now_ns, uint32_t max_packets, Transmit& out) {
    if (max_packets == 0) {
        return false;
    }
    if (failed_) {
        if (must_tell_failure_) {
            must_tell_failure_ = false;
            make_control(ControlKind::error, 0, 0, out);
            return true;
        }
        return false;
    }
    if (make_answer(now_ns, out)) {
        return true;
    }
    if (sent_.full()) {
        trim_sent_log();
        if (sent_.full()) {
            // No data until something is acknowledged or times out: what is sent must be remembered.
            return next_control(now_ns, out);
        }
    }
    queue_next(now_ns, max_packets);
    note_delivered_until();
    if (!queue_pair_->next_transmit(now_ns, max_packets, out)) {
        return false;
    }
    if (!out.is_control) {
        note_transmitted(now_ns, out.run);
    } else {
        note_control(now_ns);
    }
    return true;
}

bool Connection::next_control(uint64_t now_ns, Transmit& out) {
    const bool has_control = queue_pair_->next_control(now_ns, out);
    if (has_control) {
        note_control(now_ns);
    }
    return has_control;
}

// The peer answers it when it asks for room there.
void Connection::note_control(uint64_t now_ns) {
    if (first_pass_ < next_send_ && !queue_pair_->is_clear_to_send(first_pass_)) {
        note_told(now_ns);
    }
}

// Puts one part into the queue pair's queue when that is empty, so that what becomes urgent later does not
// stand behind much. What is queued here is taken out by the same next_transmit(), but for the rest of a part.
void Connection::queue_next(uint64_t now_ns, uint32_t max_packets) {
    if (!queue_pair_->send_queue_empty() || active_sends_ == 0) {
        return;
    }
    const uint32_t most_chunks =
        std::max<uint32_t>(max_packets >> queue_attributes_.packets_per_chunk_log2, 1);
    if (wanted_total_ == 0 || !queue_wanted(most_chunks)) {
        queue_first_pass(now_ns, most_chunks);
    }
}

bool Connection::queue_wanted(uint32_t most_chunks) {
    for (uint64_t number = oldest_send_; number < next_send_; number++) {
        Sending& message = sending(number);
        if (!message.active || message.wanted_count == 0) {
            continue;
        }
        const uint32_t begin = bitmap_next_set(message.wanted, 0, message.chunk_count);
        const uint32_t limit = static_cast<uint32_t>(
            std::min<uint64_t>(uint64_t{begin} + most_chunks, message.chunk_count));
        const uint32_t end = bitmap_next_clear(message.wanted, begin, limit);
        if (!queue_data(message, begin, end - begin)) {
            return false;
        }
        queue_pair_->set_data_flags(number, 0);  // a probe's demand is made once
        const uint32_t count = bitmap_clear(message.wanted, begin, end);
        message.wanted_count -= count;
        wanted_total_ -= count;
        message.repeated_count += count;
        statistics_.chunks_repeated += count;
        return true;
    }
    return false;
}

bool Connection::queue_first_pass(uint64_t now_ns, uint32_t most_chunks) {
    while (first_pass_ < next_send_) {
        Sending& message = sending(first_pass_);
        const SendPolicy& policy = send_policy(message.scheme.kind);
        SendPart part;
        if (!message.active || !policy.first_pass(message, most_chunks, part)) {
            first_pass_++;
            continue;
        }
        if (!queue_pair_->is_clear_to_send(first_pass_)) {
            queue_pair_->want_clear_to_send(now_ns, first_pass_);
            return false;
        }
        if (queue_pair_->granted_bytes(first_pass_) == 0) {
            complete_send(message, false, Error::ecanceled);  // moves first_pass_ on
            continue;
        }
        if (queue_pair_->granted_bytes(first_pass_) < message.memory.size_bytes()) {
            // Its receive would wait for ever, and all behind it lose their places.
            complete_send(message, false, Error::e2big);
            fail_with(true);
            return false;
        }
        if (part.is_parity) {
            if (queue_parity(message, part.group)) {
                message.parity_groups_sent++;
            }
            return true;
        }
        if (queue_data(message, part.first_chunk, part.chunk_count)) {
            if (message.acknowledged_count == message.next_chunk) {
                message.note_progress(now_ns);  // nothing of it was on its way
            }
            message.next_chunk = part.first_chunk + part.chunk_count;
            statistics_.chunks_sent += part.chunk_count;
            first_pass_ += policy.first_pass(message, most_chunks, part) ? 0 : 1;
        }
        return true;
    }
    return false;
}

bool Connection::queue_data(Sending& sending, uint32_t first_chunk, uint32_t chunk_count) {
    const uint64_t chunk_bytes = queue_attributes_.chunk_bytes();
    const uint64_t begin_bytes = first_chunk * chunk_bytes;
    const uint64_t end_bytes =
        std::min((uint64_t{first_chunk} + chunk_count) * chunk_bytes, sending.memory.size_bytes());
    return queue_pair_
        ->send_stream_continue(sending.message_number, begin_bytes,
                               sending.memory.slice(begin_bytes, end_bytes - begin_bytes))
        .ok();
}

bool Connection::queue_parity(Sending& sending, uint32_t group) {
    const GroupShape shape = group_shape(sending.scheme, sending.chunk_count, group);
    const bool has_bytes = sending.memory.data() != nullptr && parity_out_ != nullptr;
    if (has_bytes) {
        encode_group(sending, shape);
    }
    const uint32_t per_chunk = queue_attributes_.packets_per_chunk();
    statistics_.parity_chunks_sent += shape.parity_chunks;
    return queue_pair_
        ->send_parity(sending.message_number, group * sending.scheme.parity_chunks * per_chunk,
                      shape.parity_chunks * per_chunk, has_bytes ? parity_out_.get() : nullptr)
        .ok();
}

void Connection::encode_group(const Sending& sending, const GroupShape& shape) {
    const uint64_t chunk_bytes = queue_attributes_.chunk_bytes();
    const unsigned char* data[kMaxDataChunks];
    unsigned char* parity[kMaxParityChunks];
    for (uint32_t index = 0; index < shape.data_chunks; index++) {
        const uint64_t offset_bytes = (shape.first_chunk + index) * chunk_bytes;
        const uint64_t size_bytes =
            std::min(chunk_bytes, sending.memory.size_bytes() - offset_bytes);
        data[index] = sending.memory.data() + offset_bytes;
        if (size_bytes < chunk_bytes) {
            std::memcpy(padded_chunk_.get(), data[index], size_bytes);
            std::memset(padded_chunk_.get() + size_bytes, 0, chunk_bytes - size_bytes);
            data[index] = padded_chunk_.get();
        }
    }
    for (uint32_t index = 0; index < shape.parity_chunks; index++) {
        parity[index] = parity_out_.get() + index * chunk_bytes;
    }
    code_.encode(sending.scheme.kind, shape, chunk_bytes, data, parity);
}

void Connection::note_transmitted(uint64_t now_ns, const DataRun& run) {
    Sending& message = sending(run.message_number);
    message.last_event_ns = now_ns;
    note_told(now_ns);
    forget_held();
    if (run.kind != PacketKind::data) {
        return;
    }
    const uint32_t shift = queue_attributes_.packets_per_chunk_log2;
    const uint32_t first_chunk = run.first_packet >> shift;
    const uint32_t end_chunk = ((run.first_packet + run.packet_count - 1) >> shift) + 1;
    const LoggedRange range{run.message_number, now_ns, first_chunk, end_chunk - first_chunk};
    if (send_policy(run.scheme.kind).repeats_by_timer()) {
        (void)sent_.push(range);  // there is room, or nothing would have been sent
    } else {
        if (recent_.full()) {
            forget_oldest_recent();
        }
        (void)recent_.push(range);
        bitmap_set(message.recent, first_chunk, end_chunk);
    }
}

void Connection::forget_oldest_recent() {
    const LoggedRange range = *recent_.front();
    recent_.pop();
    if (active_sending(range.message_number) != nullptr) {
        bitmap_clear(sending(range.message_number).recent, range.first_chunk,
                     range.first_chunk + range.chunk_count);
    }
}

void Connection::expire_recent(uint64_t now_ns) {
    while (recent_.front() != nullptr &&
           recent_.front()->time_ns + round_trip_.least_ns() <= now_ns) {
        forget_oldest_recent();
    }
}

void Connection::trim_sent_log() {
    for (const LoggedRange* range = sent_.front(); range != nullptr; range = sent_.front()) {
        const Sending* message = active_sending(range->message_number);
        const uint32_t end = range->first_chunk + range->chunk_count;
        if (message != nullptr &&
            bitmap_next_clear(message->acknowledged, range->first_chunk, end) < end) {
            return;
        }
        sent_.pop();
    }
}

}  // namespace tiffin::rdma_blk::sdr
