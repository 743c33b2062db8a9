// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/rc/rc_memory.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "rdma_blk/wire/control_area.h"

namespace tiffin::rdma_blk {
namespace {

// Longer than a queue pair tries.
constexpr uint64_t kTryNs = 3'000'000'000;

}  // namespace

// ---- Opening --------------------------------------------------------------------------------------------

RcMemory::RcMemory(const OpenOptions& options, const char* reason, ConnectionListener* listener)
    : options_(options), reason_(reason), listener_(listener) {}

RcMemory::~RcMemory() {
    TIFFIN_ASSERT(!thread_.running());
    path_.queue_pair.reset();
    arenas_.clear();
    bounce_.destroy();
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
    std::unique_ptr<RcMemory> memory(new (std::nothrow) RcMemory(options, reason, listener));
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
    uint8_t address[16];
    TRY(control_->local_address(address));
    auto device = verbs::devices().open(address, problem);
    if (!device.ok()) {
        return device.error();
    }
    device_ = device.release_value();
    limits_ = control_->limits();
    limits_.inline_bytes = device_->capabilities().inline_bytes;
    // Bounce buffers are in pieces, too.
    const uint32_t piece_count = std::min(device_->capabilities().piece_count, kMaxPieces);
    limits_.transfer_bytes =
        std::min(limits_.transfer_bytes, piece_count * BouncePool::kChunkBytes);
    limits_.eager_bytes = std::min(limits_.eager_bytes, limits_.transfer_bytes);
    const uint16_t depth = static_cast<uint16_t>(limits_.operations_in_flight);
    beat_interval_ns_ = uint64_t{control_->probe_interval_ms()} * 1'000'000;
    {
        MutexLock lock(mutex_);
        queue_ = TRY(OneSidedQueue::create(depth));
        entries_.resize(depth);
        work_.resize(size_t{2} * depth);
        log_writes_.resize(depth);
        arenas_.reserve(kMaxArenas);
        problem = "memory cannot be registered with the RDMA device (ulimit -l?)";
        TRY(bounce_.create(*device_, depth));
        proxies_ = std::vector<Proxy>(depth);
        for (Proxy& proxy : proxies_) {
            proxy.owner = this;
            proxy.next = std::exchange(free_proxies_, &proxy);
        }
    }
    Path path = TRY(ask_for_path(problem));
    MutexLock lock(mutex_);
    if (!adopt(path)) {
        problem = "the connection broke";
        return Error::eio;
    }
    problem.clear();
    return {};
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
        word = {&bounce_.word(0), sizeof(uint64_t), bounce_.local_key()};
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
    verbs::QueuePair& queue_pair = *path.queue_pair;
    TRY(queue_pair.post(work + 2 - count, count));
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
    if (completion.status != verbs::Status::success) {
        return Error::eio;
    }
    MutexLock lock(mutex_);
    path.executed_through = bounce_.word(0);
    log_session_id_ = session_id;
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
    return info;
}

void RcMemory::set_state(ConnectionState state) {
    state_ = state;
    changed_.notify_all();
    if (listener_ != nullptr) {
        listener_->connection_changed(present_info());
    }
}

// By control_'s threads, with its lock held.
void RcMemory::connection_changed(const ConnectionInfo& info) {
    session_id_.store(info.session_id);
    incarnation_.store(info.incarnation);
    epoch_.store(info.epoch);
    content_incarnation_.store(info.content_incarnation);
    empty_since_incarnation_.store(info.empty_since_incarnation);
    inherits_unflushed_.store(info.inherits_unflushed);
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
    result.round_trips += control.round_trips;
    result.system_calls += control.system_calls;
    result.aborts += control.aborts;
    return result;
}

Result<void> RcMemory::add_arena(MutableByteSpan memory) {
    auto registered = TRY(device_->register_memory(memory.data(), memory.size(), false));
    MutexLock lock(mutex_);
    if (arenas_.size() == kMaxArenas) {
        return Error::enospc;
    }
    Arena arena;
    arena.begin = memory.data();
    arena.end = memory.data() + memory.size();
    arena.memory = std::move(registered);
    arenas_.push_back(std::move(arena));
    return {};
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
