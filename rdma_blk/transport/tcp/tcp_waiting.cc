// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A TcpMemory's callers while they wait: who leads, who sleeps, the lease, and the end.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "rdma_blk/transport/tcp/tcp_memory.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kLeaseTimeoutNs = 90'000'000'000;
constexpr uint64_t kGoodbyeNs = 3'000'000'000;

}  // namespace

// ---- Waiting ----------------------------------------------------------------------------------------------

void TcpMemory::wait(Operation& operation) {
    if (is_finished(operation)) {
        return;
    }
    Locked lock(*this);
    take_inbox();
    while (!is_finished(operation)) {
        if (state_ == ConnectionState::ready && !has_leader_) {
            lead(operation);
        } else {
            OperationWaiters::Waiter waiter(operation);
            waiters_.add(waiter);
            leave();
            waiter.sleep();
            mutex_.lock();
            waiters_.remove(waiter);
            // It may have been woken to lead, and finds that it has nothing to wait for any more.
            if (is_finished(operation)) {
                pass_lead(false);
            }
        }
    }
}

bool TcpMemory::help(const std::atomic<uint32_t>& count, uint32_t seen) {
    const auto has_changed = [&] { return count.load(std::memory_order_acquire) != seen; };
    Locked lock(*this);
    take_inbox();
    if (has_changed() || state_ != ConnectionState::ready) {
        return has_changed();
    }
    if (has_leader_) {
        // This one sleeps now: whoever leaves the lead has to see to it that another one has it.
        has_helper_ = had_helper_ = false;
        return false;
    }
    has_leader_ = true;
    lead_count_++;
    has_helper_ = true;
    // Nothing may be left to come for this one, if another thread completes what it waits for.
    while (!has_changed() && slots_->pending_callbacks() > 0 && state_ == ConnectionState::ready) {
        receive_round();
        if (state_ == ConnectionState::ready) {
            leave();  // which hands back what has completed
            mutex_.lock();
        }
    }
    has_leader_ = false;
    pass_lead(true);
    return has_changed();
}

// Whether the thread looks for answers in time for those whom somebody has helped.
bool TcpMemory::is_found_soon() const {
    return (has_helper_ || had_helper_) && next_look_ns_ <= host::monotonic_ns() + kHelpedLookNs;
}

// Receives for all until `operation` is complete or the connection is gone.
void TcpMemory::lead(const Operation& operation) {
    has_leader_ = true;
    lead_count_++;
    while (!is_finished(operation) && state_ == ConnectionState::ready) {
        receive_round();
    }
    has_leader_ = false;
    pass_lead(false);
}

// Sleeps until something came, or for kIntervalMs, and looks at it.
void TcpMemory::receive_round() {
    if (has_several()) {
        receive_from_paths();
        return;
    }
    if (paths_[at_].has_request_path() && !is_request_path_resting()) {
        receive_from_all();
        return;
    }
    serve_resting_path();
    if (state_ != ConnectionState::ready) {
        return;  // the connection ended with the path, and belongs to who makes the next one
    }
    if (stream().writer().empty()) {
        handle_received(receive_patiently());
        return;
    }
    // The socket was full: both directions are waited for.
    pollfd ready{stream().socket(), POLLIN | POLLOUT, 0};
    statistics_.system_calls++;
    leave();
    poll(&ready, 1, kIntervalMs);
    mutex_.lock();
    flush_output(paths_[at_]);
    if (is_broken_ || (ready.revents & ~POLLOUT) != 0) {
        handle_received(receive_once(MSG_DONTWAIT));
    }
}

// Whoever leaves the lead sees to it that somebody has it, as long as somebody waits.
void TcpMemory::pass_lead(bool comes_back) {
    if (has_leader_ || state_ != ConnectionState::ready) {
        return;
    }
    if (!waiters_.wake_leader() && slots_->pending_callbacks() > 0 && !is_thread_receiving_ &&
        !(comes_back && is_found_soon())) {
        poke();
    }
}

size_t TcpMemory::progress() {
    Locked lock(*this);
    take_inbox();
    if (has_leader_ || state_ != ConnectionState::ready) {
        return 0;
    }
    const auto completed = [this]() REQUIRES(mutex_) {
        const auto& counts = slots_->statistics().completed;
        return counts[1] + counts[2] + counts[3];
    };
    const uint64_t before = completed();
    has_leader_ = true;
    lead_count_++;
    if (has_several()) {
        pollfd ready[kMaxPolled];
        (void)poll(ready, fill_poll(ready, true), 0);
        look_at_paths(ready);
    } else {
        handle_received(receive_once(MSG_DONTWAIT));
        serve_request_path();
    }
    has_leader_ = false;
    pass_lead(false);
    return completed() - before;
}

// ---- The lease ------------------------------------------------------------------------------------------

Result<void> TcpMemory::start_writing(bool force, Holder& holder) {
    const uint64_t deadline = host::monotonic_ns() + kLeaseTimeoutNs;
    Locked lock(*this);
    if (facts_.is_writer) {
        return {};
    }
    lease_ = Lease{};
    lease_.is_wanted = true;
    lease_.force = force;
    while (!lease_.is_answered) {
        const bool is_final =
            state_ != ConnectionState::ready && state_ != ConnectionState::reconnecting;
        if (is_final || host::monotonic_ns() >= deadline) {
            lease_.is_wanted = false;
            return is_final ? Error::estale : Error::etimedout;
        }
        if (state_ == ConnectionState::ready && !lease_.is_sent) {
            wire::LeaseRequest request{};
            request.session_id = facts_.session_id;
            request.incarnation = facts_.incarnation;
            request.flags = force ? wire::open_flag::force : 0;
            lease_.is_sent = send_control(wire::MessageType::lease_request, request);
            poke();
        }
        wait_for_change();
    }
    lease_.is_wanted = false;
    if (lease_.reply.reason == 0) {
        // What was joined to read is joined again to write. Without it requests do, so no answer is no error.
        want_join(active());
        if (!choice_) {
            (void)wait_for_join(deadline);
        }
        return {};
    }
    switch (static_cast<wire::RefusalReason>(lease_.reply.reason)) {
        case wire::RefusalReason::held:
            set_holder(holder, lease_.reply.holder_text);
            holder.reads = (lease_.reply.flags & wire::lease_flag::held_by_reader) != 0;
            return Error::ebusy;
        case wire::RefusalReason::read_only:
            return Error::erofs;
        default:
            return Error::estale;
    }
}

// ---- The end ------------------------------------------------------------------------------------------------

void TcpMemory::close() {
    {
        Locked lock(*this);
        is_closing_ = true;
    }
    if (linker_.running()) {
        link_wanted_.post();
        linker_.join();
    }
    {
        Locked lock(*this);
        if (extension_.one_sided != nullptr) {
            stop_one_sided();
            extension_.one_sided->release();
        }
    }
    // A server that believes this process to have its memory would kill it for the lease. One that is away, even if
    // that shows only when the goodbye is sent, is given a moment to come back and be told.
    const uint64_t deadline_ns = host::monotonic_ns() + kGoodbyeNs;
    bool is_open = false;
    bool must_tell_again = false;
    do {
        if (thread_.running()) {
            {
                Locked lock(*this);
                wait_to_say_goodbye(deadline_ns);
                is_stopping_ = true;
            }
            poke();
            thread_.join();
        }
        Locked lock(*this);
        take_inbox();  // what is kept for more
        is_stopping_ = false;
        if (state_ == ConnectionState::ready && !is_broken_) {
            say_goodbye();
        }
        is_open = state_ == ConnectionState::ready || state_ == ConnectionState::reconnecting;
        must_tell_again = is_open && must_say_goodbye() && !is_closed_by_server_ &&
                          host::monotonic_ns() < deadline_ns;
    } while (must_tell_again && thread_.start("tiffin-tcp", run_thread, this).ok());
    if (is_open) {
        Locked lock(*this);
        end_session(ConnectionState::closed, Error::enodev);
    }
}

bool TcpMemory::must_say_goodbye() const {
    return extension_.one_sided != nullptr && facts_.is_writer;
}

void TcpMemory::wait_to_say_goodbye(uint64_t deadline_ns) {
    if (!must_say_goodbye()) {
        return;
    }
    attempts_ = 0;
    next_attempt_ns_ = 0;
    poke();
    while ((state_ == ConnectionState::reconnecting ||
            (state_ == ConnectionState::ready && is_broken_)) &&
           host::monotonic_ns() < deadline_ns) {
        wait_for_change();
    }
}

// Gives the lease back. What was sent may still be answered before the server says that it is done.
void TcpMemory::say_goodbye() {
    wire::SessionClose goodbye{};
    goodbye.session_id = facts_.session_id;
    goodbye.incarnation = facts_.incarnation;
    goodbye.flags = has_flushed_all() ? wire::close_flag::all_flushed : 0;
    has_said_goodbye_ = send_control(wire::MessageType::session_close, goodbye);
    if (!has_said_goodbye_) {
        return;
    }
    const uint64_t deadline = host::monotonic_ns() + 4 * probe_interval_ns_;
    size_t told = machine_.active();
    has_leader_ = true;
    while (state_ == ConnectionState::ready && !is_broken_ && !is_closed_by_server_ &&
           host::monotonic_ns() < deadline) {
        receive_round();
        if (state_ == ConnectionState::ready && std::exchange(told, machine_.active()) != told) {
            (void)send_control(wire::MessageType::session_close, goodbye);
        }
    }
    has_leader_ = false;
    has_said_goodbye_ = false;
}

}  // namespace tiffin::rdma_blk
