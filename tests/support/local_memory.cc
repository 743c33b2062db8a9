// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/local_memory.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/control_area.h"

namespace tiffin::test {
namespace {

using rdma_blk::AddressSpace;
using rdma_blk::ConnectionState;
using rdma_blk::Operation;
using rdma_blk::OperationKind;
using rdma_blk::Outcome;

constexpr size_t kQuicklyComparedBytes = 8 << 20;
constexpr ptrdiff_t kWordsOffset = 8192;

// Set while completions run: they may not call the memory.
thread_local bool t_in_completion = false;

bool overlap(const Operation& write, uint64_t write_bytes, const rdma_blk::ByteRange& range) {
    return write.offset_bytes < range.offset_bytes + range.length_bytes &&
           range.offset_bytes < write.offset_bytes + write_bytes;
}

uint64_t length_of(const Operation& operation) {
    uint64_t length_bytes = 0;
    for (size_t i = 0; i < operation.buffer_count; ++i) {
        length_bytes += operation.buffers[i].size_bytes;
    }
    return length_bytes;
}

bool is_final(ConnectionState state) {
    return state == ConnectionState::fenced || state == ConnectionState::memory_lost ||
           state == ConnectionState::closed;
}

}  // namespace

LocalServer::LocalServer(uint64_t data_bytes, uint32_t server_number)
    : data(data_bytes), durable(data_bytes), number(server_number) {
    geometry.data_bytes = data_bytes;
    geometry.write_unit_bytes = 64;
    for (uint8_t i = 0; i < 16; ++i) {
        geometry.server_uuid[i] = static_cast<uint8_t>(server_number * 16 + i + 1);
        geometry.volume_uuid[i] = static_cast<uint8_t>(server_number * 16 + i + 101);
    }
    make_control();
}

void LocalServer::make_control() {
    const rdma_blk::wire::ControlLayout layout =
        MUST(rdma_blk::wire::make_control_layout(4, 16, 16, 8192));
    TIFFIN_ASSERT(layout.words_offset == kWordsOffset);
    geometry.control_bytes = layout.control_bytes;
    control.assign(layout.control_bytes, 0);
    rdma_blk::wire::ControlHeader header{};
    header.magic = rdma_blk::wire::kControlMagic;
    header.version = rdma_blk::wire::kControlVersion;
    header.data_bytes = geometry.data_bytes;
    header.control_bytes = layout.control_bytes;
    header.words_offset = layout.words_offset;
    header.words_bytes = layout.words_bytes;
    header.sessions_offset = layout.sessions_offset;
    header.session_count = layout.session_count;
    header.session_stride_bytes = layout.session_stride_bytes;
    header.slot_count = layout.slot_count;
    header.log_entry_count = layout.log_entry_count;
    header.client_offset = layout.client_offset;
    header.write_unit_bytes = geometry.write_unit_bytes;
    std::memcpy(header.server_uuid, geometry.server_uuid, 16);
    std::memcpy(header.volume_uuid, geometry.volume_uuid, 16);
    rdma_blk::wire::seal_control_header(header);
    std::memcpy(control.data(), &header, sizeof(header));
}

void LocalServer::lose_power() {
    data = durable;
    ++content_incarnation;
    if (geometry.durability != rdma_blk::Durability::power) {
        std::fill(data.begin(), data.end(), 0);
        empty_since_incarnation = content_incarnation;
    }
    make_control();
    if (geometry.durability == rdma_blk::Durability::power && forgets_words) {
        words_unknown = true;
    } else if (geometry.durability == rdma_blk::Durability::power && !durable_words.empty()) {
        std::copy(durable_words.begin(), durable_words.end(), control.begin() + kWordsOffset);
    }
}

void LocalServer::flush_words() {
    const auto words = control.begin() + kWordsOffset;
    durable_words.assign(words, words + rdma_blk::wire::kDurableWordsBytes);
    words_unknown = false;
}

LocalMemory::LocalMemory(LocalServer& server, const Options& options,
                         rdma_blk::ConnectionListener* listener)
    : server_(server),
      options_(options),
      geometry_(server.geometry),
      listener_(listener),
      random_(options.seed) {
    geometry_.read_only = !options.may_write;
    if (options.may_write) {
        TIFFIN_ASSERT(server.writer == nullptr);
        server.writer = this;
        inherit();
        if (server.lease_log != nullptr) {
            server.lease_log->push_back(server.number);
        }
    }
    if (options.delivery == Delivery::threaded) {
        thread_ = std::thread([this] { run(); });
    }
}

LocalMemory::~LocalMemory() { TIFFIN_ASSERT(closed_); }

rdma_blk::ConnectionInfo LocalMemory::connection() const {
    TIFFIN_ASSERT(!t_in_completion);
    std::lock_guard lock(mutex_);
    rdma_blk::ConnectionInfo info;
    info.state = state_;
    info.transport_name = "local";
    info.session_id = server_.number + 1;
    info.incarnation = incarnation_;
    info.epoch = 1;
    info.content_incarnation = server_.content_incarnation;
    info.empty_since_incarnation = server_.empty_since_incarnation;
    info.inherits_unflushed = inherits_unflushed_;
    info.words_unknown = server_.words_unknown;
    return info;
}

rdma_blk::Statistics LocalMemory::statistics() const {
    std::lock_guard lock(mutex_);
    return statistics_;
}

LocalMemory::Counts LocalMemory::counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
}

uint64_t LocalMemory::pending() const {
    std::lock_guard lock(mutex_);
    return pending_.size();
}

void LocalMemory::check(const Operation& operation) const {
    TIFFIN_ASSERT(operation.outcome == Outcome::pending);
    TIFFIN_ASSERT(operation.finished.load() == 0);
    TIFFIN_ASSERT(std::find(pending_.begin(), pending_.end(), &operation) == pending_.end());
    switch (operation.kind) {
        case OperationKind::read:
        case OperationKind::write:
            TIFFIN_ASSERT(operation.buffer_count > 0);
            TIFFIN_ASSERT(operation.buffer_count <= options_.limits.buffer_count);
            TIFFIN_ASSERT(length_of(operation) <= options_.limits.transfer_bytes);
            break;
        case OperationKind::flush:
            TIFFIN_ASSERT(operation.range_count <= options_.limits.flush_range_count);
            break;
        case OperationKind::compare_swap:
        case OperationKind::fetch_add:
            TIFFIN_ASSERT(operation.offset_bytes % 8 == 0);
            break;
    }
}

// A disk that takes a unit while a write changes it may keep half of each.
void LocalMemory::check_flush_against_writes() const {
    for (const Operation* flush : pending_) {
        if (flush->kind != OperationKind::flush || flush->space != AddressSpace::data) {
            continue;
        }
        for (const Operation* write : pending_) {
            if (write->kind != OperationKind::write || write->space != AddressSpace::data) {
                continue;
            }
            const Operation* later = flush->submit_number > write->submit_number ? flush : write;
            for (size_t i = 0; i < flush->range_count && !later->after_earlier; ++i) {
                TIFFIN_ASSERT(!overlap(*write, length_of(*write), flush->ranges[i]));
            }
        }
    }
}

void LocalMemory::submit(Operation& first) {
    TIFFIN_ASSERT(!t_in_completion);
    std::unique_lock lock(mutex_);
    TIFFIN_ASSERT(!closed_);
    ++counts_.submits;
    gathers_ = first.more_follows;
    uint64_t batch = 0;
    for (Operation* operation = &first; operation != nullptr; operation = operation->next) {
        check(*operation);
        operation->submit_number = next_number_++;
        operation->transport_data = nullptr;
        pending_.push_back(operation);
        ++batch;
        ++counts_.operations;
        counts_.reads += operation->kind == OperationKind::read ? 1 : 0;
        counts_.writes += operation->kind == OperationKind::write ? 1 : 0;
        counts_.flushes +=
            operation->kind == OperationKind::flush && operation->space == AddressSpace::data ? 1
                                                                                              : 0;
    }
    counts_.largest_batch = std::max(counts_.largest_batch, batch);
    counts_.deepest = std::max<uint64_t>(counts_.deepest, pending_.size());
    check_flush_against_writes();
    if (is_final(state_)) {
        finish_all(Outcome::not_executed,
                   state_ == ConnectionState::closed ? Error::enodev : Error::estale);
    }
    while (options_.delivery == Delivery::at_once && can_run()) {
        execute_at(pick());
    }
    changed_.notify_all();
}

void LocalMemory::send_gathered() {
    TIFFIN_ASSERT(!t_in_completion);
    std::lock_guard lock(mutex_);
    if (std::exchange(gathers_, false)) {
        while (options_.delivery == Delivery::at_once && can_run()) {
            execute_at(pick());
        }
        changed_.notify_all();
    }
}

void LocalMemory::wait(Operation& operation) {
    send_gathered();
    TIFFIN_ASSERT(!t_in_completion);
    TIFFIN_ASSERT(operation.complete == nullptr);
    std::unique_lock lock(mutex_);
    TIFFIN_ASSERT(!closed_);
    changed_.wait(lock, [&] { return operation.finished.load(std::memory_order_acquire) != 0; });
}

// Its thread may be quicker.
bool LocalMemory::help(const std::atomic<uint32_t>& count, uint32_t seen) {
    while (count == seen && progress() > 0) {
    }
    return count != seen;
}

size_t LocalMemory::progress() {
    send_gathered();
    std::lock_guard lock(mutex_);
    if (!can_run()) {
        return 0;
    }
    execute_at(pick());
    changed_.notify_all();
    return 1;
}

Result<void> LocalMemory::add_arena(MutableByteSpan memory) {
    TIFFIN_ASSERT(!memory.empty());
    return {};
}

Result<void> LocalMemory::start_writing(bool force, rdma_blk::Holder& holder) {
    TIFFIN_ASSERT(!t_in_completion);
    std::lock_guard lock(mutex_);
    if (server_.writer == this) {
        return {};
    }
    if (server_.writer != nullptr && !force) {
        std::strcpy(holder.text, "another session");
        return Error::ebusy;
    }
    server_.writer = this;
    inherit();
    geometry_.read_only = false;
    if (server_.lease_log != nullptr) {
        server_.lease_log->push_back(server_.number);
    }
    return {};
}

const void* LocalMemory::direct_address(uint64_t offset_bytes, uint64_t size_bytes) {
    if (!options_.mapped || offset_bytes > server_.data.size() ||
        size_bytes > server_.data.size() - offset_bytes) {
        return nullptr;
    }
    return server_.data.data() + offset_bytes;
}

uint64_t LocalMemory::change_mark() const {
    std::lock_guard lock(mutex_);
    return changes_;
}

// With the lease: what the writers before did not flush. Nothing, of a server that is too large to look at.
void LocalMemory::inherit() {
    inherits_unflushed_ = geometry_.durability == rdma_blk::Durability::power &&
                          server_.data.size() <= kQuicklyComparedBytes &&
                          server_.durable != server_.data;
    changes_ += inherits_unflushed_ ? 1 : 0;
}

void LocalMemory::changes_flushed(uint64_t mark) {
    std::lock_guard lock(mutex_);
    TIFFIN_ASSERT(mark <= changes_);
    TIFFIN_ASSERT(mark < changes_ || server_.data.size() > kQuicklyComparedBytes ||
                  server_.durable == server_.data);
    flushed_mark_ = std::max(flushed_mark_, mark);
}

uint64_t LocalMemory::flushed_mark() const {
    std::lock_guard lock(mutex_);
    return flushed_mark_;
}

void LocalMemory::close() {
    {
        std::lock_guard lock(mutex_);
        TIFFIN_ASSERT(!closed_);
        closed_ = true;
        state_ = ConnectionState::closed;
        if (listener_ != nullptr) {
            rdma_blk::ConnectionInfo info;
            info.state = state_;
            t_in_completion = true;
            listener_->connection_changed(info);
            t_in_completion = false;
        }
        finish_all(Outcome::unknown, Error::enodev);
        if (server_.writer == this) {
            server_.writer = nullptr;
        }
        changed_.notify_all();
    }
    if (thread_.joinable()) {
        thread_.join();
    }
}

void LocalMemory::set_judge(Judge judge) {
    std::lock_guard lock(mutex_);
    judge_ = std::move(judge);
}

void LocalMemory::change_state(ConnectionState state) {
    rdma_blk::ConnectionInfo info = connection();
    std::lock_guard lock(mutex_);
    TIFFIN_ASSERT(!is_final(state_));
    state_ = state;
    info.state = state;
    if (state == ConnectionState::ready) {
        info.incarnation = ++incarnation_;
        ++statistics_.reconnections;
    }
    if (listener_ != nullptr) {
        t_in_completion = true;
        listener_->connection_changed(info);
        t_in_completion = false;
    }
    if (is_final(state)) {
        finish_all(Outcome::unknown,
                   state == ConnectionState::closed ? Error::enodev : Error::estale);
        if (server_.writer == this) {
            server_.writer = nullptr;
        }
    }
    changed_.notify_all();
}

void LocalMemory::hold() {
    std::lock_guard lock(mutex_);
    held_ = true;
}

void LocalMemory::let_go() {
    std::lock_guard lock(mutex_);
    held_ = false;
    changed_.notify_all();
}

void LocalMemory::wait_until_pending(uint64_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return pending_.size() >= count; });
}

bool LocalMemory::can_run() const {
    return !gathers_ && !pending_.empty() && !held_ && state_ == ConnectionState::ready;
}

void LocalMemory::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return closed_ || can_run(); });
        if (closed_) {
            return;
        }
        if (random_() % 16 == 0) {
            // Others submit meanwhile, so that there is an order to be mixed up.
            lock.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            lock.lock();
            continue;
        }
        execute_at(pick());
        changed_.notify_all();
    }
}

// Any of those that need not wait for an earlier one.
size_t LocalMemory::pick() {
    size_t index = random_() % pending_.size();
    while (pending_[index]->after_earlier && index > 0) {
        --index;
    }
    return index;
}

void LocalMemory::execute_at(size_t index) {
    Operation& operation = *pending_[index];
    const bool follows_failure = operation.transport_data != nullptr;
    std::optional<Fault> fault;
    if (follows_failure) {
        fault = Fault{Outcome::not_executed, Error::ecanceled, false};
    } else if (judge_) {
        fault = judge_(operation);
    }
    if (fault.has_value() && !fault->applied) {
        return finish(index, *fault);
    }
    const Fault result = execute(operation);
    finish(index, fault.has_value() ? *fault : result);
}

LocalMemory::Fault LocalMemory::execute(Operation& operation) {
    auto& memory = operation.space == AddressSpace::data ? server_.data : server_.control;
    if (operation.kind != OperationKind::read && server_.writer != this) {
        return {Outcome::not_executed, Error::erofs, false};
    }
    if (operation.kind == OperationKind::flush) {
        if (operation.space == AddressSpace::control) {
            server_.flush_words();
        } else if (operation.range_count == 0) {
            server_.durable = server_.data;
        }
        for (size_t i = 0; i < operation.range_count; ++i) {
            const rdma_blk::ByteRange range = operation.ranges[i];
            TIFFIN_ASSERT(range.offset_bytes + range.length_bytes <= memory.size());
            counts_.flushed_bytes += range.length_bytes;
            std::memcpy(server_.durable.data() + range.offset_bytes,
                        server_.data.data() + range.offset_bytes, range.length_bytes);
        }
        operation.content_incarnation = server_.content_incarnation;
        return {Outcome::executed, Error::eio, false};
    }
    const bool is_atomic =
        operation.kind == OperationKind::compare_swap || operation.kind == OperationKind::fetch_add;
    const uint64_t length_bytes = is_atomic ? 8 : length_of(operation);
    if (operation.offset_bytes > memory.size() ||
        length_bytes > memory.size() - operation.offset_bytes) {
        return {Outcome::not_executed, Error::eio, false};
    }
    changes_ += operation.kind != OperationKind::read && operation.space == AddressSpace::data;
    unsigned char* place = memory.data() + operation.offset_bytes;
    if (is_atomic) {
        std::memcpy(&operation.old_value, place, 8);
        const bool is_add = operation.kind == OperationKind::fetch_add;
        const uint64_t value = is_add ? operation.old_value + operation.operand : operation.operand;
        if (is_add || operation.old_value == operation.compare) {
            std::memcpy(place, &value, 8);
        }
        return {Outcome::executed, Error::eio, false};
    }
    for (size_t i = 0; i < operation.buffer_count; ++i) {
        const vfs::IoVector& piece = operation.buffers[i];
        if (piece.size_bytes == 0) {
            continue;
        }
        if (operation.kind == OperationKind::read) {
            std::memcpy(piece.data, place, piece.size_bytes);
            statistics_.bytes_read += piece.size_bytes;
        } else {
            std::memcpy(place, piece.data, piece.size_bytes);
            statistics_.bytes_written += piece.size_bytes;
        }
        place += piece.size_bytes;
    }
    return {Outcome::executed, Error::eio, false};
}

void LocalMemory::finish(size_t index, const Fault& fault) {
    Operation& operation = *pending_[index];
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
    if (fault.outcome != Outcome::executed) {
        operation.error = fault.error;
        for (Operation* later : pending_) {
            if (later->after_earlier && later->submit_number > operation.submit_number) {
                later->transport_data = this;  // it must not happen any more
            }
        }
    }
    ++statistics_.operations[static_cast<size_t>(operation.kind)];
    ++statistics_.outcomes[static_cast<size_t>(fault.outcome)];
    ++statistics_.round_trips;
    t_in_completion = true;
    rdma_blk::complete_operation(operation, fault.outcome);
    t_in_completion = false;
}

void LocalMemory::finish_all(Outcome outcome, Error error) {
    while (!pending_.empty()) {
        finish(pending_.size() - 1, {outcome, error, false});
    }
}

}  // namespace tiffin::test
