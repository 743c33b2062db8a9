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

namespace tiffin::rdma_blk {
namespace {

// Who meets answers without sleeping looks at the stream after so many.
constexpr uint32_t kLooksForStream = 64;

}  // namespace

Result<size_t> TcpMemory::offer_request_path(MutableByteSpan parameters) {
    const sockaddr_in6 local = TRY(mapped_address(stream().socket(), getsockname));
    const sockaddr_in6 peer = TRY(mapped_address(stream().socket(), getpeername));
    return extension_.requests->offer(local, peer, stream().keys(), parameters);
}

bool TcpMemory::takes_request_path() const {
    return extension_.requests != nullptr && extension_.requests->is_up() &&
           (!choice_ || choice_->way() == WayChoice::Way::datagrams);
}

// The server's answer is there, or there is nothing to ask for. Requests take the path when something has come
// through it; until then, and if nothing ever does, they go over the stream.
void TcpMemory::finish_request_join() {
    Result<void> result = Error::eopnotsupp;
    if (join_.is_sent && join_.joined.reason == 0) {
        result =
            extension_.requests->joined(ByteSpan(join_.parameters, join_.joined.parameter_bytes));
    }
    if (result.ok()) {
        return;
    }
    leave_request_path();
    host::log(choice_ ? host::LogLevel::info : host::LogLevel::warning,
              ("remote memory: no sdr (" +
               (join_.joined.reason != 0 ? "reason " + std::to_string(join_.joined.reason)
                                         : "error " + std::to_string(errno_value(result.error()))) +
               "): all goes over tcp")
                  .c_str());
    lease_changed_.notify_all();
}

// This connection goes on without it.
void TcpMemory::leave_request_path() {
    extension_.requests->stop();
    join_.is_wanted = false;
    join_.is_sent = false;
    join_.is_joined = false;
    join_.has_failed = true;
    if (choice_) {
        choice_->datagrams_failed(host::monotonic_ns());
    }
}

// Sleeps until something came on one of the two, and looks at it.
void TcpMemory::receive_from_both() {
    const bool has_output = !stream().writer().empty();
    if (!has_output && looks_ % kLooksForStream != 0 && meets_answer()) {
        looks_++;
        look_at_answers();
        return;
    }
    looks_ = 1;
    const uint64_t now = host::monotonic_ns();
    const uint64_t next =
        std::min(extension_.requests->next_time_ns(now), now + kLongestPathSleepNs);
    pollfd ready[2] = {
        {extension_.requests->socket(), POLLIN, 0},
        {stream().socket(), static_cast<short>(POLLIN | (has_output ? POLLOUT : 0)), 0}};
    const timespec sleep{0, static_cast<long>(next > now ? next - now : 0)};
    statistics_.system_calls++;
    leave();
    (void)ppoll(ready, 2, &sleep, nullptr);
    busy_poll_.slept();
    mutex_.lock();
    if (has_output && state_ == ConnectionState::ready) {
        flush_output(paths_[at_]);
    }
    if (is_broken_ || (ready[1].revents & ~POLLOUT) != 0) {
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
    const bool has_come = extension_.requests->receive(host::monotonic_ns());
    receive_calls_ += has_come ? 1 : 0;
    return has_come;
}

void TcpMemory::serve_request_path() {
    if (state_ == ConnectionState::ready && !is_broken_ && has_request_path()) {
        receive_from_path();
        look_at_answers();
    }
}

void TcpMemory::look_at_answers() {
    if (state_ != ConnectionState::ready || !has_request_path()) {
        return;
    }
    if (is_broken_) {
        break_connection();
        return;
    }
    RequestPath& path = *extension_.requests;
    const bool was_up = path.is_up();
    const auto handled = handle_path_answers();
    if (!handled.ok()) {
        abort_connection();
    } else if (path.has_failed() && path.is_up() && is_request_path_resting()) {
        leave_request_path();  // nothing of it is missed
    } else if (path.has_failed() && path.is_up()) {
        host::log(host::LogLevel::warning,
                  "remote memory: no datagrams come through any more; reconnecting");
        if (choice_) {
            choice_->datagrams_failed(host::monotonic_ns());
        }
        abort_connection();
    } else if (path.has_failed()) {
        join_.joined.reason = 0;
        join_.is_sent = false;
        finish_request_join();
    } else if (path.is_up() && !was_up) {
        join_.is_wanted = false;
        join_.is_joined = true;
        if (choice_) {
            choice_->datagrams_begin();
        }
        takes_datagrams_.store(!choice_ || choice_->settled() == WayChoice::Way::datagrams,
                               std::memory_order_relaxed);
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
    while (TRY(extension_.requests->next_answer(answer))) {
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
    if (operation == nullptr) {
        return {};  // an answer that came twice
    }
    if (operation == paths_[at_].receiving) {
        return Error::eproto;  // its data are just being received from the stream
    }
    if (notes_[answer.response.slot].message > stream().writer().sent_count()) {
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
