// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a sender hears: acknowledgements and requests.
#include <algorithm>

#include "rdma_blk/sdr/reliability/connection.h"

namespace tiffin::rdma_blk::sdr {

void Connection::on_control(uint64_t now_ns, ByteSpan message) {
    Result<ControlView> view = parse_control(message);
    if (failed_) {
        // Whoever still says anything else has not heard. Errors are not answered: that would never end.
        must_tell_failure_ = must_tell_failure_ || (view.ok() && view->kind != ControlKind::error);
        return;
    }
    if (!view.ok()) {
        queue_pair_->on_control(now_ns, message);  // counts it
        return;
    }
    hear(now_ns);
    timeout_doublings_ = 0;
    switch (view->kind) {
        case ControlKind::acknowledgement:
            on_acknowledgement(now_ns, *view);
            break;
        case ControlKind::repeat_request:
            on_repeat_request(now_ns, *view);
            break;
        case ControlKind::error:
            fail_with(false);
            break;
        default:
            queue_pair_->on_control(now_ns, message);
            break;
    }
}

void Connection::measure_round_trip(uint64_t now_ns, const AcknowledgementBody& body) {
    if (body.echo_delay_us == kNoEchoUs) {
        return;
    }
    const uint32_t sample_us =
        static_cast<uint32_t>(now_ns / 1000) - body.echo_time_us - body.echo_delay_us;
    if (sample_us > kMaxRoundTripUs) {
        return;
    }
    const uint64_t now_us = now_ns / 1000;
    round_trip_.add(sample_us, now_us - sample_us - body.echo_delay_us, now_us);
    statistics_.round_trip_us = round_trip_.smoothed_us();
    queue_pair_->set_round_trip_us(round_trip_.careful_us());
}

void Connection::on_acknowledgement(uint64_t now_ns, const ControlView& view) {
    if (active_sending(view.message_number) == nullptr) {
        return;
    }
    const AcknowledgementBody& body = view.acknowledgement;
    measure_round_trip(now_ns, body);
    Sending& message = sending(view.message_number);
    message.last_event_ns = now_ns;
    message.probes = 0;
    if ((view.flags & acknowledgement_flag::discarded) != 0) {
        complete_send(message, false, Error::ecanceled);
        return;
    }
    const uint32_t acknowledged_before = message.acknowledged_count;
    bool is_done = (view.flags & acknowledgement_flag::done) != 0;
    if (!is_done) {
        acknowledge_range(message, 0, body.cumulative);
        uint64_t begin = body.window_begin;
        for (size_t index = 0; index < view.entry_count; index++) {
            const GapEntry gap = view.gap(index);
            acknowledge_range(message, begin, gap.first_chunk);
            begin = uint64_t{gap.first_chunk} + gap.chunk_count;
        }
        acknowledge_range(message, begin, body.window_end);
        is_done = message.acknowledged_count == message.chunk_count;
        if (message.acknowledged_count > acknowledged_before) {
            message.note_progress(now_ns);
        }
    }
    if (is_done) {
        const bool by_timer = send_policy(message.scheme.kind).repeats_by_timer();
        // What was lost at the end of a message, its receiver cannot count; chunks that were lost several times were
        // sent several times.
        const double chunks = message.chunk_count;
        const double repeated =
            message.repeated_count * (chunks / (chunks + message.repeated_count));
        const double missed =
            by_timer ? message.repeated_count : std::max<double>(repeated, body.missed_chunks);
        loss_.add(std::min(missed, chunks), chunks);
        statistics_.loss = loss_.loss();
        runs_.add(std::min<double>(body.missed_chunks, chunks), view.missed_runs);
        statistics_.mean_loss_run = runs_.mean_chunks(loss_.loss());
        complete_send(message, true, Error::eio);
    }
    trim_sent_log();
}

void Connection::acknowledge_range(Sending& sending, uint64_t begin, uint64_t end) {
    end = std::min<uint64_t>(end, sending.next_chunk);  // nobody can have what was not sent
    if (begin >= end) {
        return;
    }
    const auto first = static_cast<uint32_t>(begin);
    const auto last = static_cast<uint32_t>(end);
    sending.acknowledged_count += bitmap_set(sending.acknowledged, first, last);
    if (sending.wanted_count > 0) {
        const uint32_t count = bitmap_clear(sending.wanted, first, last);
        sending.wanted_count -= count;
        wanted_total_ -= count;
    }
}

void Connection::on_repeat_request(uint64_t now_ns, const ControlView& view) {
    if (active_sending(view.message_number) == nullptr) {
        return;
    }
    Sending& message = sending(view.message_number);
    message.last_event_ns = now_ns;
    message.probes = 0;
    expire_recent(now_ns);
    for (size_t index = 0; index < view.entry_count; index++) {
        const GapEntry gap = view.gap(index);
        want_range(message, gap.first_chunk, uint64_t{gap.first_chunk} + gap.chunk_count);
    }
}

// What was sent and is not acknowledged becomes wanted, but for what is still on its way: a receiver that is silent
// for a moment asks for everything, and cannot know what was sent since.
void Connection::want_range(Sending& sending, uint64_t begin, uint64_t end) {
    end = std::min<uint64_t>(end, sending.next_chunk);
    if (begin >= end) {
        return;
    }
    const auto last = static_cast<uint32_t>(end);
    uint32_t first = bitmap_next_clear(sending.acknowledged, static_cast<uint32_t>(begin), last);
    while (first < last) {
        const uint32_t stop = bitmap_next_set(sending.acknowledged, first, last);
        uint32_t begin_old = bitmap_next_clear(sending.recent, first, stop);
        while (begin_old < stop) {
            const uint32_t end_old = bitmap_next_set(sending.recent, begin_old, stop);
            const uint32_t count = bitmap_set(sending.wanted, begin_old, end_old);
            sending.wanted_count += count;
            wanted_total_ += count;
            begin_old = bitmap_next_clear(sending.recent, end_old, stop);
        }
        first = bitmap_next_clear(sending.acknowledged, stop, last);
    }
}

void Connection::forget_wanted(Sending& sending) {
    bitmap_clear(sending.wanted, 0, sending.chunk_count);
    wanted_total_ -= sending.wanted_count;
    sending.wanted_count = 0;
}

}  // namespace tiffin::rdma_blk::sdr
