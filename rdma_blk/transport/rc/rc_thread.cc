// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The thread of an RcMemory: paths, deadlines, what control_ has done, and polling when nobody else does.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rdma_blk/transport/back_off.h"
#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/transport/time_units.h"
#include "rdma_blk/wire/control_area.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {
namespace {

// While something is posted and nobody leads: how late its failure may be noticed.
constexpr uint64_t kLookNs = 20 * kMillisecondNs;

void signal(int event) {
    const uint64_t one = 1;
    // It can only fail when it is full, and then it wakes anyway.
    [[maybe_unused]] const ssize_t written = write(event, &one, sizeof(one));
}

}  // namespace

void RcMemory::run_thread(void* memory) { static_cast<RcMemory*>(memory)->run(); }

void RcMemory::poke() { signal(event_); }

void RcMemory::wake_leader() { signal(lead_event_); }

void RcMemory::run() {
    MutexLock lock(mutex_);
    while (!is_stopping_) {
        handle_control_done();
        look_at_control();
        pump_all();
        waiters_.wake_finished();
        const uint64_t now = host::monotonic_ns();
        if (path_.queue_pair != nullptr) {
            serve_path(now);
        } else if (state_ == ConnectionState::ready || state_ == ConnectionState::reconnecting) {
            rejoin(now);
        } else {
            sleep_until(now + kSecondNs);
        }
    }
}

void RcMemory::sleep_until(uint64_t time_ns) {
    next_look_ns_ = time_ns;
    mutex_.unlock();
    pollfd ready{event_, POLLIN, 0};
    const uint64_t now = host::monotonic_ns();
    const uint64_t wait_ns = time_ns > now ? time_ns - now : 0;
    poll(&ready, 1, static_cast<int>((wait_ns + kMillisecondNs - 1) / kMillisecondNs));
    if (ready.revents != 0) {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t size = read(event_, &count, sizeof(count));
    }
    mutex_.lock();
}

void RcMemory::pump_all() {
    Proxy* to_control = pump();
    if (to_control != nullptr) {
        mutex_.unlock();
        submit_to_control(to_control);
        mutex_.lock();
    }
}

// ---- While there is a path ------------------------------------------------------------------------------

void RcMemory::look_at_control() {
    if (!has_news_.exchange(false)) {
        return;
    }
    const ConnectionState state = control_state_.load();
    switch (state) {
        case ConnectionState::fenced:
        case ConnectionState::memory_lost:
            end_session(state, Error::estale);
            return;
        case ConnectionState::closed:
            end_session(state, Error::enodev);
            return;
        default:
            break;
    }
    // A path ends with the connection that it was asked for on.
    if (path_.queue_pair != nullptr && path_.generation != control_generation_.load()) {
        abort_path();
    }
    if (state_ == ConnectionState::ready && listener_ != nullptr) {
        listener_->connection_changed(present_info());  // another epoch
    }
}

void RcMemory::serve_path(uint64_t now_ns) {
    if (queue_->expire(now_ns) && !is_broken_) {
        statistics_.aborts++;
        abort_path();
    }
    if (is_broken_ && !has_leader_) {
        break_path();
        return;
    }
    if (now_ns >= next_beat_ns_) {
        beat();
    }
    waiters_.wake_finished();
    wake_next_leader();
    const uint64_t deadline = queue_->next_deadline_ns();
    const bool is_watching = queue_->posted_count() > 0;
    uint64_t look = std::min(next_beat_ns_, now_ns + (is_watching ? kLookNs : kSecondNs));
    look = deadline == 0 ? look : std::min(look, deadline);
    const bool is_wanted = !has_leader_ && is_watching && waiters_.empty();
    if (!is_wanted) {
        sleep_until(look);
        return;
    }
    const bool may_sleep = queue_->pending_callbacks() > 0;
    has_leader_ = true;
    next_look_ns_ = look;
    poll_round(may_sleep ? look : 0, true);
    has_leader_ = false;
    wake_next_leader();
    if (!may_sleep && path_.queue_pair != nullptr) {
        sleep_until(look);
    }
}

// Shows the server that we live, through the path itself.
void RcMemory::beat() {
    next_beat_ns_ = host::monotonic_ns() + beat_interval_ns_;
    if (is_beating_.exchange(true)) {
        return;
    }
    heartbeat_count_++;
    heartbeat_.reset();
    heartbeat_.kind = OperationKind::write;
    heartbeat_.space = AddressSpace::control;
    heartbeat_.offset_bytes = path_.windows[3].offset_bytes;
    static_assert(offsetof(wire::ClientRecord, heartbeat) == 0);
    heartbeat_buffer_ = {&heartbeat_count_, sizeof(heartbeat_count_)};
    heartbeat_.buffers = &heartbeat_buffer_;
    heartbeat_.buffer_count = 1;
    heartbeat_.owner = this;
    heartbeat_.complete = [](Operation& operation) {
        static_cast<RcMemory*>(operation.owner)->is_beating_.store(false);
    };
    queue_->submit(heartbeat_);
    pump_all();
}

// ---- While there is none --------------------------------------------------------------------------------

bool RcMemory::is_late(uint64_t now_ns) const {
    const uint64_t patience_ns = uint64_t{options_.reconnect_timeout_ms} * kMillisecondNs;
    return state_ != ConnectionState::connecting && patience_ns != 0 &&
           now_ns - lost_ns_ >= patience_ns;
}

// While the server is asked for a path, which can take it minutes.
bool RcMemory::go_on() {
    MutexLock lock(mutex_);
    handle_control_done();
    const uint64_t now = host::monotonic_ns();
    [[maybe_unused]] const bool is_posted_late = queue_->expire(now);  // nothing is posted
    waiters_.wake_finished();
    return !is_stopping_ && !is_late(now);
}

void RcMemory::rejoin(uint64_t now_ns) {
    [[maybe_unused]] const bool is_posted_late = queue_->expire(now_ns);  // nothing is posted
    waiters_.wake_finished();
    if (is_late(now_ns)) {
        end_session(ConnectionState::closed, Error::enodev);
        // It may be well, and would keep the lease from others.
        mutex_.unlock();
        control_->close();
        mutex_.lock();
        return;
    }
    const bool has_control = control_state_.load() == ConnectionState::ready;
    if (!has_control && state_ == ConnectionState::ready) {  // no planned change any more
        is_planned_ = false;
        set_state(ConnectionState::reconnecting);
    }
    if (!has_control || now_ns < next_attempt_ns_) {
        const uint64_t deadline = queue_->next_deadline_ns();
        const uint64_t look = has_control ? next_attempt_ns_ : now_ns + kSecondNs / 2;
        sleep_until(deadline == 0 ? look : std::min(look, deadline));
        return;
    }
    mutex_.unlock();
    std::string problem;
    auto path = ask_for_path(problem);
    mutex_.lock();
    if (!path.ok() || !adopt(path.value())) {
        next_attempt_ns_ = host::monotonic_ns() + back_off_ns(attempts_);
        attempts_++;
        if (state_ == ConnectionState::ready) {  // it should have been a short break
            is_planned_ = false;
            set_state(ConnectionState::reconnecting);
        }
    }
}

Result<RcMemory::Path> RcMemory::ask_for_path(std::string& problem) {
    Path path;
    problem = "the RDMA device gives no queue pair";
    // Some more than operations, each with the log behind it, so that there is always room.
    path.queue_pair = TRY(device_->create_queue_pair(2 * limits_.operations_in_flight + 8, true));
    path.generation = control_generation_.load();
    const uint64_t session_id = session_id_.load();
    const wire::RcPathOffer offer{path.queue_pair->address()};
    problem = "the server does not answer the question for a queue pair";
    const auto answer = TRY(control_->join_path(
        wire::PathTransport::rc,
        ByteSpan(reinterpret_cast<const unsigned char*>(&offer), sizeof(offer)), *this));
    if (answer.joined.reason != 0) {
        problem = "the server gives no queue pair (its log says why)";
        return Error::eopnotsupp;
    }
    problem = "the server does not answer as it should";
    const auto parameters =
        TRY(wire::parse_rc_path_answer(ByteSpan(answer.parameters, answer.joined.parameter_bytes)));
    problem = "the queue pair cannot be connected to the server's";
    TRY(path.queue_pair->connect(parameters.server));
    std::copy(std::begin(parameters.windows), std::end(parameters.windows), path.windows);
    problem = "no answer through the RDMA devices (a firewall that drops UDP port 4791?)";
    TRY(exchange_log(path, session_id));
    problem.clear();
    return path;
}

// False: the connection that it was asked for on has ended meanwhile.
bool RcMemory::adopt(Path& path) {
    if (path.generation != control_generation_.load() ||
        control_state_.load() != ConnectionState::ready || !finish_logged(path)) {
        return false;
    }
    path_ = std::move(path);
    is_broken_ = false;
    statistics_.reconnections += state_ == ConnectionState::reconnecting && !is_planned_ ? 1 : 0;
    is_planned_ = false;
    adopted_count_ = queue_->finished_count();
    if (is_beating_
            .load()) {  // it waits to be posted again, and a new session has another place for it
        heartbeat_.offset_bytes = path_.windows[3].offset_bytes;
    }
    next_beat_ns_ = host::monotonic_ns() + beat_interval_ns_;
    queue_->connected();
    if (state_ != ConnectionState::ready) {
        set_state(ConnectionState::ready);
    }
    changed_.notify_all();
    pump_all();
    waiters_.wake_finished();
    pass_lead();
    return true;
}

// What the server's memory had got before the earlier path ended. False: it cannot be believed.
bool RcMemory::finish_logged(const Path& path) {
    while (Operation* operation = queue_->find_executed(path.executed_through)) {
        if (operation != &heartbeat_) {
            if (!count_change(path)) {
                return false;
            }
            statistics_.bytes_written += transfer_bytes(*operation);
        }
        queue_->finish_executed(*operation);
    }
    return true;
}

// Without a path, or with the lead, or it will be destroyed by whoever has that.
void RcMemory::end_session(ConnectionState state, Error error) {
    if (state_ != ConnectionState::ready && state_ != ConnectionState::reconnecting) {
        return;  // it has ended, for another reason
    }
    if (path_.queue_pair != nullptr) {
        is_planned_ = true;  // no reconnecting
        if (has_leader_) {
            abort_path();
            has_news_.store(true);  // to come here again
            mutex_.unlock();
            sched_yield();
            mutex_.lock();
            return;
        }
        (void)path_.queue_pair->stop();
        break_path();
    }
    set_state(state);
    queue_->fail_all(error);
    waiters_.wake_finished();
}

}  // namespace tiffin::rdma_blk
