// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/rc/rc_memory.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

namespace tiffin::rdma_blk {

// ---- Opening --------------------------------------------------------------------------------------------

RcMemory::RcMemory(const OpenOptions& options, const char* reason, ConnectionListener* listener,
                   bool has_several)
    : options_(options), reason_(reason), has_several_(has_several), listener_(listener) {}

RcMemory::~RcMemory() {
    TIFFIN_ASSERT(!thread_.running());
    path_.queue_pair.reset();
    unended_.clear();
    for (Path& standby : standbys_) {
        standby.queue_pair.reset();
    }
    devices_.clear();  // before the memory that is registered with them
    for (const int descriptor : {event_, lead_event_}) {
        if (descriptor >= 0) {
            ::close(descriptor);
        }
    }
}

Result<std::unique_ptr<RemoteMemory>> RcMemory::open(const RemoteAddress& address,
                                                     const OpenOptions& options, const char* reason,
                                                     ConnectionListener* listener, Holder& holder,
                                                     std::string& problem) {
    if (options.encrypt) {
        problem = "rc does not encrypt: transport=tcp and transport=sdr do";
        return Error::einval;
    }
    if (!verbs::devices().exist(problem)) {
        return Error::eopnotsupp;
    }
    std::unique_ptr<RcMemory> memory(
        new (std::nothrow) RcMemory(options, reason, listener, !address.more_links.empty()));
    if (!memory) {
        return Error::enomem;
    }
    memory->event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    memory->lead_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (memory->event_ < 0 || memory->lead_event_ < 0) {
        return Error::eio;
    }
    memory->control_ =
        TRY(TcpMemory::open(address, options, memory.get(), holder, problem, memory.get()));
    Result<void> prepared = memory->prepare(problem);
    if (prepared.ok()) {
        prepared = memory->thread_.start("tiffin-rc", run_thread, memory.get());
    }
    if (prepared.ok() && memory->has_several_) {
        prepared = memory->standby_thread_.start("tiffin-rc-links", run_standby, memory.get());
    }
    if (!prepared.ok()) {
        memory->close();
        // Whatever it was, tcp works.
        problem = problem.empty() ? "rc cannot be set up" : problem;
        return Error::eopnotsupp;
    }
    return std::unique_ptr<RemoteMemory>(std::move(memory));
}

Result<void> RcMemory::prepare(std::string& problem) {
    if ((control_->session_flags() & wire::session_flag::offers_rc) == 0) {
        problem = "the server offers no rc: it has no RDMA device";
        return Error::eopnotsupp;
    }
    const uint32_t generation = control_generation_.load();
    const LinksView view = control_->links();
    if (!view.is_ready || !view.links[view.active].is_ready) {
        problem = "the connection broke";
        return Error::eio;
    }
    {
        MutexLock lock(mutex_);
        devices_.reserve(LinksView::kCapacity);
        arenas_.reserve(kMaxArenas);
        TRY(bounce_.create());
    }
    Device* const device = TRY(find_device(view.links[view.active].address, problem));
    const verbs::Capabilities& capabilities = device->device->capabilities();
    limits_ = control_->limits();
    limits_.inline_bytes = capabilities.inline_bytes;
    // Bounce buffers are in pieces, too.
    piece_count_ = std::min(capabilities.piece_count, kMaxPieces);
    limits_.transfer_bytes =
        std::min(limits_.transfer_bytes, piece_count_ * BouncePool::kChunkBytes);
    limits_.eager_bytes = std::min(limits_.eager_bytes, limits_.transfer_bytes);
    const uint16_t depth = static_cast<uint16_t>(limits_.operations_in_flight);
    beat_interval_ns_ = uint64_t{control_->probe_interval_ms()} * 1'000'000;
    {
        MutexLock lock(mutex_);
        queue_ = TRY(OneSidedQueue::create(depth));
        entries_.resize(depth);
        work_.resize(size_t{2} * depth);
        log_writes_.resize(depth);
        proxies_ = std::vector<Proxy>(depth);
        for (Proxy& proxy : proxies_) {
            proxy.owner = this;
            proxy.next = std::exchange(free_proxies_, &proxy);
        }
    }
    Path path = TRY(get_path(view.active, view, generation, Path(), problem));
    MutexLock lock(mutex_);
    if (!adopt(path)) {
        problem = "the connection broke";
        return Error::eio;
    }
    problem.clear();
    return {};
}

// ---- Questions ----------------------------------------------------------------------------------------

ConnectionInfo RcMemory::connection() const {
    MutexLock lock(mutex_);
    return present_info();
}

ConnectionInfo RcMemory::present_info() const {
    ConnectionInfo info;
    info.state = state_;
    info.transport_name = "rc";
    info.transport_reason = reason_;
    info.session_id = session_id_.load();
    info.incarnation = incarnation_.load();
    info.epoch = epoch_.load();
    info.content_incarnation = content_incarnation_.load();
    info.empty_since_incarnation = empty_since_incarnation_.load();
    info.inherits_unflushed = inherits_unflushed_.load();
    info.words_unknown = words_unknown_.load();
    return info;
}

void RcMemory::set_state(ConnectionState state) {
    state_ = state;
    changed_.notify_all();
    if (listener_ != nullptr) {
        listener_->connection_changed(present_info());
    }
}

void RcMemory::links_changed() {
    has_news_.store(true);
    poke();
}

// By control_'s threads, with its lock held.
void RcMemory::connection_changed(const ConnectionInfo& info) {
    session_id_.store(info.session_id);
    incarnation_.store(info.incarnation);
    epoch_.store(info.epoch);
    content_incarnation_.store(info.content_incarnation);
    empty_since_incarnation_.store(info.empty_since_incarnation);
    inherits_unflushed_.store(info.inherits_unflushed);
    words_unknown_.store(info.words_unknown);
    if (info.state != ConnectionState::ready) {
        control_generation_.fetch_add(1);
    }
    control_state_.store(info.state);
    has_news_.store(true);
    poke();
}

Statistics RcMemory::statistics() const {
    const Statistics control = control_->statistics();
    MutexLock lock(mutex_);
    Statistics result = statistics_;
    for (size_t i = 0; i < std::size(result.outcomes); i++) {
        result.outcomes[i] += queue_->completed(static_cast<Outcome>(i));
    }
    // Beats are nobody's operations.
    result.outcomes[static_cast<size_t>(Outcome::executed)] -=
        std::min(result.outcomes[static_cast<size_t>(Outcome::executed)],
                 heartbeat_count_ - (is_beating_.load() ? 1 : 0));
    result.replayed_operations = queue_->replayed_count() + control.replayed_operations;
    result.resent_operations = queue_->replayed_count() + control.resent_operations;
    result.resent_bytes = queue_->replayed_bytes() + control.resent_bytes;
    result.recovered_operations = queue_->recovered_count() + control.recovered_operations;
    result.failovers = control.failovers;
    result.path_count = control.path_count;
    std::copy(std::begin(control.paths), std::end(control.paths), std::begin(result.paths));
    for (size_t link = 0; link < result.path_count; link++) {
        const LinkCounts counts = counts_of(link);
        result.paths[link].resent_operations += counts.resent;
        result.paths[link].resent_bytes += counts.resent_bytes;
        result.paths[link].recovered_operations += counts.recovered;
        if (path_.queue_pair != nullptr && path_.link == link) {
            result.paths[link].transport = "rc";
        }
    }
    result.round_trips += control.round_trips;
    result.system_calls += control.system_calls;
    result.aborts += control.aborts;
    return result;
}

// Registered with all devices that there are before anybody may use it; a device that comes later registers it, too.
Result<void> RcMemory::add_arena(MutableByteSpan memory) {
    std::vector<std::unique_ptr<verbs::Memory>> registered;
    mutex_.lock();
    while (registered.size() < devices_.size()) {
        Device& device = *devices_[registered.size()];
        mutex_.unlock();
        auto made = device.device->register_memory(memory.data(), memory.size(), false);
        if (!made.ok()) {
            return made.error();
        }
        registered.push_back(made.release_value());
        mutex_.lock();
    }
    const bool has_room = arenas_.size() < kMaxArenas;
    if (has_room) {
        arenas_.push_back({memory.data(), memory.data() + memory.size()});
        for (size_t index = 0; index < registered.size(); index++) {
            devices_[index]->arenas.push_back(std::move(registered[index]));
        }
    }
    mutex_.unlock();
    return has_room ? Result<void>() : Error::enospc;
}

// ---- Submitting -----------------------------------------------------------------------------------------

void RcMemory::submit(Operation& first) {
    const auto [accepted, rejected] = sort_operations(first, limits_);
    const uint64_t earliest_deadline_ns = accepted.earliest_deadline_ns();  // while they are linked
    Proxy* to_control = nullptr;
    {
        MutexLock lock(mutex_);
        if (accepted.front() != nullptr) {
            count_operations(accepted, statistics_);
            queue_->submit(*accepted.front());
            to_control = pump();
            const bool nobody_polls = !has_leader_ && queue_->pending_callbacks() > 0;
            if (nobody_polls ||
                (earliest_deadline_ns != 0 && earliest_deadline_ns < next_look_ns_)) {
                poke();
            }
            waiters_.wake_finished();
        }
        complete_rejected(rejected, statistics_);
    }
    submit_to_control(to_control);
}

}  // namespace tiffin::rdma_blk
