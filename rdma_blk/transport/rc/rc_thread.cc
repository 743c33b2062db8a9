// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The thread of an RcMemory: deadlines, what control_ has done, links, and polling when nobody else does.
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/transport/time_units.h"
#include "rdma_blk/wire/control_area.h"

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
    if (has_several_) {
        look_at_links();
    }
    if (state_ == ConnectionState::ready && listener_ != nullptr) {
        listener_->connection_changed(present_info());  // another epoch
    }
}

// A link that has failed takes its path with it. Another one that is to be used from now on waits until its own path is
// ready, and until everything that is posted has its answer, so that nothing is repeated.
void RcMemory::look_at_links() {
    mutex_.unlock();
    const LinksView view = control_->links();
    mutex_.lock();
    standby_wanted_.notify_all();
    if (!view.is_ready || path_.queue_pair == nullptr || is_broken_) {
        return;
    }
    if (view.links[path_.link].ended_count != path_.ended_count) {
        is_planned_ = true;  // the session goes on
        abort_path();
        return;
    }
    const bool is_ready = !view.has_queue_pairs || is_usable(standbys_[view.active], view);
    const bool was_draining = std::exchange(
        is_draining_, view.active != path_.link && view.links[view.active].is_ready && is_ready);
    if (was_draining && !is_draining_) {
        pump_all();
    }
}

void RcMemory::serve_path(uint64_t now_ns) {
    if (queue_->expire(now_ns) && !is_broken_) {
        statistics_.aborts++;
        abort_path();
    }
    if (is_draining_ && queue_->posted_count() == 0 && !is_broken_) {
        is_planned_ = true;
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
        auto* memory = static_cast<RcMemory*>(operation.owner);
        memory->unknown_beat_count_.fetch_add(operation.outcome == Outcome::unknown ? 1 : 0);
        memory->is_beating_.store(false);
    };
    queue_->submit(heartbeat_);
    pump_all();
}

// ---- The end --------------------------------------------------------------------------------------------

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
