// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/volume_session.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "fs/vfs/host.h"
#include "rdma_blk/server/whole_units.h"
#include "rdma_blk/wire/parse.h"
#include "rdma_blk/wire/store_release.h"

namespace tiffin::rdma_blk {
namespace {

OperationKind kind_of(const wire::Request& request) {
    return static_cast<OperationKind>(request.operation);
}

constexpr uint64_t kCacheLineBytes = 64;
constexpr uint64_t kPrefetchedBytes = 1024;

size_t answer_bytes(const wire::Request& request) {
    return sizeof(wire::MessageHeader) + sizeof(wire::Response) +
           (kind_of(request) == OperationKind::read ? request.length_bytes : 0);
}

}  // namespace

VolumeSession::VolumeSession(const Place& place) : place_(place) {}

Result<std::shared_ptr<VolumeSession>> VolumeSession::create(const Place& place) {
    std::shared_ptr<VolumeSession> session(new VolumeSession(place));
    MutexLock lock(session->mutex_);
    session->table_ = TRY(SlotTable::create(place.entries));
    session->waiting_.resize(place.entries.size());
    session->flush_paths_.resize(place.entries.size());
    return session;
}

unsigned char* VolumeSession::address(const wire::Request& request) const {
    const bool is_control = request.space == static_cast<uint8_t>(AddressSpace::control);
    return (is_control ? place_.memory.control : place_.memory.data) + request.offset_bytes;
}

// The first part of what it reads or writes; the processor goes on by itself. Whatever the request says, it is memory of
// the volume: the end is not behind the volume's.
void VolumeSession::prefetch(const wire::Request& request) const {
    const bool is_data = request.space == static_cast<uint8_t>(AddressSpace::data);
    const uint64_t size_bytes = is_data ? table_->access().data_bytes : 0;
    if (request.offset_bytes >= size_bytes) {
        return;
    }
    const uint64_t bytes = std::min(
        {uint64_t{request.length_bytes}, kPrefetchedBytes, size_bytes - request.offset_bytes});
    for (uint64_t at = 0; at < bytes; at += kCacheLineBytes) {
        __builtin_prefetch(place_.memory.data + request.offset_bytes + at);
    }
}

// ---- Requests ------------------------------------------------------------------------------------------

Result<void> VolumeSession::handle_request(const std::shared_ptr<SessionPath>& path,
                                           const wire::Request& request, ByteSpan payload,
                                           const wire::Request* next) {
    MutexLock lock(mutex_);
    if (closed_ || !is_path(path)) {
        return Error::estale;
    }
    count(place_.counters->requests[request.operation]);
    if (next != nullptr) {
        prefetch(*next);
    }
    const Result<RequestDecision> decision = table_->decide(request);
    if (!decision.ok()) {
        count(place_.counters->malformed);
        return decision.error();
    }
    act(path, request, payload, decision.value());
    serve_ready();
    update_busy();
    return {};
}

void VolumeSession::act(const std::shared_ptr<SessionPath>& path, const wire::Request& request,
                        ByteSpan payload, const RequestDecision& decision) {
    switch (decision.action) {
        case RequestAction::execute:
            execute(path, request, payload);
            break;
        case RequestAction::wait:
            keep_waiting(path, request, payload);
            break;
        case RequestAction::reply:
            count_response(decision.response);
            path->send_response(decision.response, ByteSpan());
            break;
        case RequestAction::ignore:
            count(place_.counters->ignored);
            if (!table_->is_in_progress(request) || !takes_answer_over(path, request.slot)) {
                path->request_ignored();
            }
            break;
    }
}

void VolumeSession::execute(const std::shared_ptr<SessionPath>& path, const wire::Request& request,
                            ByteSpan payload) {
    wire::Response response{};
    ByteSpan answer;
    switch (kind_of(request)) {
        case OperationKind::read:
            response = table_->finish(request, Outcome::executed, Error::eio, 0);
            response.payload_bytes = request.length_bytes;
            answer = ByteSpan(address(request), request.length_bytes);
            count(place_.counters->bytes_read, request.length_bytes);
            break;
        case OperationKind::write:
            write_whole_units(place_.record->unit, static_cast<AddressSpace>(request.space),
                              request.offset_bytes, address(request), payload);
            response = table_->finish(request, Outcome::executed, Error::eio, 0);
            count(place_.counters->bytes_written, payload.size());
            break;
        case OperationKind::compare_swap:
        case OperationKind::fetch_add:
            response =
                execute_atomic(*table_, request, reinterpret_cast<uint64_t*>(address(request)));
            break;
        case OperationKind::flush:
            start_flush(path, request, payload);
            return;
    }
    count_response(response);
    path->send_response(response, answer);
}

void VolumeSession::start_flush(const std::shared_ptr<SessionPath>& path,
                                const wire::Request& request, ByteSpan payload) {
    FlushJob job{shared_from_this(), request, {}, host::monotonic_ns()};
    count(place_.counters->flushes);
    for (size_t index = 0; index < payload.size() / sizeof(wire::FlushRange); index++) {
        // Both were checked by nobody yet: what a parser says about the bytes, and the volume's bounds.
        const Result<wire::FlushRange> range = wire::parse_flush_range(payload, index);
        const Result<void> access =
            range.ok() ? check_flush_range(table_->access(), request, range.value())
                       : range.error();
        if (!access.ok()) {
            const wire::Response response = table_->finish(
                request, Outcome::not_executed, range.ok() ? access.error() : Error::einval, 0);
            count_response(response);
            path->send_response(response, ByteSpan());
            return;
        }
        job.ranges.push_back(range.value());
    }
    if (place_.flusher != nullptr) {
        flush_paths_[request.slot] = path;
        place_.flusher->start(std::move(job));
        return;
    }
    const wire::Response response =
        table_->finish(request, Outcome::executed, Error::eio, place_.content_incarnation->load());
    count_response(response);
    path->send_response(response, ByteSpan());
}

void VolumeSession::finish_flush(const FlushJob& job, Result<void> result) {
    MutexLock lock(mutex_);
    const wire::Response response =
        result.ok() ? table_->finish(job.request, Outcome::executed, Error::eio,
                                     place_.content_incarnation->load())
                    : table_->finish(job.request, Outcome::not_executed, result.error(), 0);
    if (!result.ok() && result.error() != Error::estale) {
        count(place_.counters->flush_errors);
    }
    place_.counters->flush_durations.note(host::monotonic_ns() - job.began_ns);
    count_response(response);
    if (const auto path = std::move(flush_paths_[job.request.slot])) {
        living(path)->send_response(response, ByteSpan());
    }
    serve_ready();
    update_busy();
    if (table_->executing_count() == 0 && waits_for_idle_) {
        waits_for_idle_->wake();
        waits_for_idle_.reset();
    }
}

bool VolumeSession::copy_stable(unsigned char* destination, const unsigned char* source,
                                size_t size_bytes) {
    MutexLock lock(mutex_);
    if (is_fenced()) {
        return false;
    }
    std::memcpy(destination, source, size_bytes);
    return true;
}

// ---- Waiting for earlier ones ---------------------------------------------------------------------------

void VolumeSession::keep_waiting(const std::shared_ptr<SessionPath>& path,
                                 const wire::Request& request, ByteSpan payload) {
    Waiting& waiting = waiting_[request.slot];
    waiting.request = request;
    waiting.payload.assign(payload.begin(), payload.end());
    waiting.path = waiting.holder = path;
    path->hold(waiting.payload.size(), answer_bytes(request));
}

void VolumeSession::Waiting::release() {
    if (const auto held_by = std::exchange(holder, nullptr)) {
        held_by->release_held(payload.size(), answer_bytes(request));
    }
}

// Any path that lives: what was asked for is answered, though the path on which it was has gone.
const std::shared_ptr<SessionPath>& VolumeSession::living(
    const std::shared_ptr<SessionPath>& path) const {
    return is_path(path) || paths_.empty() ? path : paths_.front().path;
}

// A repetition of what waits, or is being flushed: its client may have given up the path on which it came first, before
// this end knows. What waits is held of that one still: this one has to be read, since what it waits for comes here.
bool VolumeSession::takes_answer_over(const std::shared_ptr<SessionPath>& path, uint16_t slot) {
    Waiting& waiting = waiting_[slot];
    std::shared_ptr<SessionPath>& place = waiting.path ? waiting.path : flush_paths_[slot];
    if (!place || place == path) {
        return false;
    }
    place->request_ignored();
    place = path;
    return true;
}

void VolumeSession::serve_ready() {
    ReadyRequest ready;
    while (table_->next_ready(ready)) {
        Waiting waiting = std::move(waiting_[ready.slot]);
        waiting_[ready.slot] = Waiting{};
        if (!waiting.path) {  // forgotten when the session was fenced; the table has refused it
            continue;
        }
        waiting.release();
        act(living(waiting.path), waiting.request,
            ByteSpan(waiting.payload.data(), waiting.payload.size()), ready.decision);
    }
}

void VolumeSession::forget_waiting() {
    for (Waiting& waiting : waiting_) {
        waiting.release();
        waiting = Waiting{};
    }
}

// ---- Paths and incarnations ---------------------------------------------------------------------------

bool VolumeSession::is_path(const std::shared_ptr<SessionPath>& path) const {
    return std::any_of(paths_.begin(), paths_.end(),
                       [&](const JoinedPath& each) { return each.path == path; });
}

// One that does not end is kept by the volume, which gives nobody the lease then.
Result<void> VolumeSession::end_rc_paths(const SessionPath* connection) {
    for (size_t index = 0; index < rc_paths_.size();) {
        JoinedRc& joined = rc_paths_[index];
        if (connection != nullptr && joined.connection != connection) {
            index++;
            continue;
        }
        (void)place_.rc_leftovers->end(id(), std::move(joined.path));
        rc_paths_.erase(rc_paths_.begin() + static_cast<ptrdiff_t>(index));
    }
    return place_.rc_leftovers->end_of(id());
}

void VolumeSession::end_paths(const wire::Notice* notice) {
    (void)end_rc_paths(nullptr);
    for (const JoinedPath& each : paths_) {
        each.path->end(notice);
    }
    paths_.clear();
}

bool VolumeSession::wait_until_idle(const std::shared_ptr<SessionPath>& path) {
    if (table_->executing_count() == 0) {
        return true;
    }
    waits_for_idle_ = path;
    return false;
}

VolumeSession::OpenResult VolumeSession::open_incarnation(const wire::SessionOpen& open,
                                                          ByteSpan entries,
                                                          const std::shared_ptr<SessionPath>& path,
                                                          unsigned char* outcomes) {
    MutexLock lock(mutex_);
    if (closed_ || open.incarnation <= table_->incarnation()) {
        return OpenResult::stale;
    }
    end_paths(nullptr);
    if (!end_rc_paths(nullptr).ok()) {
        return OpenResult::not_ended;
    }
    if (!wait_until_idle(path)) {
        return OpenResult::busy;
    }
    const Result<void> opened =
        table_->open_incarnation(open.incarnation, open.next_sequence, entries, outcomes);
    if (!opened.ok()) {
        return opened.error() == Error::estale ? OpenResult::stale : OpenResult::malformed;
    }
    forget_waiting();
    store_release(place_.record->incarnation, open.incarnation);
    paths_.push_back({path, 0});
    last_path_id_ = 0;
    has_secret_ = false;
    update_busy();
    return OpenResult::opened;
}

bool VolumeSession::join(uint32_t incarnation, const std::shared_ptr<SessionPath>& path,
                         uint16_t path_id) {
    MutexLock lock(mutex_);
    if (closed_ || is_fenced() || incarnation != table_->incarnation() || paths_.empty() ||
        paths_.size() >= kMaxPaths) {
        return false;
    }
    paths_.push_back({path, path_id});
    return true;
}

Result<void> VolumeSession::join_rc(uint32_t incarnation, const SessionPath& connection,
                                    bool is_only, std::unique_ptr<RcPath> path,
                                    wire::RcPathAnswer& answer) {
    MutexLock lock(mutex_);
    const bool is_connected =
        std::any_of(paths_.begin(), paths_.end(),
                    [&](const JoinedPath& each) { return each.path.get() == &connection; });
    if (closed_ || is_fenced() || incarnation != table_->incarnation() || !is_connected) {
        return Error::estale;
    }
    TRY(end_rc_paths(is_only ? nullptr : &connection));
    const Result<void> opened = path->open_windows(table_->access(), answer);
    rc_paths_.push_back({std::move(path), &connection});
    if (!opened.ok()) {
        (void)end_rc_paths(&connection);
    }
    return opened;
}

bool VolumeSession::has_rc_path() const {
    MutexLock lock(mutex_);
    return !rc_paths_.empty();
}

void VolumeSession::path_lost(const SessionPath& path) {
    MutexLock lock(mutex_);
    (void)end_rc_paths(&path);
    if (waits_for_idle_.get() == &path) {
        waits_for_idle_.reset();
    }
    remove_path(path);
}

void VolumeSession::remove_path(const SessionPath& path) {
    paths_.erase(std::remove_if(paths_.begin(), paths_.end(),
                                [&](const JoinedPath& each) { return each.path.get() == &path; }),
                 paths_.end());
    // What waits of this path goes on waiting, for another one if there is any. Else its turn comes all the same, and the
    // reply is kept; the next incarnation forgets the rest. It is not held of the other one, which would stop reading,
    // perhaps before what this waits for: there is one for each slot at most.
    for (Waiting& waiting : waiting_) {
        if (waiting.holder.get() == &path) {
            waiting.release();
        }
        if (waiting.path.get() == &path && !paths_.empty()) {
            waiting.path = paths_.front().path;
        }
    }
}

void VolumeSession::fence(const wire::Notice& notice) {
    MutexLock lock(mutex_);
    fenced_.store(true, std::memory_order_release);
    table_->fence();
    end_paths(&notice);
    forget_waiting();
}

bool VolumeSession::close(const std::shared_ptr<SessionPath>& path, const wire::Notice* notice) {
    MutexLock lock(mutex_);
    if (closed_) {
        return true;
    }
    if (path != nullptr) {  // the one that asked lives on until it has its answer
        remove_path(*path);
    }
    end_paths(notice);
    if (!wait_until_idle(path)) {
        return false;
    }
    forget_waiting();
    closed_ = true;
    return true;
}

void VolumeSession::notify(const wire::Notice& notice) {
    MutexLock lock(mutex_);
    for (const JoinedPath& each : paths_) {
        each.path->send_notice(notice);
    }
}

void VolumeSession::recover() {
    MutexLock lock(mutex_);
    const auto word = [](void* owner, AddressSpace space, uint64_t offset_bytes) {
        const VolumeMemory& memory = static_cast<VolumeSession*>(owner)->place_.memory;
        const unsigned char* base = space == AddressSpace::control ? memory.control : memory.data;
        uint64_t value = 0;
        std::memcpy(&value, base + offset_bytes, sizeof(value));
        return value;
    };
    const bool has_mapped_data = __atomic_load_n(&place_.record->process_id, __ATOMIC_ACQUIRE) != 0;
    table_->recover(place_.record->incarnation, word, this, has_mapped_data);
}

// ---- Small things ---------------------------------------------------------------------------------------

void VolumeSession::set_access(const SessionAccess& access) {
    MutexLock lock(mutex_);
    table_->set_access(access);
}

SessionAccess VolumeSession::access() const {
    MutexLock lock(mutex_);
    return table_->access();
}

size_t VolumeSession::path_count() const {
    MutexLock lock(mutex_);
    return paths_.size();
}

uint32_t VolumeSession::incarnation() const {
    MutexLock lock(mutex_);
    return table_->incarnation();
}

SlotTable::Statistics VolumeSession::statistics() const {
    MutexLock lock(mutex_);
    return table_->statistics();
}

void VolumeSession::update_busy() {
    busy_count_.store(uint32_t{table_->executing_count()} + table_->waiting_count(),
                      std::memory_order_relaxed);
}

void VolumeSession::count_response(const wire::Response& response) {
    VolumeCounters& counters = *place_.counters;
    if (response.outcome == static_cast<uint8_t>(Outcome::executed)) {
        count(counters.executed);
    } else if (response.error == errno_value(Error::erofs)) {
        count(counters.refused_read_only);
    } else if (response.error == errno_value(Error::estale)) {
        count(counters.refused_stale);
    } else if (response.error == errno_value(Error::eio)) {
        count(counters.refused_range);
    } else {
        count(counters.refused_other);
    }
}

}  // namespace tiffin::rdma_blk
