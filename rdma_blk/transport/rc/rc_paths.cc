// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The paths of an RcMemory: how one is made, and what is known of the server's memory when it is used for the first time.
#include <poll.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "rdma_blk/transport/back_off.h"
#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/transport/time_units.h"
#include "rdma_blk/wire/control_area.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {
namespace {

// Longer than a queue pair tries.
constexpr uint64_t kTryNs = 3 * kSecondNs;
// The server is ending an earlier path: news of that wake the thread.
constexpr uint64_t kEndingLookNs = 20 * kMillisecondNs;
// With several links a change to another one is over by then.
constexpr uint64_t kLongBreakNs = 5 * kSecondNs;

}  // namespace

// ---- When there is none -----------------------------------------------------------------------------------

bool RcMemory::is_late(uint64_t now_ns) const {
    const uint64_t patience_ns = uint64_t{options_.reconnect_timeout_ms} * kMillisecondNs;
    return state_ != ConnectionState::connecting && patience_ns != 0 &&
           now_ns - lost_ns_ >= patience_ns;
}

// While the server is asked for a path, which can take it minutes; maybe for one beside the path that is in use. As long as it
// lives, the question's own limit counts.
bool RcMemory::go_on() {
    MutexLock lock(mutex_);
    handle_control_done();
    const uint64_t now = host::monotonic_ns();
    [[maybe_unused]] const bool is_posted_late = queue_->expire(now);  // nothing is posted
    waiters_.wake_finished();
    return !is_stopping_ && (path_.queue_pair != nullptr ||
                             control_state_.load() == ConnectionState::ready || !is_late(now));
}

// Which path is asked for: beside the active link, but while something may still come through an earlier path, the server
// must have ended that first. kNoLink: not now.
size_t RcMemory::next_link(const LinksView& view) const {
    size_t link = view.active;
    if (view.has_queue_pairs && doubt_.exists && doubt_.generation == control_generation_.load()) {
        const LinksView::Link& doubtful = view.links[doubt_.link];
        if (doubtful.ended_count == doubt_.ended_count) {
            link = doubt_.link;  // it lives: another one beside it ends the earlier one
        } else if (!doubtful.is_ended_at_server) {
            return kNoLink;
        }
    }
    return view.is_ready && view.links[link].is_ready && !is_asking_[link] ? link : kNoLink;
}

void RcMemory::rejoin(uint64_t now_ns) {
    [[maybe_unused]] const bool is_posted_late = queue_->expire(now_ns);  // nothing is posted
    waiters_.wake_finished();
    const bool has_control = control_state_.load() == ConnectionState::ready;
    // The stream has a patience of its own, knows when a slow disk keeps it waiting, and says when it has ended.
    if (away_ns_ != 0) {
        lost_ns_ += now_ns - away_ns_;
    }
    away_ns_ = has_control ? 0 : now_ns;
    if (is_late(now_ns)) {
        end_session(ConnectionState::closed, Error::enodev);
        count_unknown();
        // It may be well, and would keep the lease from others.
        mutex_.unlock();
        control_->close();
        mutex_.lock();
        return;
    }
    // No planned change any more, nor one to another link.
    if (!has_control || (has_several_ && now_ns - lost_ns_ > kLongBreakNs)) {
        tell_of_break();
    }
    if (!has_control || now_ns < next_attempt_ns_) {
        const uint64_t deadline = queue_->next_deadline_ns();
        const uint64_t look = has_control ? next_attempt_ns_ : now_ns + kSecondNs / 2;
        sleep_until(deadline == 0 ? look : std::min(look, deadline));
        return;
    }
    const uint32_t generation = control_generation_.load();
    mutex_.unlock();
    const LinksView view = control_->links();
    mutex_.lock();
    const size_t link = next_link(view);
    if (link == kNoLink) {
        sleep_until(host::monotonic_ns() + kEndingLookNs);
        return;
    }
    Path standby = std::move(standbys_[link]);
    const bool has_standby = is_usable(standby, view) && (!doubt_.exists || doubt_.link != link ||
                                                          doubt_.generation != generation);
    is_asking_[link] = true;
    mutex_.unlock();
    std::string problem;
    auto path =
        get_path(link, view, generation, has_standby ? std::move(standby) : Path(), problem);
    mutex_.lock();
    is_asking_[link] = false;
    if (path.ok() && adopt(path.value())) {
        return;
    }
    if (has_several_ && !path.ok() && path.error() == Error::eagain) {
        return;  // the link has failed meanwhile
    }
    if (has_several_ && !path.ok()) {
        mutex_.unlock();
        control_->give_link_up(link, view.links[link].ended_count);
        mutex_.lock();
    }
    next_attempt_ns_ = host::monotonic_ns() + back_off_ns(attempts_);
    attempts_++;
    if (!has_several_) {
        tell_of_break();  // it should have been a short one
    }
}

void RcMemory::tell_of_break() {
    if (state_ == ConnectionState::ready) {
        is_planned_ = false;
        set_state(ConnectionState::reconnecting);
    }
}

// A path over which the completion log has been read.
Result<RcMemory::Path> RcMemory::get_path(size_t link, const LinksView& view, uint32_t generation,
                                          Path standby, std::string& problem) {
    const uint64_t session_id = session_id_.load();
    Path path = std::move(standby);
    if (path.queue_pair == nullptr) {
        path = TRY(ask_for_path(link, view, generation, problem));
    }
    problem = "no answer through the RDMA devices (a firewall that drops UDP port 4791?)";
    TRY(exchange_log(path, session_id));
    problem.clear();
    return path;
}

// ---- Making one -------------------------------------------------------------------------------------------

Result<RcMemory::Path> RcMemory::ask_for_path(size_t link, const LinksView& view,
                                              uint32_t generation, std::string& problem) {
    Path path;
    Device* const device = TRY(find_device(view.links[link].address, problem));
    path.device = device;
    path.link = link;
    path.ended_count = view.links[link].ended_count;
    path.generation = generation;
    problem = "the RDMA device gives no queue pair";
    // Some more than operations, each with the log behind it, so that there is always room.
    path.queue_pair =
        TRY(device->device->create_queue_pair(2 * limits_.operations_in_flight + 8, true));
    const wire::RcPathOffer offer{path.queue_pair->address()};
    problem = "the server does not answer the question for a queue pair";
    const auto answer = TRY(control_->join_path(
        link, wire::PathTransport::rc,
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
    return path;
}

// Posts work whose last request is signalled, and waits for its end.
Result<void> RcMemory::run_work(verbs::QueuePair& queue_pair, const verbs::WorkRequest* work,
                                size_t count) {
    TRY(queue_pair.post(work, count));
    const uint64_t deadline = host::monotonic_ns() + kTryNs;
    verbs::Completion completion;
    while (queue_pair.poll(&completion, 1) == 0) {
        if (host::monotonic_ns() >= deadline || !go_on()) {
            return Error::etimedout;
        }
        pollfd ready{queue_pair.event_descriptor(), POLLIN, 0};
        TRY(queue_pair.arm());
        // What came before it was armed is found by the next look.
        poll(&ready, 1, kIntervalMs);
        queue_pair.disarm();
    }
    return completion.status == verbs::Status::success ? Result<void>() : Error::eio;
}

// Reads the completion log, and begins it if this is the session's first path: another session may have had the place. It
// also shows whether packets come through, as a queue pair is connected without any.
Result<void> RcMemory::exchange_log(Path& path, uint64_t session_id) {
    const wire::RcWindow& control = path.windows[1];
    const wire::RcWindow& own = path.windows[3];
    const uint64_t offset = own.offset_bytes + wire::kCompletionLogOffset;
    if (own.length_bytes < wire::kCompletionLogOffset + sizeof(wire::CompletionLog) ||
        offset < control.offset_bytes ||
        offset + sizeof(uint64_t) > control.offset_bytes + control.length_bytes) {
        return Error::eproto;
    }
    verbs::Piece word;
    {
        MutexLock lock(mutex_);
        word = {&bounce_.word(0), sizeof(uint64_t), path.device->bounce->local_key()};
    }
    uint64_t nothing = 0;
    const verbs::Piece begin{&nothing, sizeof(nothing), 0};
    verbs::WorkRequest work[2];
    work[0].kind = verbs::WorkKind::write;
    work[0].is_inline = true;
    work[0].pieces = &begin;
    work[0].remote_address = own.address + wire::kCompletionLogOffset;
    work[0].remote_key = own.key;
    work[1].kind = verbs::WorkKind::read;
    work[1].is_signalled = true;
    work[1].pieces = &word;
    work[1].remote_address = control.address + (offset - control.offset_bytes);
    work[1].remote_key = control.key;
    work[0].piece_count = work[1].piece_count = 1;
    const size_t count = session_id == log_session_id_ ? 1 : 2;
    TRY(run_work(*path.queue_pair, work + 2 - count, count));
    MutexLock lock(mutex_);
    path.executed_through = bounce_.word(0);
    log_session_id_ = session_id;
    return {};
}

RcMemory::LinkCounts RcMemory::counts_of(size_t link) const {
    LinkCounts counts = link_counts_[link];
    if (link == failed_link_) {
        counts.resent += queue_->replayed_count() - counted_.resent;
        counts.resent_bytes += queue_->replayed_bytes() - counted_.resent_bytes;
        counts.recovered += queue_->recovered_count() - counted_.recovered;
    }
    return counts;
}

// False: the connection that it was asked for on has ended meanwhile.
bool RcMemory::adopt(Path& path) {
    link_counts_[failed_link_] = counts_of(failed_link_);
    counted_ = {queue_->replayed_count(), queue_->replayed_bytes(), queue_->recovered_count()};
    failed_link_ = doubt_.exists ? doubt_.link : failed_link_;
    if (path.generation != control_generation_.load() ||
        control_state_.load() != ConnectionState::ready || !finish_logged(path)) {
        return false;
    }
    path_ = std::move(path);
    doubt_ = Doubt();
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

// ---- Devices ---------------------------------------------------------------------------------------------

RcMemory::Device* RcMemory::present_device(const uint8_t (&address)[16]) const {
    for (const auto& each : devices_) {
        if (std::equal(std::begin(address), std::end(address), each->address)) {
            return each.get();
        }
    }
    return nullptr;
}

// The device of this host's end of a link, with all memory registered that operations may use.
Result<RcMemory::Device*> RcMemory::find_device(const uint8_t (&address)[16],
                                                std::string& problem) {
    MutableByteSpan bounce;
    {
        MutexLock lock(mutex_);
        Device* const present = present_device(address);
        if (present != nullptr) {
            return present;
        }
        bounce = bounce_.memory();
    }
    auto made = std::make_unique<Device>();
    std::copy(std::begin(address), std::end(address), made->address);
    made->device = TRY(verbs::devices().open(address, problem));
    const verbs::Capabilities& capabilities = made->device->capabilities();
    if (capabilities.piece_count < piece_count_ ||
        capabilities.inline_bytes < limits_.inline_bytes) {
        problem = std::string("the device ") + capabilities.device_name +
                  " can do less than that of the first link";
        return Error::enodev;
    }
    problem = "memory cannot be registered with the RDMA device (ulimit -l?)";
    made->bounce = TRY(made->device->register_memory(bounce.data(), bounce.size(), false));
    mutex_.lock();
    while (made->arenas.size() < arenas_.size()) {
        const Arena arena = arenas_[made->arenas.size()];
        mutex_.unlock();
        auto registered = made->device->register_memory(
            arena.begin, static_cast<size_t>(arena.end - arena.begin), false);
        if (!registered.ok()) {
            return registered.error();
        }
        made->arenas.push_back(registered.release_value());
        mutex_.lock();
    }
    Device* device = present_device(address);
    if (device == nullptr) {
        device = made.get();
        devices_.push_back(std::move(made));
    }
    mutex_.unlock();
    problem.clear();
    return device;
}

}  // namespace tiffin::rdma_blk
