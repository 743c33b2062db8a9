// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Creation, and the calls of a connection's owner.
#include "rdma_blk/sdr/reliability/connection.h"

#include <algorithm>
#include <new>

#include "rdma_blk/sdr/reliability/scheme_choice.h"

namespace tiffin::rdma_blk::sdr {
namespace {

bool is_known_scheme(const SchemeChoice& scheme) {
    if (!scheme.is_erasure()) {
        return (scheme.kind == SchemeKind::selective_repeat ||
                scheme.kind == SchemeKind::selective_repeat_nack) &&
               scheme.data_chunks == 0 && scheme.parity_chunks == 0;
    }
    return scheme.data_chunks >= 1 && scheme.data_chunks <= kMaxDataChunks &&
           scheme.parity_chunks >= 1 && scheme.parity_chunks <= kMaxParityChunks &&
           scheme.parity_chunks <= scheme.data_chunks;
}

}  // namespace

Result<std::unique_ptr<ReliableConnection>> reliable_connection_create(
    Context& context, const QueuePairAttributes& queue_pair_attributes,
    const ReliabilityAttributes& attributes) {
    if (!is_known_scheme(attributes.scheme) || attributes.initial_round_trip_us == 0 ||
        attributes.timeout_percent <= 100 || attributes.give_up_ns == 0 ||
        attributes.give_up_ns > kMaxGiveUpNs || attributes.initial_loss < 0 ||
        attributes.initial_loss > 1 || uint64_t{attributes.hold_us} * 1000 >= kMinTimeoutNs ||
        attributes.parity_buffer_chunks > kMaxParityChunks) {
        return Error::einval;
    }
    std::unique_ptr<QueuePair> queue_pair = TRY(context.qp_create(queue_pair_attributes));
    auto* connection = new (std::nothrow) Connection(std::move(queue_pair), attributes);
    std::unique_ptr<ReliableConnection> owner(connection);
    if (connection == nullptr) {
        return Error::enomem;
    }
    TRY(connection->allocate());
    return owner;
}

Connection::Connection(std::unique_ptr<QueuePair> queue_pair,
                       const ReliabilityAttributes& attributes)
    : queue_pair_(std::move(queue_pair)),
      queue_attributes_(queue_pair_->attributes()),
      attributes_(attributes),
      slot_mask_(uint64_t{queue_attributes_.max_messages} - 1),
      peer_round_trip_us_(attributes.initial_round_trip_us),
      round_trip_(attributes.initial_round_trip_us),
      loss_(attributes.initial_loss) {
    statistics_.round_trip_us = attributes.initial_round_trip_us;
    statistics_.loss = attributes.initial_loss;
}

Connection::~Connection() = default;

Result<void> Connection::allocate() {
    constexpr size_t kBitmaps = 5;
    const size_t count = queue_attributes_.max_messages;
    const uint32_t most_chunks = queue_attributes_.chunks_of(queue_attributes_.max_message_bytes);
    const size_t words = bitmap_words(most_chunks);
    const uint64_t chunk_bytes = queue_attributes_.chunk_bytes();
    sending_.reset(new (std::nothrow) Sending[count]);
    receiving_.reset(new (std::nothrow) Receiving[count]);
    words_.reset(new (std::nothrow) uint64_t[kBitmaps * count * words]());
    ended_.reset(new (std::nothrow) Ended[2 * count]);
    answers_.reset(new (std::nothrow) uint64_t[2 * count]);
    held_.reset(new (std::nothrow) uint64_t[count]);
    queue_pair_->set_hold_ns(uint64_t{attributes_.hold_us} * 1000);
    completions_.reset(new (std::nothrow) Completion[2 * count]);
    if (sending_ == nullptr || receiving_ == nullptr || words_ == nullptr || ended_ == nullptr ||
        answers_ == nullptr || held_ == nullptr || completions_ == nullptr) {
        return Error::enomem;
    }
    uint64_t* next = words_.get();
    for (size_t index = 0; index < count; index++) {
        for (uint64_t** bitmap :
             {&sending_[index].acknowledged, &sending_[index].wanted, &sending_[index].recent,
              &receiving_[index].to_ask, &receiving_[index].asked}) {
            *bitmap = next;
            next += words;
        }
    }
    const uint32_t log_ranges = std::clamp<uint32_t>(most_chunks, kMinRangeLog, kMaxRangeLog);
    TRY(sent_.allocate(log_ranges));
    TRY(asked_.allocate(log_ranges));
    TRY(recent_.allocate(log_ranges));
    TRY(code_.allocate());
    TRY(parity_.allocate(attributes_.parity_groups, attributes_.parity_buffer_chunks, chunk_bytes,
                         attributes_.without_bytes));
    if (!attributes_.without_bytes) {
        parity_out_.reset(new (std::nothrow) unsigned char[kMaxParityChunks * chunk_bytes]);
        padded_chunk_.reset(new (std::nothrow) unsigned char[chunk_bytes]);
        if (parity_out_ == nullptr || padded_chunk_ == nullptr) {
            return Error::enomem;
        }
    }
    return {};
}

bool Connection::is_usable(const SchemeChoice& scheme) const {
    return is_known_scheme(scheme) &&
           (uint32_t{scheme.parity_chunks} << queue_attributes_.packets_per_chunk_log2) <=
               kMaxParityPackets;
}

SchemeChoice Connection::fit_scheme(SchemeChoice scheme, uint64_t message_bytes) const {
    if (scheme.is_erasure() && message_bytes < kMinErasureBytes) {
        return {SchemeKind::selective_repeat_nack, 0, 0};
    }
    return scheme;
}

// The queue of completions has one place for each message that can be in flight.
uint32_t Connection::free_completions() const {
    return 2 * uint32_t{queue_attributes_.max_messages} - completions_count_ - active_sends_ -
           open_receives_;
}

uint32_t Connection::free_sends() const {
    if (failed_) {
        return 0;
    }
    const uint64_t numbers = oldest_send_ + queue_attributes_.max_messages - next_send_;
    return std::min(static_cast<uint32_t>(numbers), free_completions());
}

void Connection::hear(uint64_t now_ns) {
    if (now_ns >= last_heard_ns_ + kSilenceNs) {
        heard_since_ns_ = now_ns;
    }
    last_heard_ns_ = now_ns;
    told_count_ = 0;
}

uint64_t Connection::silence_ns(uint64_t now_ns) const {
    // An end that only receives, by a scheme that asks for nothing, tells nothing.
    const bool is_telling = active_sends_ > 0 || told_count_ > 0;
    const uint64_t since_ns = is_telling ? told_since_ns_ : last_heard_ns_;
    const bool is_silent = waits_for_peer() && (!is_telling || told_count_ >= kToldForSilence);
    return is_silent && now_ns > since_ns ? now_ns - since_ns : 0;
}

void Connection::note_told(uint64_t now_ns) {
    if (told_count_ == 0) {
        told_since_ns_ = now_ns;
    } else if (now_ns - told_ns_ < kToldApartNs) {
        return;
    }
    told_ns_ = now_ns;
    told_count_++;
}

// From here on the peer's silence counts.
void Connection::expect(uint64_t now_ns) {
    if (!waits_for_peer()) {
        last_heard_ns_ = now_ns;
        told_count_ = 0;
    }
}

void Connection::on_path_rate(uint16_t channel, uint64_t bytes_per_s) {
    if (channel >= kMaxChannels) {
        return;
    }
    statistics_.path_rate_bytes_per_s -= channel_rates_bytes_per_s_[channel];
    statistics_.path_rate_bytes_per_s += bytes_per_s;
    channel_rates_bytes_per_s_[channel] = bytes_per_s;
}

SchemeChoice Connection::scheme_now(uint64_t message_bytes) {
    SchemeChoice scheme = attributes_.scheme;
    if (attributes_.automatic &&
        round_trip_.smoothed_us() < attributes_.least_erasure_round_trip_us) {
        scheme = {SchemeKind::selective_repeat_nack, 0, 0};
    } else if (attributes_.automatic) {
        PathMeasurement path;
        path.chunk_bytes = queue_attributes_.chunk_bytes();
        path.round_trip_us = round_trip_.smoothed_us();
        path.chunk_loss = loss_.loss();
        path.mean_loss_run = runs_.mean_chunks(path.chunk_loss);
        path.rate_bytes_per_s = attributes_.link_rate_bytes_per_s != 0
                                    ? attributes_.link_rate_bytes_per_s
                                    : statistics_.path_rate_bytes_per_s;
        // The peer is taken to be made with the same attributes.
        path.parity_buffer_chunks =
            attributes_.parity_groups > 0 ? attributes_.parity_buffer_chunks : 0;
        scheme = choice_.choose(path, message_bytes);
    }
    return fit_scheme(scheme, message_bytes);
}

Result<uint64_t> Connection::send_post(uint64_t now_ns, const RegisteredMemory& memory,
                                       uint32_t user_immediate) {
    if (failed_ || !queue_pair_->has_send_slot() || !has_room_for_completion()) {
        return failed_ ? Error::enodev : Error::eagain;  // before anything is computed
    }
    return send_post(now_ns, memory, user_immediate, scheme_now(memory.size_bytes()));
}

Result<uint64_t> Connection::send_post(uint64_t now_ns, const RegisteredMemory& memory,
                                       uint32_t user_immediate, SchemeChoice scheme) {
    if (failed_) {
        return Error::enodev;
    }
    if (!is_usable(scheme)) {
        return Error::einval;
    }
    if (!has_room_for_completion()) {
        return Error::eagain;
    }
    scheme = fit_scheme(scheme, memory.size_bytes());
    if (scheme.is_erasure() && memory.gather() != nullptr) {
        return Error::einval;
    }
    const uint64_t number =
        TRY(queue_pair_->send_stream_start(memory.size_bytes(), user_immediate, scheme));
    expect(now_ns);
    Sending& started = sending(number);
    uint64_t* const acknowledged = started.acknowledged;
    uint64_t* const wanted = started.wanted;
    uint64_t* const recent = started.recent;
    started = {};
    started.acknowledged = acknowledged;
    started.wanted = wanted;
    started.recent = recent;
    started.active = true;
    started.message_number = number;
    started.memory = memory;
    started.scheme = scheme;
    started.user_immediate = user_immediate;
    started.chunk_count = queue_attributes_.chunks_of(memory.size_bytes());
    started.last_event_ns = now_ns;
    active_sends_++;
    next_send_ = number + 1;
    return number;
}

Result<uint64_t> Connection::recv_post(uint64_t now_ns, const RegisteredMemory& memory) {
    if (failed_) {
        return Error::enodev;
    }
    if (!has_room_for_completion()) {
        return Error::eagain;
    }
    const uint64_t number = TRY(queue_pair_->recv_post(memory));
    queue_pair_->hold_clear_to_send(now_ns);
    Receiving& opened = receiving(number);
    uint64_t* const to_ask = opened.to_ask;
    uint64_t* const asked = opened.asked;
    opened = {};
    opened.to_ask = to_ask;
    opened.asked = asked;
    opened.open = true;
    opened.message_number = number;
    open_receives_++;
    next_receive_ = number + 1;
    return number;
}

bool Connection::send_delivered(uint64_t message_number) {
    if (active_sending(message_number) == nullptr) {
        return true;
    }
    Sending& delivered = sending(message_number);
    const bool was_sent = delivered.next_chunk == delivered.chunk_count;
    complete_unacknowledged(delivered);
    trim_sent_log();
    return was_sent;
}

Result<void> Connection::recv_discard(uint64_t message_number) {
    Receiving& found = receiving(message_number);
    if (!found.open || found.message_number != message_number) {
        return Error::einval;
    }
    close_receive(found, false);
    return {};
}

const Sending* Connection::active_sending(uint64_t number) const {
    const Sending& found = sending_[number & slot_mask_];
    return found.active && found.message_number == number ? &found : nullptr;
}

void Connection::push_completion(const Completion& completion) {
    const uint32_t capacity = 2 * uint32_t{queue_attributes_.max_messages};
    completions_[(completions_first_ + completions_count_) % capacity] = completion;
    completions_count_++;
}

bool Connection::next_completion(Completion& completion) {
    if (completions_count_ == 0) {
        return false;
    }
    completion = completions_[completions_first_];
    completions_first_ = (completions_first_ + 1) % (2 * uint32_t{queue_attributes_.max_messages});
    completions_count_--;
    return true;
}

void Connection::complete_send(Sending& sending, bool ok, Error error) {
    Completion completion;
    completion.is_send = true;
    completion.message_number = sending.message_number;
    completion.ok = ok;
    completion.error = error;
    completion.message_bytes = sending.memory.size_bytes();
    completion.user_immediate = sending.user_immediate;
    queue_pair_->send_abort(sending.message_number);
    bitmap_clear(sending.acknowledged, 0, sending.chunk_count);
    bitmap_clear(sending.recent, 0, sending.chunk_count);
    forget_wanted(sending);
    sending.active = false;
    sending.memory = {};
    active_sends_--;
    while (oldest_send_ < next_send_ && !this->sending(oldest_send_).active) {
        oldest_send_++;
        oldest_since_ns_ = last_heard_ns_;
    }
    first_pass_ = std::max(first_pass_, oldest_send_);  // else the policy skips what is not active
    push_completion(completion);
}

// The memory is the owner's when this returns. Delivered receives complete; those that were given up or failed
// are told by whoever closes them.
void Connection::close_receive(Receiving& receiving, bool delivered) {
    const uint64_t number = receiving.message_number;
    const QueuePair::ReceiveSlot* slot = queue_pair_->receive_slot(number);
    const bool is_held = delivered && may_hold(receiving, *slot);
    Completion completion;
    completion.message_number = number;
    completion.ok = delivered;
    completion.message_bytes = slot->message_bytes;
    completion.user_immediate = slot->user_immediate;
    to_ask_total_ -= receiving.to_ask_count;
    set_asks_tail(receiving, false);
    bitmap_clear(receiving.to_ask, 0, slot->chunk_count);
    bitmap_clear(receiving.asked, 0, slot->chunk_count);
    parity_.remove_all(receiving.parity);
    (void)queue_pair_->recv_complete(number);  // cannot fail: it was posted
    receiving.open = false;
    open_receives_--;
    begun_receives_ -= receiving.round_trip_us == 0 ? 0 : 1;
    note_end(receiving, delivered);
    if (is_held) {
        hold_answer(receiving);
    } else {
        answer_late(number);
    }
    while (oldest_receive_ < next_receive_ && !this->receiving(oldest_receive_).open) {
        oldest_receive_++;
    }
    if (delivered) {
        push_completion(completion);
    }
}

// A receiver that gives receives up can be far ahead of its sender. What the sender cannot have sent yet is not
// written down, so that it does not take the place of what the sender may ask about: see answer_late().
void Connection::note_end(const Receiving& receiving, bool delivered) {
    if (receiving.message_number >= senders_next_ + queue_attributes_.max_messages) {
        return;
    }
    Ended& end = ended(receiving.message_number);
    end.is_known = true;
    end.is_delivered = delivered;
    end.is_queued = false;
    end.message_number = receiving.message_number;
    end.missed_chunks = receiving.missed_chunks;
    end.missed_runs = receiving.missed_runs;
    end.echo_time_us = receiving.echo_time_us;
    end.echo_arrival_ns = receiving.echo_arrival_ns;
}

void Connection::fail() { fail_with(true); }

void Connection::fail_with(bool tell_peer) {
    if (failed_) {
        return;
    }
    failed_ = true;
    must_tell_failure_ = tell_peer;
    for (uint64_t number = oldest_send_; number < next_send_; number++) {
        if (active_sending(number) != nullptr) {
            complete_send(sending(number), false, Error::etimedout);
        }
    }
    for (uint64_t number = oldest_receive_; number < next_receive_; number++) {
        Receiving& open = receiving(number);
        if (open.open && open.message_number == number) {
            Completion completion;
            completion.message_number = number;
            completion.error = Error::etimedout;
            close_receive(open, false);
            push_completion(completion);
        }
    }
    answers_count_ = 0;
}

}  // namespace tiffin::rdma_blk::sdr
