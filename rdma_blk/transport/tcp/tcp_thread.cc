// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The thread of a TcpMemory: receives when nobody else does, watches the time, and reconnects.
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rdma_blk/transport/back_off.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kAttemptNs = 5 * kSecondNs;

// An opening that nobody answers may wait for the server's disk; one that has not even arrived does not.
bool has_unacknowledged(const ClientConnection& connection) {
    int bytes = 0;
    return connection.is_open() && ioctl(connection.socket(), SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

}  // namespace

void TcpMemory::run_thread(void* memory) { static_cast<TcpMemory*>(memory)->run(); }

void TcpMemory::poke() {
    const uint64_t one = 1;
    // It can only fail when it is full, and then the thread will wake.
    [[maybe_unused]] const ssize_t written = write(event_, &one, sizeof(one));
}

void TcpMemory::run() {
    is_thread_looking_.store(true, std::memory_order_release);
    Locked lock(*this);
    while (!is_stopping_) {
        const uint64_t now = host::monotonic_ns();
        if (state_ == ConnectionState::ready) {
            serve_ready(now);
        } else if (state_ == ConnectionState::reconnecting) {
            reconnect(now);
        } else {
            sleep_until(now + kSecondNs, {});
        }
    }
    is_thread_looking_.store(false, std::memory_order_release);
}

// Who submits and keeps it for what follows pokes a thread that sleeps for long. What nobody else sends is taken along
// by whoever has called this.
void TcpMemory::look_and_sleep(pollfd* ready, size_t count, uint64_t time_ns, bool looks_first) {
    const auto look = [ready, count](uint64_t wait_ns) {
        const timespec wait{static_cast<time_t>(wait_ns / kSecondNs),
                            static_cast<long>(wait_ns % kSecondNs)};
        return ppoll(ready, count, &wait, nullptr) > 0;
    };
    if (looks_first && thread_poll_.meets([&] { return look(0) || is_kept_too_long(); })) {
        return;
    }
    const uint64_t now = host::monotonic_ns();
    const uint64_t wait_ns = time_ns > now ? time_ns - now : 0;
    is_thread_looking_.store(wait_ns <= kLookNs, std::memory_order_release);
    look(inbox_.must_be_seen_to() ? std::min(wait_ns, kKeptNs) : wait_ns);
    is_thread_looking_.store(true, std::memory_order_release);
    if (looks_first) {
        thread_poll_.slept();
    }
}

// Sleeps until that time, or a poke, or one of the events on the sockets (0: not looked at); returns those that
// came. If answers are waited for, it looks for a while before it sleeps.
TcpMemory::Events TcpMemory::sleep_until(uint64_t time_ns, Events wanted) {
    next_look_ns_ = time_ns;
    pollfd ready[1 + kMaxPolled] = {
        {event_, POLLIN, 0},
        {wanted.stream == 0 ? -1 : stream().socket(), wanted.stream, 0},
        {wanted.path == 0 ? -1 : paths_[at_].requests->socket(), wanted.path, 0}};
    size_t poll_count = 3;
    const bool looks_at_all = has_several() && state_ == ConnectionState::ready;
    if (looks_at_all) {
        poll_count = 1 + fill_poll(ready + 1, (wanted.stream & POLLIN) != 0);
    }
    leave();
    look_and_sleep(ready, poll_count, time_ns, (wanted.stream & POLLIN) != 0);
    if (ready[0].revents != 0) {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t size = read(event_, &count, sizeof(count));
    }
    mutex_.lock();
    if (is_kept_too_long() || state_ != ConnectionState::ready) {
        take_inbox();
    }
    if (has_several()) {
        if (state_ == ConnectionState::ready && has_leader_ && looks_at_all) {
            flush_waiting(ready + 1);
        } else if (state_ == ConnectionState::ready && looks_at_all) {
            has_leader_ = true;
            look_at_paths(ready + 1);
            has_leader_ = false;
            pass_lead(false);
        }
        return {};
    }
    return Events{ready[1].revents, ready[2].revents};
}

// ---- While there is a connection --------------------------------------------------------------------

void TcpMemory::serve_ready(uint64_t now_ns) {
    watch_deadlines(now_ns);
    if (has_several()) {
        if (!has_leader_) {
            has_leader_ = true;
            serve_paths();
            has_leader_ = false;
        }
        if (state_ != ConnectionState::ready) {
            return;
        }
    } else {
        watch_silence(now_ns);
    }
    watch_stream(now_ns);
    if (is_broken_ && !has_leader_) {
        break_connection();
        return;
    }
    const bool receives = should_receive(now_ns);
    Events events;
    events.stream =
        static_cast<short>((receives ? POLLIN : 0) | (paths_[at_].is_output_waiting ? POLLOUT : 0));
    events.path = static_cast<short>(receives && paths_[at_].has_request_path() ? POLLIN : 0);
    is_thread_receiving_ = receives;
    statistics_.system_calls += receives ? 1 : 0;
    const Events came = sleep_until(next_look_after(now_ns, receives), events);
    is_thread_receiving_ = false;
    if (state_ != ConnectionState::ready) {
        return;
    }
    if ((came.stream & POLLOUT) != 0) {
        flush_output(paths_[at_]);
    }
    if (((came.stream & ~POLLOUT) != 0 || (receives && paths_[at_].has_request_path())) &&
        !has_leader_ && !has_several()) {
        has_leader_ = true;
        if ((came.stream & ~POLLOUT) != 0) {
            handle_received(receive_once(MSG_DONTWAIT));
        }
        serve_request_path();
        has_leader_ = false;
        if (state_ == ConnectionState::ready) {
            waiters_.wake_leader();  // if nobody waits, this thread goes on by itself
        }
    }
}

bool TcpMemory::should_receive(uint64_t now_ns) {
    if (has_leader_ || lead_count_ != seen_lead_count_) {
        seen_lead_count_ = lead_count_;
        led_ns_ = now_ns;
    }
    // Once more after the last one: who refills a queue has more very soon, and need not wake this thread then.
    const bool had_callbacks = std::exchange(has_callbacks_, slots_->pending_callbacks() > 0);
    had_helper_ = std::exchange(has_helper_, false);
    expects_callbacks_ = (has_callbacks_ || had_callbacks) && !had_helper_;
    return !has_leader_ && (expects_callbacks_ || lease_.is_wanted || is_asking_for_path() ||
                            is_joining() || now_ns - led_ns_ >= kLookNs);
}

uint64_t TcpMemory::next_look_after(uint64_t now_ns, bool receives) const {
    const bool is_for_long = receives && !expects_callbacks_ && !had_helper_;
    uint64_t look = now_ns + (is_for_long   ? std::min(probe_interval_ns_, kSecondNs)
                              : had_helper_ ? kHelpedLookNs
                                            : kLookNs);
    if (receives) {
        look = std::min(look, next_request_path_ns(now_ns));
    }
    if (receives && has_request_path_in_use() && !is_path_idle(now_ns)) {
        look = std::min(look, now_ns + kLongestPathSleepNs);
    }
    if (has_several() && !has_leader_) {  // who leads watches the paths
        look = std::min(look, std::max(machine_.next_time_ns(), now_ns));
    }
    const uint64_t deadline = slots_->next_deadline_ns();
    return deadline == 0 ? look : std::min(look, deadline);
}

// Who submits after a second without anything wakes the thread, see poke_after_submit(); one wake-up for each operation
// would be dear.
bool TcpMemory::is_path_idle(uint64_t now_ns) const {
    uint64_t heard_ns = 0;
    for (const StreamPath& path : paths_) {
        heard_ns = std::max(heard_ns, path.heard_ns);
    }
    return slots_->pending_count() == 0 && elapsed_ns(now_ns, heard_ns) >= kSecondNs;
}

void TcpMemory::watch_deadlines(uint64_t now_ns) {
    if (slots_->expire(now_ns) && !is_broken_) {
        statistics_.aborts++;
        abort_connection();
    }
    waiters_.wake_finished();
}

// Of the only path.
void TcpMemory::watch_silence(uint64_t now_ns) {
    if (receive_calls_ != heard_calls_) {
        heard_calls_ = receive_calls_;
        paths_[0].heard_ns = now_ns;
        machine_.heard(0, now_ns);
    }
    machine_.set_asking(
        slots_->pending_count() > 0 || lease_.is_wanted || is_asking_for_path() || is_joining(),
        now_ns);
    if (is_broken_) {
        return;
    }
    if (machine_.next_time_ns() <= now_ns) {
        look_for_life(0, now_ns);
    }
    switch (machine_.next(now_ns).kind) {
        case SessionMachine::Action::Kind::probe:
            send_probe(0);
            break;
        case SessionMachine::Action::Kind::close:
            paths_[0].is_silent = slots_->pending_count() > 0;
            abort_connection();
            break;
        default:
            break;
    }
}

// ---- While there is none -------------------------------------------------------------------------------

bool TcpMemory::go_on() {
    Locked lock(*this);
    take_inbox();  // nothing is kept for as long as an attempt takes
    const uint64_t now = host::monotonic_ns();
    // Something the server was told of is late: this attempt must end before it can complete.
    const bool must_end = slots_->expire(now);
    waiters_.wake_finished();
    is_kept_waiting_ = is_opening_ && !has_unacknowledged(stream());
    return !must_end && !is_stopping_ && (is_kept_waiting_ || !is_reconnection_late(now));
}

uint64_t TcpMemory::executed_count() const {
    return slots_->statistics().completed[static_cast<size_t>(Outcome::executed)];
}

// A network that carries the small messages of an opening and nothing else must not be tried for ever: the time
// since the session was lost goes on. A connection that lives for long is not of that kind, even if a disk at
// the other end keeps what is pending for as long.
bool TcpMemory::has_got_nowhere(uint64_t now_ns) const {
    constexpr uint64_t kLivingIntervals = 20;
    return executed_before_ != kNothingPending && executed_before_ == executed_count() &&
           now_ns - ready_ns_ < kLivingIntervals * probe_interval_ns_;
}

bool TcpMemory::is_reconnection_late(uint64_t now_ns) const {
    return state_ == ConnectionState::reconnecting && options_.reconnect_timeout_ms != 0 &&
           now_ns - lost_ns_ >= options_.reconnect_timeout_ms * kMillisecondNs;
}

void TcpMemory::reconnect(uint64_t now_ns) {
    slots_->connection_lost(now_ns);  // completes what is late
    [[maybe_unused]] const bool is_sent_late = slots_->expire(now_ns);
    waiters_.wake_finished();
    if (is_reconnection_late(now_ns)) {
        end_session(ConnectionState::closed, Error::enodev);
        return;
    }
    if (now_ns < next_attempt_ns_) {
        const uint64_t deadline = slots_->next_deadline_ns();
        sleep_until(deadline == 0 ? next_attempt_ns_ : std::min(next_attempt_ns_, deadline), {});
        return;
    }
    at_ = (first_link_ + attempts_) % paths_.size();
    while (is_removed(at_)) {  // not all are
        at_ = (at_ + 1) % paths_.size();
    }
    if (paths_[at_].is_joining) {  // it ends soon
        next_attempt_ns_ = now_ns + kIntervalMs * kMillisecondNs;
        return;
    }
    const auto opened = try_session();
    if (!opened.ok() && state_ == ConnectionState::reconnecting) {
        const uint64_t now = host::monotonic_ns();
        const bool is_swallowed =
            opened.error() == Error::etimedout && has_unacknowledged(stream());
        note_segments(at_, is_swallowed, is_swallowed);
        stream().close();
        slots_->connection_lost(now);
        waiters_.wake_finished();
        next_attempt_ns_ = now + back_off_ns(attempts_);
        attempts_++;
    }
}

Result<void> TcpMemory::connect_again(size_t link, uint64_t connect_deadline_ns,
                                      uint64_t deadline_ns) {
    std::string problem;
    Socket socket = TRY(connect(link, connect_deadline_ns, *this, problem));
    return stream().open(std::move(socket), options_, deadline_ns, *this, problem);
}

// To connect, an attempt has its share only, so that all links have a turn; the rest takes several round trips of a link that
// is there.
// Ok: the state has changed. mutex_ is let go while the network is waited for; nobody else uses the
// connection as long as the state is `reconnecting`.
Result<void> TcpMemory::try_session() {
    uint64_t living = 0;
    for (size_t index = 0; index < paths_.size(); index++) {
        living += is_removed(index) ? 0 : 1;
    }
    const uint64_t begin = host::monotonic_ns();
    const uint64_t deadline = begin + kAttemptNs;
    leave();
    const auto connected = connect_again(at_, begin + kAttemptNs / living, deadline);
    mutex_.lock();
    if (!connected.ok()) {
        return connected.error();
    }
    uint16_t count = 0;
    if (facts_.session_id != 0) {
        facts_.incarnation++;
        count = slots_->fill_outstanding(entries_.data());
    }
    const SessionFacts facts = facts_;
    const uint64_t next_sequence = slots_->next_sequence();
    is_opening_ = true;
    is_kept_waiting_ = false;
    leave();
    const auto answer = open_session(stream(), options_, facts, next_sequence,
                                     Span<const wire::OutstandingEntry>(entries_.data(), count),
                                     outcomes_.data(), deadline, *this);
    mutex_.lock();
    is_opening_ = false;
    if (!answer.ok()) {
        if (is_kept_waiting_) {
            lost_ns_ = host::monotonic_ns();  // a slow disk is no reason to give the session up
        }
        return answer.error();
    }
    return answer.value().is_opened ? adopt(answer.value().opened)
                                    : handle_refusal(answer.value().refused);
}

SessionFacts TcpMemory::facts_now() const {
    SessionFacts facts = facts_;
    facts.has_unflushed = all_changes() > flushed_count_;
    return facts;
}

Result<void> TcpMemory::handle_refusal(const wire::SessionRefused& refused) {
    switch (static_cast<wire::RefusalReason>(refused.reason)) {
        case wire::RefusalReason::held:
            // A new session after no_session: somebody was faster. A writer would have raised the epoch; for a reader it waits.
            if (facts_.is_writer && refused.epoch == facts_.epoch) {
                constexpr uint64_t kMostTimeouts = 3;
                const uint64_t now_ns = host::monotonic_ns();
                held_since_ns_ = held_since_ns_ == 0 ? now_ns : held_since_ns_;
                if (now_ns - held_since_ns_ <
                    kMostTimeouts * options_.reconnect_timeout_ms * kMillisecondNs) {
                    lost_ns_ = now_ns;  // the server lives, and the reader has as long to come back
                }
                return Error::eio;
            }
            [[fallthrough]];
        case wire::RefusalReason::fenced:
            end_session(ConnectionState::fenced, Error::estale);
            return {};
        case wire::RefusalReason::no_session:
            if (facts_.session_id == 0) {
                return Error::eproto;
            }
            if (is_content_lost(facts_now(), refused.content_incarnation,
                                refused.empty_since_incarnation)) {
                end_session(ConnectionState::memory_lost, Error::estale);
                return {};
            }
            // Nothing was lost: the next attempt, at once, opens a new session.
            facts_.session_id = 0;
            stream().close();
            slots_->connection_lost(host::monotonic_ns());
            waiters_.wake_finished();
            return {};
        default:
            return Error::eio;  // tried again later
    }
}

// The server that answers must have what the session was opened with.
bool TcpMemory::is_same_volume(const wire::SessionOpened& opened) const {
    return std::memcmp(opened.volume_uuid, geometry_.volume_uuid, sizeof(opened.volume_uuid)) ==
               0 &&
           std::memcmp(opened.server_uuid, geometry_.server_uuid, sizeof(opened.server_uuid)) == 0;
}

Result<void> TcpMemory::adopt(const wire::SessionOpened& opened) {
    const bool is_first = state_ == ConnectionState::connecting;
    const bool is_resumed = (opened.flags & wire::session_flag::resumed) != 0;
    if (!is_first && (!is_same_volume(opened) ||
                      (!is_resumed && is_content_lost(facts_now(), opened.content_incarnation,
                                                      opened.empty_since_incarnation)))) {
        end_session(ConnectionState::memory_lost, Error::estale);
        return {};
    }
    held_since_ns_ = 0;
    // A new session of the writer, with nothing lost: but somebody else may have written between.
    if (!is_first && !is_resumed && facts_.is_writer && opened.epoch != facts_.epoch + 1) {
        end_session(ConnectionState::fenced, Error::estale);
        return {};
    }
    if (!is_first && !is_resumed && options_.mode == OpenOptions::Mode::read_steady &&
        !facts_.is_writer && opened.epoch != facts_.epoch) {
        end_session(ConnectionState::fenced, Error::estale);
        return {};
    }
    if (opened.transfer_bytes < limits_.transfer_bytes ||
        opened.data_bytes < geometry_.data_bytes) {
        end_session(ConnectionState::closed, Error::enodev);
        return {};
    }
    std::atomic_ref<uint64_t>(geometry_.data_bytes).store(opened.data_bytes);
    facts_.session_id = opened.session_id;
    facts_.incarnation = opened.incarnation;
    facts_.epoch = opened.epoch;
    facts_.content_incarnation = opened.content_incarnation;
    facts_.empty_since_incarnation = opened.empty_since_incarnation;
    probe_interval_ns_ = opened.probe_interval_ms * kMillisecondNs;
    session_flags_ = opened.flags;
    heard_calls_ = receive_calls_;
    note_stream_heard(paths_[at_], host::monotonic_ns());
    paths_[at_].made_ns = paths_[at_].heard_ns;
    paths_[at_].is_failure_told = false;
    paths_[at_].problem.clear();
    machine_.opened(at_, paths_[at_].heard_ns, probe_interval_ns_, stream().delay_ns());
    if (has_several()) {
        set_up(paths_[at_]);
    }
    paths_[at_].id = 0;
    next_path_id_ = 1;
    session_secret_ = stream().keys().session_secret;
    version_ = stream().version();
    statistics_.reconnections += is_first ? 0 : 1;
    executed_before_ = slots_->pending_count() == 0 ? kNothingPending : executed_count();
    ready_ns_ = host::monotonic_ns();
    if (is_first) {
        note_inherited((opened.flags & wire::session_flag::inherits_unflushed) != 0);
    }
    set_state(ConnectionState::ready);
    if (is_first) {
        slots_->opened(opened.slot_count);
    } else if (!is_resumed) {
        slots_->restarted(opened.slot_count);
    } else if (!slots_->resumed(ByteSpan(outcomes_.data(), opened.outstanding_count)).ok()) {
        abort_connection();
    }
    want_join(paths_[at_]);
    send_queued();
    waiters_.wake_finished();
    lease_changed_.notify_all();
    pass_lead(false);
    return {};
}

}  // namespace tiffin::rdma_blk
