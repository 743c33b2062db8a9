// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The thread that leads a TcpMemory with several links looks for what has come over any of them, and sleeps until something does.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

// Another thread may submit while the leader sleeps, so it is not known for longer when something will be due. The kernel makes
// one or two ticks of it where the leader sleeps in recvmsg(), see set_up().
constexpr uint64_t kLongestSleepNs = kMillisecondNs;
// While the active path has an answer whenever it is looked at, the others are looked at so often.
constexpr uint64_t kLookAtAllNs = 20 * kMillisecondNs;

}  // namespace

// recvmsg() sleeps for so long at most.
void TcpMemory::set_up(const StreamPath& path) {
    const timeval sleep{0, kLongestSleepNs / 1000};
    setsockopt(path.connection->socket(), SOL_SOCKET, SO_RCVTIMEO, &sleep, sizeof(sleep));
}

// -1 where there is nothing to wait for.
size_t TcpMemory::fill_poll(pollfd* ready, bool receives) {
    for (size_t index = 0; index < paths_.size(); index++) {
        const StreamPath& path = paths_[index];
        const auto events =
            static_cast<short>((receives ? POLLIN : 0) | (path.is_output_waiting ? POLLOUT : 0));
        const bool is_open = machine_.is_living(index) && events != 0;
        pollfd* const of_path = ready + index * polled_per_path();
        of_path[0] = {is_open ? path.connection->socket() : -1, events, 0};
        if (makes_requests()) {
            const bool is_watched = receives && is_open && path.has_request_path();
            of_path[1] = {is_watched ? path.requests->socket() : -1, POLLIN, 0};
        }
    }
    return polled_per_path() * paths_.size();
}

void TcpMemory::look_at_paths(const pollfd* ready) {
    looked_at_all_ns_ = host::monotonic_ns();
    flush_waiting(ready);
    for (size_t index = 0; index < paths_.size() && state_ == ConnectionState::ready; index++) {
        const pollfd* const of_path = ready + index * polled_per_path();
        if (of_path[0].fd < 0 || !machine_.is_living(index)) {
            continue;
        }
        if ((of_path[0].revents & ~POLLOUT) != 0) {
            at_ = index;
            was_silent_ = was_silent_ && index != machine_.active();
            handle_received(receive_once(MSG_DONTWAIT));
        }
        if (makes_requests() && of_path[1].revents != 0 && machine_.is_living(index)) {
            at_ = index;
            serve_request_path();
        }
    }
    serve_paths();
}

bool TcpMemory::has_request_path_in_use() const {
    for (size_t index = 0; makes_requests() && index < paths_.size(); index++) {
        if ((spreads() || index == machine_.active()) && paths_[index].has_request_path()) {
            return true;
        }
    }
    return false;
}

// Needs no lead: who has it may sleep, and have been asleep before the sockets were full.
void TcpMemory::flush_waiting(const pollfd* ready) {
    for (size_t index = 0; index < paths_.size(); index++) {
        if ((ready[index * polled_per_path()].revents & POLLOUT) != 0 &&
            machine_.is_living(index)) {
            flush_output(paths_[index]);
        }
    }
}

// Whether something may come elsewhere, or is to be looked at in time.
bool TcpMemory::must_watch_all() const {
    for (size_t index = 0; index < paths_.size(); index++) {
        const StreamPath& path = paths_[index];
        const bool is_busy = path.is_output_waiting || path.receiving != nullptr ||
                             !machine_.is_ready(index) || path.join.is_wanted;
        if (machine_.is_living(index) &&
            (path.probe.is_unanswered() || (index != at_ && is_busy))) {
            return true;
        }
    }
    return false;
}

// Looks at the active path for a while, and sleeps then: in recvmsg() on that one, if nothing is expected of others. To sleep on
// several with a time-out sets a high-resolution timer, which costs a virtual machine more than the system call: 10 us and more.
// When nothing has come for so long, it is set after all, as probes and suspicion want to be in time. Where requests take all
// links, all are looked at.
void TcpMemory::receive_from_paths() {
    serve_paths();
    if (state_ != ConnectionState::ready) {
        return;
    }
    at_ = machine_.active();
    // When all others are suspect, one of them is waited on.
    for (size_t index = 0; index < paths_.size() && !machine_.is_living(at_); index++) {
        at_ = index;
    }
    if (!machine_.is_living(at_)) {
        return;
    }
    if (paths_[at_].has_request_path()) {
        receive_from_all();
        return;
    }
    const int socket = stream().socket();
    MessageReader& reader = stream().reader();
    const bool has_output = !stream().writer().empty();
    const bool watches_all = must_watch_all();
    const bool uses_all = spreads();
    const bool sleeps_on_one =
        !has_output && !watches_all && !was_silent_ && !uses_all && machine_.is_ready(at_);
    // Links that are added meanwhile have nothing in it.
    pollfd ready[kMaxPolled] = {};
    const size_t count = fill_poll(ready, true);
    uint64_t due_ns = machine_.next_time_ns();
    if (makes_requests()) {
        due_ns = std::min(due_ns, next_request_path_ns(host::monotonic_ns()));
    }
    size_t bytes = 0;
    Error error = Error::eagain;
    statistics_.system_calls++;
    leave();
    const auto receive = [&](int flags) {
        const auto received = reader.receive(socket, flags);
        bytes = received.ok() ? received.value() : 0;
        error = received.ok() ? Error::eagain : received.error();
        return bytes > 0 || error != Error::eagain;
    };
    bool has_met = false;
    bool has_polled = false;
    if (uses_all) {
        has_polled = busy_poll_.meets([&] { return poll(ready, count, 0) > 0; });
    } else {
        has_met = !has_output && busy_poll_.meets([&] { return receive(MSG_DONTWAIT); });
    }
    if (!has_met && !has_polled) {
        const uint64_t now = host::monotonic_ns();
        if (sleeps_on_one) {
            has_met = receive(0);
        } else {
            const uint64_t wait_ns = std::min(due_ns > now ? due_ns - now : 0, kLongestSleepNs);
            const timespec wait{0, static_cast<long>(wait_ns)};
            has_polled = true;
            (void)ppoll(ready, count, &wait, nullptr);
        }
        busy_poll_.slept();
    }
    mutex_.lock();
    if (state_ != ConnectionState::ready) {
        return;
    }
    was_silent_ = !has_met && (sleeps_on_one || was_silent_);
    if (has_met) {
        handle_received(bytes > 0 ? Result<size_t>(bytes) : Result<size_t>(error));
    }
    const uint64_t now = host::monotonic_ns();
    if (has_polled) {
        look_at_paths(ready);
    } else if (state_ == ConnectionState::ready &&
               (!has_met || watches_all || now >= looked_at_all_ns_ + kLookAtAllNs)) {
        statistics_.system_calls++;
        (void)poll(ready, fill_poll(ready, true), 0);
        look_at_paths(ready);
    } else {
        serve_paths();
    }
}

}  // namespace tiffin::rdma_blk
