// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A TcpMemory whose requests have a path of their own beside the stream (request_path.h): asking for it, and what
// comes from it.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "rdma_blk/transport/mapped_address.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

// Who meets answers without sleeping looks at the stream after so many.
constexpr uint32_t kLooksForStream = 64;

}  // namespace

Result<size_t> TcpMemory::offer_request_path(StreamPath& path, MutableByteSpan parameters) {
    const ClientConnection& connection = *path.connection;
    const sockaddr_in6 local = TRY(mapped_address(connection.socket(), getsockname));
    const sockaddr_in6 peer = TRY(mapped_address(connection.socket(), getpeername));
    return path.requests->offer(local, peer, connection.keys(), parameters);
}

bool TcpMemory::takes_request_path(const StreamPath& path) const {
    return path.requests != nullptr && path.requests->is_up() &&
           (!choice_ || choice_->way() == WayChoice::Way::datagrams);
}

// The server's answer is there, or there is nothing to ask for. Requests take the path when something has come
// through it; until then, and if nothing ever does, they go over the stream.
void TcpMemory::finish_request_join(StreamPath& path) {
    Result<void> result = Error::eopnotsupp;
    const PathJoinState& join = path.join;
    if (join.is_sent && join.joined.reason == 0) {
        result = path.requests->joined(ByteSpan(join.parameters, join.joined.parameter_bytes));
    }
    if (result.ok()) {
        return;
    }
    leave_request_path(path);
    host::log(choice_ ? host::LogLevel::info : host::LogLevel::warning,
              ("remote memory: no sdr (" +
               (join.joined.reason != 0 ? "reason " + std::to_string(join.joined.reason)
                                        : "error " + std::to_string(errno_value(result.error()))) +
               "): all goes over tcp" +
               (has_several() ? " on link " + std::to_string(&path - paths_.data() + 1) : ""))
                  .c_str());
    lease_changed_.notify_all();
}

// This connection goes on without it.
void TcpMemory::leave_request_path(StreamPath& path) {
    path.requests->stop();
    note_who_sums_up();
    path.join.is_wanted = false;
    path.join.is_sent = false;
    path.join.is_joined = false;
    path.join.has_failed = true;
    if (choice_) {
        choice_->datagrams_failed(host::monotonic_ns());
    }
}

// The connection ends, and its path of requests before it.
void TcpMemory::stop_requests(StreamPath& path) {
    if (path.requests == nullptr) {
        return;
    }
    path.requests->stop();
    note_who_sums_up();
    path_pending_ = 0;
    if (choice_) {
        choice_->datagrams_end();
    }
    reset_join(path);
}

// Whether requests go as datagrams, or are about to.
void TcpMemory::note_who_sums_up() {
    bool takes_datagrams = false;
    for (size_t index = 0; index < paths_.size(); index++) {
        const RequestPath* const requests = paths_[index].requests.get();
        const bool is_used = spreads() || index == machine_.active();
        takes_datagrams |= is_used && requests != nullptr && requests->is_up();
    }
    takes_datagrams_.store(
        takes_datagrams && (!choice_ || choice_->settled() == WayChoice::Way::datagrams),
        std::memory_order_relaxed);
}

// When one of them has something to do although nothing came; ~0: never.
uint64_t TcpMemory::next_request_path_ns(uint64_t now_ns) const {
    uint64_t next_ns = ~uint64_t{0};
    for (size_t index = 0; makes_requests() && index < paths_.size(); index++) {
        if (machine_.is_living(index) && paths_[index].has_request_path()) {
            next_ns = std::min(next_ns, paths_[index].requests->next_time_ns(now_ns));
        }
    }
    return next_ns;
}

// Sleeps until something came, on a stream or a path of requests, and looks at it.
void TcpMemory::receive_from_all() {
    const bool has_output = !stream().writer().empty();
    const bool watches_all = has_output || spreads() || (has_several() && must_watch_all());
    if (!watches_all && looks_ % kLooksForStream != 0 && meets_answer()) {
        looks_++;
        look_at_answers();
        return;
    }
    looks_ = 1;
    const uint64_t now = host::monotonic_ns();
    uint64_t next = std::min(next_request_path_ns(now), now + kLongestPathSleepNs);
    next = has_several() ? std::min(next, machine_.next_time_ns()) : next;
    // A link may come meanwhile.
    next = spreads() ? std::min(next, now + kMillisecondNs) : next;
    pollfd ready[kMaxPolled] = {};
    const size_t count = fill_poll(ready, true);
    pollfd& stream_ready = ready[at_ * polled_per_path()];
    stream_ready.events = static_cast<short>(POLLIN | (has_output ? POLLOUT : 0));
    const bool uses_all = spreads();
    statistics_.system_calls++;
    leave();
    if (!uses_all || !busy_poll_.meets([&] { return poll(ready, count, 0) > 0; })) {
        const uint64_t begin = uses_all ? host::monotonic_ns() : now;
        const timespec sleep{0, static_cast<long>(next > begin ? next - begin : 0)};
        (void)ppoll(ready, count, &sleep, nullptr);
        busy_poll_.slept();
    }
    mutex_.lock();
    if (has_several()) {
        if (state_ == ConnectionState::ready) {
            look_at_paths(ready);
        }
        return;
    }
    if (has_output && state_ == ConnectionState::ready) {
        flush_output(paths_[at_]);
    }
    if (is_broken_ || (stream_ready.revents & ~POLLOUT) != 0) {
        handle_received(receive_once(MSG_DONTWAIT));
    }
    serve_request_path();
}

// Whether something comes on the path before it is time to sleep.
bool TcpMemory::meets_answer() {
    leave();
    const bool meets = busy_poll_.meets([this] {
        Locked lock(*this);
        // Another thread may have ended the connection.
        return is_broken_ || state_ != ConnectionState::ready || receive_from_path();
    });
    mutex_.lock();
    return meets;
}

bool TcpMemory::receive_from_path() {
    const uint64_t now = host::monotonic_ns();
    const bool has_come = paths_[at_].requests->receive(now);
    receive_calls_ += has_come ? 1 : 0;
    if (has_come && has_several()) {
        paths_[at_].heard_ns = paths_[at_].datagram_heard_ns = now;
        machine_.heard(at_, now);
    }
    return has_come;
}

void TcpMemory::serve_request_path() {
    if (state_ == ConnectionState::ready && !is_broken_ && paths_[at_].has_request_path()) {
        receive_from_path();
        look_at_answers();
    }
}

void TcpMemory::look_at_answers() {
    if (state_ != ConnectionState::ready || !paths_[at_].has_request_path()) {
        return;
    }
    if (is_broken_) {
        break_connection();
        return;
    }
    RequestPath& path = *paths_[at_].requests;
    PathJoinState& join = paths_[at_].join;
    const bool was_up = path.is_up();
    const auto handled = handle_path_answers();
    if (!handled.ok()) {
        end_path();
    } else if (path.has_failed() && path.is_up() && is_request_path_resting()) {
        leave_request_path(paths_[at_]);  // nothing of it is missed
    } else if (path.has_failed() && path.is_up()) {
        if (choice_) {
            choice_->datagrams_failed(host::monotonic_ns());
        }
        if (!has_several()) {
            host::log(host::LogLevel::warning,
                      "remote memory: no datagrams come through any more; reconnecting");
        }
        end_path(kNoDatagrams);
    } else if (path.has_failed()) {
        join.joined.reason = 0;
        join.is_sent = false;
        finish_request_join(paths_[at_]);
    } else if (path.is_up() && !was_up) {
        join.is_wanted = false;
        join.is_joined = true;
        if (choice_) {
            choice_->datagrams_begin();
        }
        note_who_sums_up();
        lease_changed_.notify_all();
        set_state(state_);
    }
    if (is_broken_) {
        break_connection();
        return;
    }
    send_queued();
    path.transmit(host::monotonic_ns());
    waiters_.wake_finished();
}

Result<void> TcpMemory::handle_path_answers() {
    RequestPath::Answer answer;
    while (TRY(paths_[at_].requests->next_answer(answer))) {
        TRY(handle_path_answer(answer));
    }
    return {};
}

Result<void> TcpMemory::handle_path_answer(const RequestPath::Answer& answer) {
    if (answer.response.session_id != facts_.session_id ||
        answer.response.incarnation != facts_.incarnation) {
        return Error::eproto;
    }
    Operation* const operation = TRY(slots_->find(answer.response));
    paths_[at_].received_bytes +=
        sizeof(wire::MessageHeader) + sizeof(answer.response) + answer.payload.size();
    if (operation == nullptr) {
        return {};  // an answer that came twice
    }
    if (operation == paths_[at_].receiving) {
        return Error::eproto;  // its data are just being received from the stream
    }
    if (has_several()) {
        end_other_receiving(*operation);
        TRY(end_sending_on_streams(answer.response));
    } else if (notes_[answer.response.slot].message > stream().writer().sent_count()) {
        return Error::eproto;  // its request is still on its way into the stream
    }
    if ((answer.response.flags & wire::response_flag::has_checksum) != 0 &&
        host::crc32c(0, answer.payload.data(), answer.payload.size()) !=
            answer.response.payload_checksum) {
        return Error::eproto;
    }
    size_t done = 0;
    for (size_t index = 0; index < operation->buffer_count && done < answer.payload.size();
         index++) {
        const vfs::IoVector& piece = operation->buffers[index];
        const size_t size = std::min<size_t>(piece.size_bytes, answer.payload.size() - done);
        std::memcpy(piece.data, answer.payload.data() + done, size);
        done += size;
    }
    finish_operation(*operation, answer.response);
    return {};
}

}  // namespace tiffin::rdma_blk
