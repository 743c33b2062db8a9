// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The connection of a TcpMemory: what goes out, what comes in, and its end.
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "rdma_blk/transport/pieces_checksum.h"
#include "rdma_blk/transport/tcp/operation_word.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"

namespace tiffin::rdma_blk {
namespace {

// Some microseconds; answers that came together are handed back together.
constexpr uint32_t kSummedUpWithLockBytes = 32 << 10;

}  // namespace

// ---- Sending ------------------------------------------------------------------------------------------

// There is room for every slot's request in the writer: a slot has one request on its way.
void TcpMemory::send_queued() {
    if (state_ != ConnectionState::ready || is_broken_) {
        return;
    }
    wire::Request request;
    uint32_t used = 0;
    const uint64_t now_ns = spreads() ? host::monotonic_ns() : 0;
    while (const uint32_t links = links_with_room(now_ns)) {
        const bool may_send = !has_several() || sent_->may_send_next(links);
        Operation* const operation = may_send ? slots_->take_next(request) : nullptr;
        if (operation == nullptr) {
            break;
        }
        const size_t index = sent_->choose(links, request, request.length_bytes, now_ns);
        send_request(request, *operation, index);
        used |= 1U << index;
    }
    send_round_ += used != 0 ? 1 : 0;
    for (size_t index = 0; used >> index != 0; index++) {
        if ((used >> index & 1) != 0 && !paths_[index].connection->writer().empty()) {
            flush_output(paths_[index]);
        }
    }
}

// Those that the next request may take, a bit for each.
uint32_t TcpMemory::links_with_room(uint64_t now_ns) const {
    const auto has_room = [&](const StreamPath& path) REQUIRES(mutex_) {
        return !path.is_broken && (takes_request_path(path) ? path.requests->has_room()
                                                            : !path.connection->writer().full());
    };
    if (!spreads()) {
        const size_t active = machine_.active();
        const bool is_ready = !has_several() || machine_.is_ready(active);
        return is_ready && has_room(paths_[active]) ? 1U << active : 0;
    }
    uint32_t links = 0;
    for (size_t index = 0; index < paths_.size(); index++) {
        links |= machine_.may_take(index, now_ns) && has_room(paths_[index]) ? 1U << index : 0;
    }
    return links;
}

void TcpMemory::send_request(wire::Request& request, Operation& operation, size_t index) {
    request.session_id = facts_.session_id;
    request.epoch = facts_.epoch;
    request.incarnation = facts_.incarnation;
    StreamPath& path = paths_[index];
    MessageWriter& writer = path.connection->writer();
    if (has_several()) {
        sent_->sent(request.slot, index, request.length_bytes, host::monotonic_ns());
    }
    const bool takes_path = takes_request_path(path);
    const bool carries = (request.flags & wire::request_flag::reply_only) == 0;
    ByteSpan ranges;
    size_t buffer_count = 0;
    if (carries && operation.kind == OperationKind::write) {
        if (!takes_path) {
            if (!is_checksum(word_of(operation))) {  // it was submitted when there was a path
                set_word(operation, checksum_word(operation));
            }
            request.payload_checksum = static_cast<uint32_t>(word_of(operation));
            request.flags |= wire::request_flag::has_checksum;
        }
        buffer_count = operation.buffer_count;
    } else if (carries && operation.kind == OperationKind::flush) {
        static_assert(sizeof(ByteRange) == sizeof(wire::FlushRange));
        ranges = ByteSpan(reinterpret_cast<const unsigned char*>(operation.ranges),
                          operation.range_count * sizeof(ByteRange));
        request.payload_checksum = host::crc32c(0, ranges.data(), ranges.size());
        request.flags |= wire::request_flag::has_checksum;
    }
    const SlotNote& before = notes_[request.slot];
    const bool is_repeated = before.sequence == request.sequence;
    // What the link is sending of it since it was sent the first time arrives, and counts for this time.
    const bool is_on_its_way =
        is_repeated && takes_path && carries && path.is_request_sending(request.slot);
    if (is_on_its_way) {
        // Nothing is sent.
    } else if (takes_path) {
        path.requests->send(request, ranges, operation.buffers, buffer_count);
    } else if (buffer_count > 0) {
        writer.add(wire::MessageType::request, request, operation.buffers, buffer_count);
    } else {
        writer.add(wire::MessageType::request, request, ranges);
    }
    const uint64_t bytes = is_on_its_way
                               ? 0
                               : sizeof(wire::MessageHeader) + sizeof(request) +
                                     (buffer_count > 0 ? request.length_bytes : ranges.size());
    path.sent_bytes += bytes;
    paths_[before.stream].resent_bytes += is_repeated ? bytes : 0;
    notes_[request.slot] =
        SlotNote{takes_path ? writer.sent_count() : writer.added_count(), send_round_ + 1};
    notes_[request.slot].stream = static_cast<uint8_t>(index);
    notes_[request.slot].sequence = request.sequence;
    notes_[request.slot].is_repeated = is_repeated;
    note_way(request, operation, takes_path);
}

void TcpMemory::flush_output(StreamPath& path) {
    if (is_broken_ || path.is_broken || !path.connection->is_open()) {
        return;
    }
    MessageWriter& writer = path.connection->writer();
    const uint64_t calls_before = writer.system_calls();
    auto sent = writer.send(path.connection->socket(), MSG_DONTWAIT);
    statistics_.system_calls += writer.system_calls() - calls_before;
    if (!sent.ok()) {
        abort_path(path);
        return;
    }
    // A leader that is in recv() already does not see that there is something left to send.
    if (!*sent && !path.is_output_waiting) {
        poke();
    }
    path.is_output_waiting = !*sent;
}

template <typename T>
bool TcpMemory::send_on(StreamPath& path, wire::MessageType type, const T& message,
                        ByteSpan payload) {
    // One that is closed may be the active one as long as none is ready and one is only suspect.
    if (is_broken_ || path.is_broken || !path.connection->is_open() ||
        path.connection->writer().full()) {
        return false;
    }
    // What it is made of may be used for the next one while this one waits for room in the socket.
    if (!path.connection->writer().add_copy(type, message, payload)) {
        abort_path(path);
        return false;
    }
    flush_output(path);
    return true;
}

template bool TcpMemory::send_on(StreamPath&, wire::MessageType, const wire::LeaseRequest&,
                                 ByteSpan);
template bool TcpMemory::send_on(StreamPath&, wire::MessageType, const wire::SessionClose&,
                                 ByteSpan);
template bool TcpMemory::send_on(StreamPath&, wire::MessageType, const wire::Probe&, ByteSpan);
template bool TcpMemory::send_on(StreamPath&, wire::MessageType, const wire::Notice&, ByteSpan);
template bool TcpMemory::send_on(StreamPath&, wire::MessageType, const wire::PathJoin&, ByteSpan);
template bool TcpMemory::send_on(StreamPath&, wire::MessageType, const wire::PathRecover&,
                                 ByteSpan);

// ---- Receiving ------------------------------------------------------------------------------------------

Result<size_t> TcpMemory::receive_once(int flags) {
    statistics_.system_calls++;
    const int socket = stream().socket();
    leave();
    auto received = stream().reader().receive(socket, flags);
    mutex_.lock();
    return received;
}

// Sleeps for as long as the socket's time-out if it has to.
Result<size_t> TcpMemory::receive_patiently() {
    statistics_.system_calls++;
    const int socket = stream().socket();
    leave();
    MessageReader& reader = stream().reader();
    size_t bytes = 0;
    Error error = Error::eagain;
    const auto receive = [&](int flags) {
        auto received = reader.receive(socket, flags);
        bytes = received.ok() ? *received : 0;
        error = received.ok() ? Error::eagain : received.error();
        return bytes > 0 || error != Error::eagain;
    };
    if (!busy_poll_.meets([&] { return receive(MSG_DONTWAIT); })) {
        receive(0);
        busy_poll_.slept();
    }
    mutex_.lock();
    return bytes > 0 ? Result<size_t>(bytes) : Result<size_t>(error);
}

void TcpMemory::handle_received(const Result<size_t>& received) {
    if (received.ok()) {
        receive_calls_++;
        statistics_.copied_bytes = stream().reader().copied_bytes();
        paths_[at_].received_bytes += received.value();
        if (has_several()) {
            note_stream_heard(paths_[at_], host::monotonic_ns());
            machine_.heard(at_, paths_[at_].heard_ns);
        }
        if (!handle_messages().ok()) {
            end_path();
        }
    } else if (received.error() != Error::eagain) {
        has_several() ? fail_path(at_, received.error() == Error::enodev
                                           ? "the server has closed the connection"
                                           : std::strerror(errno_value(received.error())))
                      : void(is_broken_ = true);
    }
    if (is_broken_ && state_ == ConnectionState::ready) {
        break_connection();
    }
}

Result<void> TcpMemory::handle_messages() {
    while (state_ == ConnectionState::ready && !is_broken_ && stream().is_open()) {
        switch (TRY(stream().reader().next())) {
            case MessageReader::Event::need_bytes:
                // What has completed made room for what waits.
                send_queued();
                waiters_.wake_finished();
                return {};
            case MessageReader::Event::message:
                TRY(handle_message());
                break;
            case MessageReader::Event::payload:
                TRY(handle_payload());
                break;
        }
    }
    return {};
}

Result<void> TcpMemory::handle_message() {
    MessageReader& reader = stream().reader();
    switch (reader.type()) {
        case wire::MessageType::response:
            return handle_response();
        case wire::MessageType::probe:
            return handle_probe();
        case wire::MessageType::probe_reply:
            return handle_probe_reply();
        case wire::MessageType::path_recovered:
            return handle_path_recovered();
        case wire::MessageType::notice:
            return handle_notice();
        case wire::MessageType::lease_reply:
            if (has_several() && (!lease_.is_wanted || lease_.is_answered)) {
                return {};  // it was asked for on two paths
            }
            if (!lease_.is_wanted || (!lease_.is_sent && !has_several())) {
                return Error::eproto;
            }
            lease_.reply = TRY(wire::parse_lease_reply(reader.header(), reader.fixed_part()));
            lease_.is_answered = true;
            if (lease_.reply.reason == 0) {
                facts_.is_writer = true;
                facts_.epoch = lease_.reply.epoch;
                note_inherited((lease_.reply.flags & wire::lease_flag::inherits_unflushed) != 0);
                set_state(state_);
            }
            lease_changed_.notify_all();
            return {};
        case wire::MessageType::path_joined:
            return handle_path_joined();
        case wire::MessageType::session_closed:
            is_closed_by_server_ = true;
            return {};
        default:
            return Error::eproto;
    }
}

Result<void> TcpMemory::handle_response() {
    MessageReader& reader = stream().reader();
    StreamPath& path = paths_[at_];
    wire::Response& response = path.response;
    response = TRY(wire::parse_response(reader.header(), reader.fixed_part()));
    if (response.session_id != facts_.session_id || response.incarnation != facts_.incarnation) {
        return Error::eproto;
    }
    path.receiving = TRY(slots_->find(response));
    if (path.receiving == nullptr) {  // an answer that came twice
        if (reader.payload_bytes() > 0) {
            reader.skip_payload();
        }
        return {};
    }
    if (has_several()) {
        end_other_receiving(*path.receiving);
        TRY(end_sending_on_streams(response));
    } else if (notes_[response.slot].message > stream().writer().sent_count()) {
        return Error::eproto;  // it would give back a buffer that is still read
    }
    if (reader.payload_bytes() > 0) {
        reader.place_payload(path.receiving->buffers, path.receiving->buffer_count);
        return {};
    }
    finish_operation(*std::exchange(path.receiving, nullptr), response);
    return {};
}

Result<void> TcpMemory::handle_payload() {
    if ((extension_.one_sided != nullptr || makes_requests()) &&
        stream().reader().type() == wire::MessageType::path_joined) {
        finish_join();
        return {};
    }
    if (paths_[at_].question.is_receiving) {
        finish_path_question(paths_[at_], false);
        return {};
    }
    if (stream().reader().type() == wire::MessageType::path_recovered) {
        return finish_path_recovered();
    }
    StreamPath& path = paths_[at_];
    if (path.receiving == nullptr) {
        return {};
    }
    Operation& operation = *std::exchange(path.receiving, nullptr);
    if ((path.response.flags & wire::response_flag::has_checksum) != 0 &&
        sum_up(operation) != path.response.payload_checksum) {
        host::log(host::LogLevel::warning,
                  "remote memory: the data of an answer were damaged on their way; reconnecting");
        return Error::eproto;
    }
    finish_operation(operation, path.response);
    return {};
}

// The checksum of what was received. Where that takes long, others have the lock meanwhile: with the lead nobody else
// ends the connection, and nothing completes the operation.
uint32_t TcpMemory::sum_up(const Operation& operation) {
    if (paths_[at_].response.payload_bytes <= kSummedUpWithLockBytes) {
        return pieces_checksum(operation.buffers, operation.buffer_count);
    }
    leave();
    const uint32_t checksum = pieces_checksum(operation.buffers, operation.buffer_count);
    mutex_.lock();
    return checksum;
}

void TcpMemory::finish_operation(Operation& operation, const wire::Response& response) {
    if (makes_requests()) {
        RequestPath* const path = paths_[at_].requests.get();
        const bool is_kept = path != nullptr && notes_[response.slot].is_repeated &&
                             path->answered_elsewhere(response.slot);
        if (path != nullptr && !is_kept) {
            path->answered(response.slot);
        }
        end_other_sending(response.slot);
        note_answer(notes_[response.slot], operation);
    }
    const bool is_executed = response.outcome == static_cast<uint8_t>(Outcome::executed);
    switch (operation.kind) {
        case OperationKind::read:
            statistics_.bytes_read += response.payload_bytes;
            break;
        case OperationKind::write:
            for (size_t i = 0; i < operation.buffer_count; i++) {
                statistics_.bytes_written += is_executed ? operation.buffers[i].size_bytes : 0;
            }
            [[fallthrough]];
        case OperationKind::compare_swap:
        case OperationKind::fetch_add:
            change_count_ += is_executed ? 1 : 0;
            break;
        case OperationKind::flush:
            if (is_executed) {
                flushed_count_ = std::max(flushed_count_, word_of(operation));
                facts_.content_incarnation = std::max(facts_.content_incarnation, response.value);
            }
            break;
    }
    const uint64_t round = notes_[response.slot].round;
    if (round > counted_round_) {
        statistics_.round_trips++;
        counted_round_ = send_round_;
    }
    sent_->answered(response.slot, at_, paths_[at_].heard_ns);
    slots_->finish(response);
}

Result<void> TcpMemory::handle_probe() {
    MessageReader& reader = stream().reader();
    wire::Probe probe = TRY(wire::parse_probe(reader.header(), reader.fixed_part()));
    probe.session_id = facts_.session_id;
    probe.epoch = facts_.epoch;
    probe.incarnation = facts_.incarnation;
    probe.content_incarnation = facts_.content_incarnation;
    send_on(paths_[at_], wire::MessageType::probe_reply, probe);
    return {};
}

Result<void> TcpMemory::handle_probe_reply() {
    MessageReader& reader = stream().reader();
    const auto reply = TRY(wire::parse_probe(reader.header(), reader.fixed_part()));
    facts_.content_incarnation = std::max(facts_.content_incarnation, reply.content_incarnation);
    StreamPath& path = paths_[at_];
    const uint64_t sent_ns = path.probe.sent_ns();
    if (path.probe.answered(reply.id)) {
        const uint64_t now_ns = host::monotonic_ns();
        path.probe_delay_ns = now_ns - sent_ns;
        machine_.measured(at_, path.probe_delay_ns, now_ns,
                          repeated_packets(path) != path.probe_repeats);
    }
    return {};
}

Result<void> TcpMemory::handle_notice() {
    MessageReader& reader = stream().reader();
    const auto notice = TRY(wire::parse_notice(reader.header(), reader.fixed_part()));
    switch (static_cast<wire::NoticeReason>(notice.reason)) {
        case wire::NoticeReason::stopping:
            // The connection ends soon, and another server process may follow. What that shall have must not change any more
            // without this server's knowing.
            if (extension_.one_sided != nullptr &&
                extension_.one_sided->transport() == wire::PathTransport::shm) {
                extension_.one_sided->stop();
                // What is on its way, too, would open it again: it is not what was asked for any more.
                paths_[at_].join.number++;
                send_control(wire::MessageType::notice, notice);
            }
            break;
        case wire::NoticeReason::fenced:
            end_session(ConnectionState::fenced, Error::estale);
            break;
        case wire::NoticeReason::resized:
            if (notice.data_bytes > geometry_.data_bytes) {
                std::atomic_ref<uint64_t>(geometry_.data_bytes).store(notice.data_bytes);
                if (extension_.one_sided != nullptr) {
                    extension_.one_sided->resized(notice.data_bytes);
                }
            }
            break;
        case wire::NoticeReason::deleted:
            end_session(ConnectionState::memory_lost, Error::estale);
            break;
    }
    return {};
}

// ---- The end of a connection ---------------------------------------------------------------------------

// Without the lead: whoever has it sees the end of the stream.
void TcpMemory::abort_connection() {
    if (!is_broken_) {
        is_broken_ = true;
        for (StreamPath& path : paths_) {
            if (!path.is_joining) {
                path.connection->interrupt();
            }
        }
        poke();
    }
}

void TcpMemory::set_state(ConnectionState state) {
    state_ = state;
    if (listener_ != nullptr) {
        listener_->connection_changed(present_info());
    }
}

// With the lead: nothing of the old connection touches a buffer from here on.
void TcpMemory::break_connection() {
    const uint64_t now = host::monotonic_ns();
    if (!has_several()) {
        note_segments(0, paths_[0].is_silent);
    }
    stop_one_sided();
    close_paths();
    if (wants_several_) {
        become_several();
    }
    is_broken_ = false;
    lease_.is_sent = false;
    if (!has_got_nowhere(now)) {
        lost_ns_ = now;
    }
    attempts_ = 0;
    next_attempt_ns_ = now;
    set_state(ConnectionState::reconnecting);
    slots_->connection_lost(now);
    waiters_.wake_finished();
    poke();
}

// The last thing that happens. With the lead, or when there is no connection.
void TcpMemory::end_session(ConnectionState state, Error error) {
    stop_one_sided();
    close_paths();
    is_broken_ = false;
    set_state(state);
    slots_->connection_lost(host::monotonic_ns());
    slots_->fail_all(error);
    lease_changed_.notify_all();
    waiters_.wake_finished();
    poke();
}

}  // namespace tiffin::rdma_blk
