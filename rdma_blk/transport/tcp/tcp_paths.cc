// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A TcpMemory with several links (RemoteAddress::more_links): SessionMachine decides, and this does what it says. All
// paths belong to the thread that has the lead, but those that are being made (tcp_linker.cc).
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "rdma_blk/transport/tcp/stream_info.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

// What has acknowledged a probe, and says nothing for so long, is a server that has stopped.
constexpr uint64_t kMostWordlessNs = kSecondNs;
// Where datagrams are silent for so long, the stream is probed more often: it has to be known whether that is.
constexpr uint64_t kSampledSilenceNs = kMostWordlessNs / 4;
constexpr uint64_t kDelaysOfSilence = 3;

}  // namespace

// ---- The end of a path ------------------------------------------------------------------------------------

// Without the lead: whoever has it sees the end of the stream.
void TcpMemory::abort_path(StreamPath& path) {
    if (!has_several()) {
        abort_connection();
    } else if (!path.is_broken && !path.is_joining) {
        path.is_broken = true;
        path.connection->interrupt();
        poke();
    }
}

void TcpMemory::close_path(StreamPath& path) {
    stop_requests(path);
    path.connection->close();
    path.receiving = nullptr;
    path.is_broken = false;
    path.is_output_waiting = false;
    path.is_silent = false;
    path.probe = {};
    path.probe_delay_ns = 0;
    path.ended_count++;
    finish_path_question(path, true);
    tell_user_of_links();
}

// Before the connection is closed.
void TcpMemory::note_segments(size_t index, bool was_silent, bool is_sure) {
    StreamPath& path = paths_[index];
    tcp_info info;
    // The stream of a link of rc carries too little to tell.
    const bool carries_little = user_ != nullptr && has_several();
    if (!extension_.socket_path.empty() || carries_little || !path.connection->is_open() ||
        !read_stream_info(path.connection->socket(), info)) {
        return;
    }
    const uint64_t now = host::monotonic_ns();
    if (path.segments.ended(
            now, {was_silent, is_sure, info.tcpi_bytes_acked, info.tcpi_bytes_received})) {
        host::log(host::LogLevel::warning,
                  ("remote memory: long packets seem to be lost on link " +
                   std::to_string(index + 1) + " without a word: segments of at most " +
                   std::to_string(path.segments.next_bytes(now)) + " bytes from now on")
                      .c_str());
    }
}

// The server has had the goodbye, over this link or another, and ends them all.
bool TcpMemory::is_left_at_end(size_t index) const {
    return is_closing_ && (has_said_goodbye_ || index != machine_.active());
}

std::string TcpMemory::link_text(size_t index) const {
    return "volume " + volume_name_ + ": link " + std::to_string(index + 1) + " (" +
           links_[index].text() + ")";
}

void TcpMemory::fail_path(size_t index, const std::string& why) {
    if (!is_left_at_end(index)) {
        host::log(host::LogLevel::warning, (link_text(index) + " has failed: " + why).c_str());
    }
    end_path_now(index);
}

void TcpMemory::give_path_up(size_t index, const char* why) {
    host::log(host::LogLevel::info,
              (link_text(index) + " is given up" + (is_closing_ ? ": " : ", and made anew: ") + why)
                  .c_str());
    end_path_now(index);
}

void TcpMemory::end_path_now(size_t index) {
    if (is_left_at_end(index)) {
        // Not made again either.
        close_path(paths_[index]);
        machine_.join_failed(index, host::monotonic_ns());
        return;
    }
    note_segments(index, machine_.state(index) == SessionMachine::PathState::suspect);
    close_path(paths_[index]);
    machine_.broken(index, host::monotonic_ns());
    if (lease_.is_wanted && index == machine_.active()) {
        lease_.is_sent = false;
    }
}

// The incarnation is over.
void TcpMemory::close_paths() {
    for (StreamPath& path : paths_) {
        if (!path.is_joining) {
            close_path(path);
        }
    }
    machine_.lost();
    sent_->forget();
}

// ---- What is to be done -----------------------------------------------------------------------------------

void TcpMemory::serve_paths() {
    if (state_ != ConnectionState::ready || is_broken_) {
        if (is_broken_ && state_ == ConnectionState::ready) {
            break_connection();
        }
        return;
    }
    const uint64_t now = host::monotonic_ns();
    for (size_t index = 0; index < paths_.size(); index++) {
        StreamPath& path = paths_[index];
        if (!path.is_broken && machine_.is_living(index) && path.has_request_path() &&
            std::min(machine_.next_time_ns(), path.requests->next_time_ns(now)) <= now) {
            at_ = index;
            serve_request_path();
            if (state_ != ConnectionState::ready) {
                return;
            }
        }
        if (path.is_broken) {
            fail_path(index, "its connection is broken");
        } else if (machine_.next_time_ns() <= now && machine_.is_living(index)) {
            look_for_life(index, now);
        }
        if (has_lost_datagrams(index, now) && !take_unread(index)) {
            fail_path(index, kNoDatagrams);
        }
        if (state_ != ConnectionState::ready) {
            return;
        }
        if (machine_.is_living(index)) {
            send_join(path);
        }
    }
    machine_.set_asking(
        lease_.is_wanted || is_asking_for_path() || (user_ != nullptr && user_->expects_answers()),
        now);
    if (is_late_beside_.exchange(false)) {
        machine_.doubt_active();
    }
    const size_t before = machine_.active();
    while (true) {
        const SessionMachine::Action action = machine_.next(now);
        if (action.kind == SessionMachine::Action::Kind::none) {
            break;
        }
        act(action);
        if (state_ != ConnectionState::ready) {
            return;
        }
    }
    if (!machine_.has_living()) {
        break_connection();
        return;
    }
    if (machine_.active() != before) {
        lease_.is_sent = false;  // asked for again, which does no harm
        note_who_sums_up();
        tell_user_of_links();
    }
    send_queued();
    waiters_.wake_finished();
}

void TcpMemory::act(const SessionMachine::Action& action) {
    switch (action.kind) {
        case SessionMachine::Action::Kind::connect:
            if (version_ < wire::kSeveralPathsVersion || is_closing_) {
                machine_.join_failed(action.path, host::monotonic_ns());
                break;
            }
            paths_[action.path].is_joining = true;
            link_wanted_.post();
            break;
        case SessionMachine::Action::Kind::probe:
            send_probe(action.path);
            break;
        case SessionMachine::Action::Kind::close:
            // A link that is not in use has nothing to swallow.
            note_segments(action.path,
                          machine_.counts(action.path).suspected_ns >= paths_[action.path].made_ns);
            close_path(paths_[action.path]);
            host::log(host::LogLevel::warning,
                      (link_text(action.path) + " is silent, and is given up").c_str());
            break;
        case SessionMachine::Action::Kind::leave:
        case SessionMachine::Action::Kind::remove:
            close_path(paths_[action.path]);
            break;
        case SessionMachine::Action::Kind::recover:
            if (address_.link_trial == LinkTrial::reconnect_all) {
                first_link_ = action.over;
                break_connection();
            } else {
                ask_about(action);
            }
            break;
        case SessionMachine::Action::Kind::none:
            break;
    }
}

uint32_t TcpMemory::repeated_packets(const StreamPath& path) {
    tcp_info info;
    return read_stream_info(path.connection->socket(), info) ? info.tcpi_total_retrans : 0;
}

void TcpMemory::send_probe(size_t index) {
    StreamPath& path = paths_[index];
    if (!path.probe.may_send()) {
        return;
    }
    wire::Probe probe{};
    probe.id = next_probe_id_++;
    probe.session_id = facts_.session_id;
    probe.epoch = facts_.epoch;
    probe.incarnation = facts_.incarnation;
    if (!path.probe.is_unanswered()) {
        path.probe_repeats = repeated_packets(path);
    }
    if (send_on(path, wire::MessageType::probe, probe)) {
        const MessageWriter& writer = path.connection->writer();
        path.probe.sent(probe.id, writer.added_count(), host::monotonic_ns());
        path.probe.taken(writer.sent_count(), writer.taken_bytes());
    }
}

// Whether bytes lie in the socket, or the peer's TCP has acknowledged some since this was asked last. A thread that got no
// processor for some time, or did something else, must not take its own silence for the link's. And a slow link may carry a
// request for longer than silence is borne.
void TcpMemory::look_for_life(size_t index, uint64_t now_ns) {
    StreamPath& path = paths_[index];
    int unread_bytes = 0;
    if (ioctl(path.connection->socket(), FIONREAD, &unread_bytes) == 0 && unread_bytes > 0) {
        path.heard_ns = now_ns;
        machine_.heard(index, now_ns);
        return;
    }
    tcp_info info;
    if (!read_stream_info(path.connection->socket(), info)) {
        return;
    }
    const MessageWriter& writer = path.connection->writer();
    path.probe.taken(writer.sent_count(), writer.taken_bytes());
    const bool is_probed = path.probe.is_unanswered();
    const auto acknowledged = path.probe.acknowledged(info.tcpi_bytes_acked);
    // The only path is never suspected: silence costs it a probe, and what is acknowledged counts from that on.
    if ((is_probed || has_several()) && (acknowledged == StreamProbe::Acknowledged::others ||
                                         (acknowledged == StreamProbe::Acknowledged::probes &&
                                          elapsed_ns(now_ns, path.heard_ns) < kMostWordlessNs))) {
        machine_.acknowledged(index, now_ns);
    }
}

void TcpMemory::note_stream_heard(StreamPath& path, uint64_t now_ns) {
    if (elapsed_ns(now_ns, path.stream_heard_ns) >= kMostWordlessNs) {
        path.stream_lively_ns = now_ns;
    }
    path.heard_ns = path.stream_heard_ns = now_ns;
}

// The stream of a link may live while its datagrams vanish. One that has been silent, too, says nothing of them: the server may
// have stopped. Where no other link is ready, RequestPath::has_failed() ends it later.
bool TcpMemory::has_lost_datagrams(size_t index, uint64_t now_ns) {
    const StreamPath& path = paths_[index];
    if (!machine_.is_living(index) || !path.has_request_path() || !path.requests->is_up()) {
        return false;
    }
    const uint64_t silence_ns = path.requests->silence_ns(now_ns);
    if (elapsed_ns(now_ns, path.datagram_heard_ns) >= kSampledSilenceNs) {
        machine_.want_sample(index, now_ns);
    }
    // Both wait in the same queues: where the stream's answers take seconds, those of datagrams do.
    const uint64_t unanswered_ns =
        path.probe.is_unanswered() ? elapsed_ns(now_ns, path.probe.sent_ns()) : 0;
    const uint64_t delay_ns = std::max(path.probe_delay_ns, unanswered_ns);
    const uint64_t most_silent_ns = std::max(kMostWordlessNs, kDelaysOfSilence * delay_ns);
    if (silence_ns < most_silent_ns ||
        elapsed_ns(now_ns, path.stream_heard_ns) >= kMostWordlessNs ||
        elapsed_ns(now_ns, path.stream_lively_ns) < kMostWordlessNs) {
        return false;
    }
    for (size_t other = 0; other < paths_.size(); other++) {
        if (other != index && machine_.is_ready(other)) {
            return true;
        }
    }
    return false;
}

// Whether datagrams lie unread. Like look_for_life().
bool TcpMemory::take_unread(size_t index) {
    at_ = index;
    constexpr int kMost = 64;
    int count = 0;
    while (count < kMost && receive_from_path()) {
        count++;
    }
    if (count > 0) {
        look_at_answers();
    }
    return count > 0;
}

void TcpMemory::ask_about(const SessionMachine::Action& action) {
    wire::PathRecover question{};
    question.session_id = facts_.session_id;
    question.incarnation = facts_.incarnation;
    question.path_id = paths_[action.path].id;
    sent_->ask(action.path, question);
    if (!send_on(paths_[action.over], wire::MessageType::path_recover, question,
                 sent_->entries())) {
        abort_path(paths_[action.over]);
    }
}

Result<void> TcpMemory::handle_path_recovered() {
    MessageReader& reader = stream().reader();
    recovered_ = TRY(wire::parse_path_recovered(reader.header(), reader.fixed_part()));
    if (recovered_.session_id != facts_.session_id || !has_several()) {
        return Error::eproto;
    }
    if (reader.payload_bytes() == 0) {
        return finish_path_recovered();
    }
    reader.place_payload(MutableByteSpan(outcomes_.data(), reader.payload_bytes()));
    return {};
}

Result<void> TcpMemory::finish_path_recovered() {
    const ByteSpan outcomes(outcomes_.data(), recovered_.outstanding_count);
    const auto taken = sent_->take_answer(recovered_, outcomes, at_, host::monotonic_ns());
    if (!taken.ok()) {
        abort_connection();  // nothing is known of what was sent: another incarnation settles it
        return {};
    }
    tell_user_of_links();
    // A suspect path must not go on reading from, or writing to, what is sent again. It may live all the same, and what it
    // still carries does no harm.
    const size_t lost = taken.value();
    if (lost != SessionMachine::kNoPath && machine_.is_living(lost)) {
        stop_receiving(lost);
        if (!paths_[lost].connection->writer().let_go_of_requests()) {
            give_path_up(lost, "it was silent, and another one repeats what it was sending");
        }
    }
    return {};
}

// With the lead. What comes of the answer that the path is receiving goes nowhere.
void TcpMemory::stop_receiving(size_t index) {
    if (std::exchange(paths_[index].receiving, nullptr) != nullptr) {
        paths_[index].connection->reader().skip_rest();
    }
}

// A request has its answer on one path: no stream may go on reading from its buffers. It may wait to be sent on several, once
// more on each. The answer cannot wait for that: it may be the only one, which the server gives as it is asked about a path,
// and says so behind it.
Result<void> TcpMemory::end_sending_on_streams(const wire::Response& response) {
    for (size_t index = 0; index < paths_.size(); index++) {
        if (!machine_.is_living(index) || paths_[index].connection->writer().let_go_of_request(
                                              response.slot, response.sequence)) {
            continue;
        }
        if (index == at_) {
            return Error::enomem;
        }
        give_path_up(index, "what it was sending has been answered over another one");
    }
    return {};
}

// An operation has its answer on one path: no other one may go on writing to its buffers.
void TcpMemory::end_other_receiving(const Operation& operation) {
    for (size_t index = 0; index < paths_.size(); index++) {
        if (index != at_ && machine_.is_living(index) && paths_[index].receiving == &operation) {
            stop_receiving(index);
        }
    }
}

// What the requests' path of another link sends of it would be read from its buffers, and cannot be called back: the other
// end would wait for the rest, and keep what follows.
void TcpMemory::end_other_sending(uint16_t slot) {
    for (size_t index = 0; index < paths_.size(); index++) {
        if (index != at_ && machine_.is_living(index) && paths_[index].is_request_sending(slot) &&
            !paths_[index].requests->answered_elsewhere(slot)) {
            give_path_up(index, "what it was sending has been answered over another one");
        }
    }
}

}  // namespace tiffin::rdma_blk
