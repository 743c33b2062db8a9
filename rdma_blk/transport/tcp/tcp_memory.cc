// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/tcp_memory.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;
constexpr uint64_t kOpenTimeoutNs = 10'000 * kMillisecondNs;
// Messages that are no requests: probes, lease, close.
constexpr size_t kControlMessages = 16;

// The transport's word in an operation: of a write the checksum of its data, of a flush how many changes
// it covers.
void set_word(Operation& operation, uint64_t word) {
    operation.transport_data = reinterpret_cast<void*>(word);
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
      extension_(extension) {
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
    return result;
}

Result<void> TcpMemory::add_arena(MutableByteSpan memory) {
    (void)memory;
    return {};
}

// ---- Submitting ------------------------------------------------------------------------------------------

// What a server would take for a broken peer must not get to it.
bool TcpMemory::is_within_limits(const Operation& operation) const {
    switch (operation.kind) {
        case OperationKind::read:
        case OperationKind::write: {
            const uint64_t bytes = transfer_bytes(operation);
            return operation.buffer_count <= limits_.buffer_count &&
                   bytes <= limits_.transfer_bytes &&
                   operation.offset_bytes <= wire::kMaxSpaceBytes - bytes;
        }
        case OperationKind::compare_swap:
        case OperationKind::fetch_add:
            return operation.offset_bytes % sizeof(uint64_t) == 0 &&
                   operation.offset_bytes <= wire::kMaxSpaceBytes - sizeof(uint64_t);
        case OperationKind::flush:
            return operation.range_count <= limits_.flush_range_count &&
                   std::all_of(operation.ranges, operation.ranges + operation.range_count,
                               [](const ByteRange& range) {
                                   return range.length_bytes <= wire::kMaxSpaceBytes &&
                                          range.offset_bytes <=
                                              wire::kMaxSpaceBytes - range.length_bytes;
                               });
    }
    return false;
}

void TcpMemory::Batch::append(Operation& operation) {
    if (last == nullptr) {
        first = &operation;
    } else {
        last->next = &operation;
    }
    last = &operation;
    operation.next = nullptr;
    if (operation.deadline_ns != 0 &&
        (earliest_deadline_ns == 0 || operation.deadline_ns < earliest_deadline_ns)) {
        earliest_deadline_ns = operation.deadline_ns;
    }
    if (operation.kind == OperationKind::flush) {
        last_flush = &operation;
        changes_before_flush = changes;
    } else if (is_change(operation)) {
        changes++;
    }
}

// Parts what can be sent from what cannot, and computes checksums, all outside of the lock.
void TcpMemory::sort_batch(Operation& first, uint64_t now_ns, Batch& accepted,
                           Batch& rejected) const {
    Operation* operation = &first;
    while (operation != nullptr) {
        Operation* next = operation->next;
        const bool is_late = operation->deadline_ns != 0 && operation->deadline_ns <= now_ns;
        if (!is_within_limits(*operation)) {
            operation->error = Error::einval;
            rejected.append(*operation);
        } else if (operation->after_earlier && rejected.first != nullptr) {
            operation->error = Error::ecanceled;
            rejected.append(*operation);
        } else if (is_late) {
            operation->error = Error::etimedout;
            rejected.append(*operation);
        } else {
            uint32_t checksum = 0;
            for (size_t i = 0;
                 operation->kind == OperationKind::write && i < operation->buffer_count; i++) {
                checksum = host::crc32c(checksum, operation->buffers[i].data,
                                        operation->buffers[i].size_bytes);
            }
            set_word(*operation, checksum);
            accepted.append(*operation);
        }
        operation = next;
    }
}

void TcpMemory::note_flush(const Batch& batch) {
    if (batch.last_flush == nullptr) {
        return;
    }
    if (batch.last_flush->range_count != 0) {
        set_word(*batch.last_flush, 0);  // see changes_flushed()
        return;
    }
    const uint64_t ordered = batch.last_flush->after_earlier
                                 ? slots_->pending_changes() + batch.changes_before_flush
                                 : 0;
    set_word(*batch.last_flush, all_changes() + ordered);
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

void TcpMemory::complete_rejected(Batch& rejected) {
    Operation* operation = rejected.first;
    while (operation != nullptr) {
        Operation* next = operation->next;
        statistics_.operations[static_cast<size_t>(operation->kind) % 6]++;
        statistics_.outcomes[static_cast<size_t>(Outcome::not_executed)]++;
        complete_operation(*operation, Outcome::not_executed);
        operation = next;
    }
}

void TcpMemory::submit(Operation& first) {
    bool has_deadline = false;
    for (const Operation* operation = &first; operation != nullptr; operation = operation->next) {
        has_deadline = has_deadline || operation->deadline_ns != 0;
    }
    Batch accepted;
    Batch rejected;
    sort_batch(first, has_deadline ? host::monotonic_ns() : 0, accepted, rejected);
    MutexLock lock(mutex_);
    if (accepted.first != nullptr) {
        for (const Operation* operation = accepted.first; operation != nullptr;
             operation = operation->next) {
            statistics_.operations[static_cast<size_t>(operation->kind)]++;
        }
        note_flush(accepted);
        slots_->submit(*accepted.first);
        send_queued();
        poke_after_submit(accepted.earliest_deadline_ns);
    }
    complete_rejected(rejected);
}

// The thread is woken only if it is about to miss something.
void TcpMemory::poke_after_submit(uint64_t earliest_deadline_ns) {
    const bool nobody_receives = !has_leader_ && !is_thread_receiving_;
    if ((nobody_receives && slots_->pending_callbacks() > 0) ||
        (earliest_deadline_ns != 0 && earliest_deadline_ns < next_look_ns_)) {
        poke();
    }
}

}  // namespace tiffin::rdma_blk
