// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/tcp_memory.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "rdma_blk/transport/tcp/operation_word.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kOpenTimeoutNs = 10'000 * kMillisecondNs;
// Messages that are no requests: probes, lease, close.
constexpr size_t kControlMessages = 16;

// Outside of the lock, as it takes time; but for what datagrams sum up themselves.
void prepare_words(const OperationQueue& batch, bool needs_checksums) {
    for (Operation* operation = batch.front(); operation != nullptr; operation = operation->next) {
        const bool is_summed_up = needs_checksums && operation->kind == OperationKind::write;
        set_word(*operation, is_summed_up ? checksum_word(*operation) : 0);
    }
}

}  // namespace

// ---- Opening ----------------------------------------------------------------------------------------

TcpMemory::TcpMemory(const RemoteAddress& address, const OpenOptions& options,
                     ConnectionListener* listener, OneSidedUser* user,
                     const StreamExtension& extension)
    : address_(address),
      volume_name_(options.volume_name),
      holder_text_(options.holder_text),
      options_(options),
      listener_(listener),
      user_(user),
      extension_(extension),
      busy_poll_(options.busy_poll_us) {
    options_.volume_name = volume_name_.c_str();
    options_.holder_text = holder_text_.c_str();
}

TcpMemory::~TcpMemory() {
    TIFFIN_ASSERT(!thread_.running());
    if (event_ >= 0) {
        ::close(event_);
    }
    explicit_bzero(options_.key, sizeof(options_.key));
}

Result<void> TcpMemory::prepare(uint16_t slot_count) {
    TRY(initialize_cryptography());
    connection_ = TRY(ClientConnection::create(slot_count + kControlMessages));
    entries_.resize(slot_count);
    outcomes_.resize(wire::kMaxSlots);
    event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (event_ < 0) {
        return Error::eio;
    }
    MutexLock lock(mutex_);
    slots_ = TRY(RequestSlots::create(slot_count, ExecutedBy::server));
    notes_.resize(slot_count);
    if (extension_.measured) {
        choice_.emplace(*extension_.measured);
    }
    return {};
}

Result<Socket> TcpMemory::connect(uint64_t deadline_ns, std::string& problem) {
    return extension_.socket_path.empty() ? connect_tcp(address_, deadline_ns, *this, problem)
                                          : connect_unix(extension_.socket_path, problem);
}

Result<void> TcpMemory::open_first(Holder& holder, std::string& problem) {
    const uint64_t deadline = host::monotonic_ns() + kOpenTimeoutNs;
    Socket socket = TRY(connect(deadline, problem));
    TRY(connection_->open(std::move(socket), options_, deadline, *this, problem));
    SessionFacts facts;
    problem = "the server does not answer as it should";
    const auto answer =
        TRY(open_session(*connection_, options_, facts, 1, {}, outcomes_.data(), deadline, *this));
    if (!answer.is_opened) {
        return refusal_error(answer.refused, holder, problem);
    }
    geometry_ = geometry_of(answer.opened);
    limits_ = limits_of(answer.opened, options_.slot_count);
    problem.clear();
    MutexLock lock(mutex_);
    facts_.is_writer = options_.mode == OpenOptions::Mode::write;
    return adopt(answer.opened);
}

Result<std::unique_ptr<TcpMemory>> TcpMemory::open(const RemoteAddress& address,
                                                   const OpenOptions& options,
                                                   ConnectionListener* listener, Holder& holder,
                                                   std::string& problem, OneSidedUser* user,
                                                   const StreamExtension& extension) {
    const size_t name_bytes = std::strlen(options.volume_name);
    if (name_bytes == 0 || name_bytes > wire::kMaxVolumeNameBytes || options.slot_count == 0 ||
        options.slot_count > wire::kMaxSlots) {
        problem = "a volume's name has 1 to 63 bytes, a session 1 to 1024 slots";
        return Error::einval;
    }
    std::unique_ptr<TcpMemory> memory(new (std::nothrow)
                                          TcpMemory(address, options, listener, user, extension));
    if (!memory) {
        return Error::enomem;
    }
    TRY(memory->prepare(options.slot_count));
    TRY(memory->open_first(holder, problem));
    const auto started = memory->thread_.start("tiffin-tcp", run_thread, memory.get());
    if (!started.ok()) {
        problem = "no thread can be started";
        memory->close();
        return started.error();
    }
    return memory;
}

// ---- Questions -----------------------------------------------------------------------------------------

ConnectionInfo TcpMemory::connection() const {
    MutexLock lock(mutex_);
    return present_info();
}

ConnectionInfo TcpMemory::present_info() const {
    ConnectionInfo info;
    info.state = state_;
    info.transport_name = extension_.one_sided != nullptr ? extension_.one_sided->name() : "tcp";
    info.transport_reason = extension_.transport_reason;
    if (extension_.requests != nullptr) {
        const bool is_up = extension_.requests->is_up();
        info.transport_name = is_up ? extension_.requests->name() : "tcp";
        info.transport_reason =
            is_up ? extension_.transport_reason : "no datagrams come through at present";
    }
    if (choice_) {
        const bool takes_datagrams = choice_->settled() == WayChoice::Way::datagrams;
        const bool is_up = takes_datagrams && extension_.requests->is_up();
        info.transport_name = is_up ? extension_.requests->name() : "tcp";
        info.transport_reason = takes_datagrams             ? "faster than tcp in a trial"
                                : choice_->stream_ns() == 0 ? extension_.transport_reason
                                                            : "faster than sdr in a trial";
    }
    info.session_id = facts_.session_id;
    info.incarnation = facts_.incarnation;
    info.epoch = facts_.epoch;
    info.content_incarnation = facts_.content_incarnation;
    info.empty_since_incarnation = facts_.empty_since_incarnation;
    info.inherits_unflushed = facts_.inherits_unflushed;
    return info;
}

Statistics TcpMemory::statistics() const {
    MutexLock lock(mutex_);
    Statistics result = statistics_;
    for (size_t i = 0; i < std::size(result.outcomes); i++) {
        result.outcomes[i] += slots_->statistics().completed[i];
    }
    result.replayed_operations = slots_->statistics().replayed;
    if (extension_.requests != nullptr) {
        extension_.requests->add_statistics(result);
    }
    return result;
}

Result<void> TcpMemory::add_arena(MutableByteSpan memory) {
    (void)memory;
    return {};
}

// ---- Submitting ------------------------------------------------------------------------------------------

// Of a batch's flushes only the last one counts: it covers what the others do.
void TcpMemory::note_flush(const OperationQueue& batch) {
    Operation* last_flush = nullptr;
    uint64_t changes = 0;
    uint64_t changes_before = 0;
    for (Operation* operation = batch.front(); operation != nullptr; operation = operation->next) {
        changes += is_change(*operation) ? 1 : 0;
        if (operation->kind == OperationKind::flush && operation->space == AddressSpace::data) {
            last_flush = operation;
            changes_before = changes;
        }
    }
    if (last_flush == nullptr || last_flush->range_count != 0) {
        return;  // see changes_flushed()
    }
    const uint64_t ordered =
        last_flush->after_earlier ? slots_->pending_changes() + changes_before : 0;
    set_word(*last_flush, all_changes() + ordered);
}

// With the lease: what earlier writers have left is flushed, or lost, with what this session writes.
void TcpMemory::note_inherited(bool is_unflushed) {
    facts_.inherits_unflushed = is_unflushed;
    change_count_ += is_unflushed ? 1 : 0;
}

// Of the writer, at its end. What has no known outcome may have changed something that was not counted.
bool TcpMemory::has_flushed_all() const {
    const auto& completed = slots_->statistics().completed;
    return facts_.is_writer && all_changes() <= flushed_count_ && slots_->pending_changes() == 0 &&
           completed[static_cast<size_t>(Outcome::unknown)] == 0;
}

uint64_t TcpMemory::all_changes() const {
    return change_count_ + (user_ != nullptr ? user_->change_count() : 0) +
           (extension_.one_sided != nullptr ? extension_.one_sided->change_count() : 0);
}

bool TcpMemory::has_pending() const {
    MutexLock lock(mutex_);
    return slots_->pending_count() > 0;
}

uint64_t TcpMemory::change_mark() const {
    MutexLock lock(mutex_);
    return all_changes();
}

void TcpMemory::changes_flushed(uint64_t mark) {
    MutexLock lock(mutex_);
    flushed_count_ = std::max(flushed_count_, mark);
}

void TcpMemory::submit(Operation& first) {
    const auto [accepted, rejected] = sort_operations(first, limits_);
    const uint64_t earliest_deadline_ns = accepted.earliest_deadline_ns();  // while they are linked
    prepare_words(accepted, !takes_datagrams_.load(std::memory_order_relaxed));
    MutexLock lock(mutex_);
    if (accepted.front() != nullptr) {
        count_operations(accepted, statistics_);
        note_flush(accepted);
        slots_->submit(*accepted.front());
        send_queued();
        poke_after_submit(earliest_deadline_ns);
    }
    complete_rejected(rejected, statistics_);
}

// The thread is woken only if it is about to miss something.
void TcpMemory::poke_after_submit(uint64_t earliest_deadline_ns) {
    const bool nobody_receives = !has_leader_ && !is_thread_receiving_;
    // The path repeats what is lost after milliseconds; the thread may have thought it idle.
    const bool sleeps_too_long = is_thread_receiving_ && has_request_path() &&
                                 slots_->pending_count() > 0 &&
                                 next_look_ns_ > host::monotonic_ns() + 2 * kLongestPathSleepNs;
    if ((nobody_receives && slots_->pending_callbacks() > 0) || sleeps_too_long ||
        (earliest_deadline_ns != 0 && earliest_deadline_ns < next_look_ns_)) {
        poke();
    }
}

}  // namespace tiffin::rdma_blk
