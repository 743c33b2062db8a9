// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Timers: what was not answered, what is silent, and when to give up.
#include <algorithm>

#include "rdma_blk/sdr/reliability/connection.h"

namespace tiffin::rdma_blk::sdr {

bool Connection::waits_for_peer() const { return active_sends_ > 0 || begun_receives_ > 0; }

uint64_t Connection::timeout_ns() const {
    const uint64_t base_ns = round_trip_.timeout_ns(attributes_.timeout_percent);
    return std::min(base_ns << timeout_doublings_, kMaxTimeoutNs);
}

uint64_t Connection::repeat_request_ns() const {
    return std::max(uint64_t{peer_round_trip_us_} * 10 * kRepeatNackPercent, kMinRepeatNackNs);
}

// What is behind the last chunk that came may not have been sent: its sender may be asleep.
uint64_t Connection::tail_request_ns() const {
    return std::max(repeat_request_ns(), kMinTimeoutNs);
}

// When a message whose receiver drives it has been silent for too long; kNoTimer: it has something to send.
uint64_t Connection::probe_time_ns(const Sending& sending) const {
    if (!sending.active || sending.wanted_count > 0 ||
        send_policy(sending.scheme.kind).repeats_by_timer()) {
        return kNoTimer;
    }
    const uint64_t base_ns = round_trip_.timeout_ns(attributes_.timeout_percent);
    const uint32_t doublings = std::min(sending.probes, kMaxTimeoutDoublings);
    return sending.last_event_ns + std::min(base_ns << doublings, kMaxTimeoutNs);
}

uint64_t Connection::sender_timer_ns() const {
    uint64_t next_ns = kNoTimer;
    if (sent_.front() != nullptr) {
        next_ns = sent_.front()->time_ns + timeout_ns();
    }
    for (uint64_t number = oldest_send_; number < first_pass_; number++) {
        next_ns = std::min(next_ns, probe_time_ns(sending_[number & slot_mask_]));
    }
    return std::min(next_ns, hopeless_ns());
}

uint64_t Connection::receiver_timer_ns() const {
    uint64_t next_ns = kNoTimer;
    if (asked_.front() != nullptr) {
        next_ns = asked_.front()->time_ns + repeat_request_ns();
    }
    // A receive of which nothing has come waits for nothing.
    const uint64_t end = begun_receives_ > 0 ? next_receive_ : oldest_receive_;
    for (uint64_t number = oldest_receive_; number < end; number++) {
        const Receiving& message = receiving_[number & slot_mask_];
        if (message.open) {
            next_ns =
                std::min({next_ns, message.silence_ns, message.judge_ns, message.acknowledge_ns});
        }
    }
    return next_ns;
}

uint64_t Connection::next_timer_ns() const {
    if (failed_) {
        return kNoTimer;
    }
    uint64_t next_ns = queue_pair_->next_timer_ns();
    next_ns = std::min({next_ns, sender_timer_ns(), receiver_timer_ns()});
    next_ns = held_count_ > 0 ? std::min(next_ns, held_ns_) : next_ns;
    if (waits_for_peer()) {
        next_ns = std::min(next_ns, last_heard_ns_ + attributes_.give_up_ns);
    }
    return next_ns;
}

// When the oldest message, which gets nowhere, is a failure, since other things are heard of the peer. Younger ones wait for
// what is repeated of older ones.
uint64_t Connection::hopeless_ns() const {
    const Sending& message = sending_[oldest_send_ & slot_mask_];
    if (active_sends_ == 0 || message.sent_count() - message.sent_at_progress < kHopelessChunks) {
        return kNoTimer;
    }
    const uint64_t since_ns = std::max(message.progress_ns, oldest_since_ns_);
    const uint64_t wait_ns = std::max(kHopelessNs, kHopelessTimeouts * timeout_ns());
    const uint64_t time_ns = std::max(since_ns, heard_since_ns_) + wait_ns;
    const bool is_heard = time_ns < last_heard_ns_ + kSilenceNs;
    return std::min(is_heard ? time_ns : kNoTimer, since_ns + 2 * attributes_.give_up_ns);
}

void Connection::on_timer(uint64_t now_ns) {
    if (failed_) {
        return;
    }
    if ((waits_for_peer() && now_ns >= last_heard_ns_ + attributes_.give_up_ns) ||
        now_ns >= hopeless_ns()) {
        fail_with(true);
        return;
    }
    queue_pair_->on_timer(now_ns);
    expire_sent(now_ns);
    expire_asked(now_ns);
    expire_recent(now_ns);
    for (uint64_t number = oldest_send_; number < first_pass_; number++) {
        if (probe_time_ns(sending(number)) <= now_ns) {
            probe(now_ns, sending(number));
        }
    }
    const uint64_t end = begun_receives_ > 0 ? next_receive_ : oldest_receive_;
    for (uint64_t number = oldest_receive_; number < end; number++) {
        Receiving& message = receiving(number);
        if (message.open && message.judge_ns <= now_ns) {
            judge_later(now_ns, *queue_pair_->receive_slot(number), message);
        }
        if (message.open && message.silence_ns <= now_ns) {
            message.silence_ns = kNoTimer;  // until something comes
            const QueuePair::ReceiveSlot& slot = *queue_pair_->receive_slot(number);
            ask_silent(now_ns, slot, message);
        }
    }
}

void Connection::expire_sent(uint64_t now_ns) {
    trim_sent_log();
    bool nothing_heard = false;
    while (sent_.front() != nullptr && sent_.front()->time_ns + timeout_ns() <= now_ns) {
        const LoggedRange range = *sent_.front();
        nothing_heard = nothing_heard || last_heard_ns_ <= range.time_ns;
        statistics_.timeouts++;
        want_range(sending(range.message_number), range.first_chunk,
                   uint64_t{range.first_chunk} + range.chunk_count);
        sent_.pop();
        trim_sent_log();
    }
    if (nothing_heard) {
        timeout_doublings_ = std::min(timeout_doublings_ + 1, kMaxTimeoutDoublings);
    }
}

void Connection::expire_asked(uint64_t now_ns) {
    while (asked_.front() != nullptr && asked_.front()->time_ns + repeat_request_ns() <= now_ns) {
        const LoggedRange range = *asked_.front();
        asked_.pop();
        Receiving& message = receiving(range.message_number);
        if (!message.open || message.message_number != range.message_number) {
            continue;
        }
        const uint32_t end = range.first_chunk + range.chunk_count;
        bitmap_clear(message.asked, range.first_chunk, end);
        const uint32_t missed_before = message.missed_chunks;
        const uint32_t runs_before = message.missed_runs;
        const uint64_t failed_before = statistics_.groups_failed;
        ask(range.first_chunk, end, *queue_pair_->receive_slot(range.message_number), message);
        message.missed_chunks = missed_before;  // each counts once
        message.missed_runs = runs_before;
        statistics_.groups_failed = failed_before;
    }
}

// The first chunk that is not acknowledged goes again, and demands an answer.
void Connection::probe(uint64_t now_ns, Sending& sending) {
    const uint32_t chunk = bitmap_next_clear(sending.acknowledged, 0, sending.chunk_count);
    sending.last_event_ns = now_ns;
    sending.probes++;
    statistics_.probes++;
    queue_pair_->set_data_flags(sending.message_number, data_flag::acknowledge_now);
    want_range(sending, chunk, chunk + uint64_t{1});
}

}  // namespace tiffin::rdma_blk::sdr
