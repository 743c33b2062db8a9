// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a receiver says: that a message has ended, what it wants again, how far it is.
#include <algorithm>

#include "rdma_blk/sdr/reliability/connection.h"

namespace tiffin::rdma_blk::sdr {

// ---- Ends that data tell by the way -----------------------------------------------------------------------

// What had losses is told at once, with their number; and a sender that knows no round trip must learn it.
bool Connection::may_hold(const Receiving& receiving, const QueuePair::ReceiveSlot& slot) const {
    return attributes_.hold_us != 0 && slot.chunk_count <= kHeldChunks &&
           receiving.missed_chunks == 0 && peer_knows_round_trip_ &&
           receiving.message_number % kMeasuredMessages != 0 &&
           held_count_ < queue_attributes_.max_messages;
}

void Connection::hold_answer(const Receiving& receiving) {
    if (held_count_ == 0) {
        held_ns_ = receiving.echo_arrival_ns + uint64_t{attributes_.hold_us} * 1000;
    }
    held_[held_count_++] = receiving.message_number;
}

void Connection::release_held(uint64_t now_ns) {
    if (held_count_ == 0 || now_ns < held_ns_) {
        return;
    }
    for (uint32_t index = 0; index < held_count_; index++) {
        answer_late(held_[index]);
    }
    held_count_ = 0;
}

// What data tell: not a receive that was given up, before its sender has used all numbers that it could know then, and so
// has heard of that one.
void Connection::note_delivered_until() {
    while (delivered_until_ < oldest_receive_) {
        const Ended& end = ended(delivered_until_);
        const bool is_delivered =
            end.is_known && end.is_delivered && end.message_number == delivered_until_;
        if (!is_delivered && delivered_until_ + queue_attributes_.max_messages >= senders_next_) {
            break;
        }
        delivered_until_++;
    }
    queue_pair_->set_delivered_until(delivered_until_);
}

// Data have been sent that tell of all messages before that one.
void Connection::forget_held() {
    uint32_t kept = 0;
    for (uint32_t index = 0; index < held_count_; index++) {
        if (held_[index] >= delivered_until_) {
            held_[kept++] = held_[index];
        }
    }
    held_count_ = kept;
}

// What came with data of the other direction. Only what was sent can have been delivered.
void Connection::on_told(const DataRun& run) {
    if ((run.flags & data_flag::tells_delivered) != 0) {
        const uint64_t until =
            std::min(queue_pair_->near_next_send(run.delivered_until), first_pass_);
        for (uint64_t number = oldest_send_; number < until; number++) {
            const Sending* told = active_sending(number);
            if (told == nullptr || told->chunk_count > kHeldChunks) {
                continue;  // larger ones have an acknowledgement of their own
            }
            complete_unacknowledged(sending(number));
        }
        trim_sent_log();
    }
    if ((run.flags & data_flag::tells_posted) != 0) {
        queue_pair_->on_posted_until(run.posted_until);
    }
}

// The peer has it, but has not said what it missed: what was repeated stands for that.
void Connection::complete_unacknowledged(Sending& delivered) {
    loss_.add(std::min<double>(delivered.repeated_count, delivered.chunk_count),
              delivered.chunk_count);
    statistics_.loss = loss_.loss();
    complete_send(delivered, true, Error::eio);
}

// ---- Answers ----------------------------------------------------------------------------------------------

bool Connection::make_answer(uint64_t now_ns, Transmit& out) {
    release_held(now_ns);
    return make_ended_answer(now_ns, out) || make_request(now_ns, out) ||
           make_progress_answer(now_ns, out);
}

bool Connection::make_ended_answer(uint64_t now_ns, Transmit& out) {
    while (answers_count_ > 0) {
        const uint64_t number = answers_[answers_first_];
        answers_first_ = (answers_first_ + 1) % (2 * uint32_t{queue_attributes_.max_messages});
        answers_count_--;
        Ended& end = ended(number);
        if (!end.is_queued || end.message_number != number) {
            continue;  // its place was taken by a later message, so its sender knows
        }
        end.is_queued = false;
        AcknowledgementBody body{};
        body.echo_time_us = end.echo_time_us;
        body.echo_delay_us = end.echo_arrival_ns == 0
                                 ? kNoEchoUs
                                 : static_cast<uint32_t>(std::min<uint64_t>(
                                       (now_ns - end.echo_arrival_ns) / 1000, kNoEchoUs));
        body.missed_chunks = end.missed_chunks;
        make_acknowledgement(
            end.is_delivered ? acknowledgement_flag::done : acknowledgement_flag::discarded, number,
            body, end.missed_runs, out);
        statistics_.acknowledgements_sent++;
        return true;
    }
    return false;
}

// Requests of one message, as many as fit; the others come with the next call.
bool Connection::make_request(uint64_t now_ns, Transmit& out) {
    for (uint64_t number = oldest_receive_; to_ask_total_ > 0 && number < next_receive_; number++) {
        Receiving& message = receiving(number);
        if (!message.open || (message.to_ask_count == 0 && !message.asks_tail)) {
            continue;
        }
        const QueuePair::ReceiveSlot& slot = *queue_pair_->receive_slot(number);
        make_control(ControlKind::repeat_request, 0, number, out);
        uint32_t gaps = 0;
        uint32_t begin = bitmap_next_set(message.to_ask, 0, slot.chunk_count);
        while (begin < slot.chunk_count && gaps < kMaxGaps) {
            const uint32_t end = bitmap_next_clear(message.to_ask, begin, slot.chunk_count);
            const uint32_t count = bitmap_clear(message.to_ask, begin, end);
            message.to_ask_count -= count;
            to_ask_total_ -= count;
            // Some may have come in the meantime; the sender is asked for the rest only.
            uint32_t first = bitmap_next_clear(slot.chunks, begin, end);
            // A gap and a tail that touch are one.
            const bool takes_tail = message.asks_tail && first < end && end >= slot.chunks_seen;
            const uint32_t until = takes_tail ? slot.chunk_count : end;
            if (first < end && add_gap({first, until - first}, out)) {
                set_asks_tail(message, message.asks_tail && !takes_tail);
                gaps++;
                statistics_.chunks_asked_for += end - first;
                if (!asked_.push({number, now_ns, first, end - first})) {
                    bitmap_clear(message.asked, first, end);  // will be asked for after a silence
                }
            }
            begin = bitmap_next_set(message.to_ask, end, slot.chunk_count);
        }
        if (message.asks_tail && message.to_ask_count == 0 && gaps < kMaxGaps) {
            set_asks_tail(message, false);
            const uint32_t tail = slot.chunks_seen;
            gaps +=
                tail < slot.chunk_count && add_gap({tail, slot.chunk_count - tail}, out) ? 1 : 0;
        }
        if (gaps > 0) {
            note_told(now_ns);
            return true;
        }
    }
    return false;
}

bool Connection::make_progress_answer(uint64_t now_ns, Transmit& out) {
    if (now_ns < next_acknowledgement_ns_) {
        return false;
    }
    next_acknowledgement_ns_ = kNoTimer;
    for (uint64_t number = oldest_receive_; number < next_receive_; number++) {
        Receiving& message = receiving(number);
        if (!message.open) {
            continue;
        }
        if (message.acknowledge_ns <= now_ns) {
            fill_acknowledgement(now_ns, message, *queue_pair_->receive_slot(number), out);
            statistics_.acknowledgements_sent++;
            next_acknowledgement_ns_ = now_ns;  // there may be more
            return true;
        }
        next_acknowledgement_ns_ = std::min(next_acknowledgement_ns_, message.acknowledge_ns);
    }
    return false;
}

// Gaps that do not fit into kMaxAcknowledgementsInARow are told by later acknowledgements, which go on where this
// one ends: so each tells something new, however many gaps there are.
void Connection::fill_acknowledgement(uint64_t now_ns, Receiving& receiving,
                                      const QueuePair::ReceiveSlot& slot, Transmit& out) {
    AcknowledgementBody body{};
    body.cumulative = bitmap_next_clear(slot.chunks, 0, slot.chunk_count);
    body.window_begin = std::max(body.cumulative, receiving.acknowledged_until);
    if (body.window_begin >= slot.chunks_seen) {
        body.window_begin = std::min(body.cumulative, slot.chunks_seen);
    }
    body.window_end = slot.chunks_seen;
    body.echo_time_us = receiving.echo_time_us;
    body.echo_delay_us = static_cast<uint32_t>((now_ns - receiving.echo_arrival_ns) / 1000);
    body.missed_chunks = receiving.missed_chunks;
    GapEntry gaps[kMaxGaps];
    size_t count = 0;
    uint32_t begin = bitmap_next_clear(slot.chunks, body.window_begin, body.window_end);
    while (begin < body.window_end) {
        if (count == kMaxGaps) {
            body.window_end = begin;
            break;
        }
        const uint32_t end = bitmap_next_set(slot.chunks, begin, body.window_end);
        gaps[count++] = {begin, end - begin};
        begin = bitmap_next_clear(slot.chunks, end, body.window_end);
    }
    make_acknowledgement(0, receiving.message_number, body, receiving.missed_runs, out);
    for (size_t index = 0; index < count; index++) {
        (void)add_gap(gaps[index], out);  // at most kMaxGaps fit
    }
    const bool is_whole = body.window_end == slot.chunks_seen;
    receiving.acknowledged_until = is_whole ? 0 : body.window_end;
    receiving.in_a_row++;
    if (is_whole || receiving.in_a_row >= kMaxAcknowledgementsInARow) {
        receiving.acknowledge_ns = kNoTimer;
        receiving.new_chunks = 0;
        receiving.in_a_row = 0;
    }
}

}  // namespace tiffin::rdma_blk::sdr
