// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/shm/shm_memory.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "rdma_blk/transport/shm/unit_copy.h"
#include "rdma_blk/wire/control_area.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kJoinTimeoutNs = 10'000'000'000;

bool is_late(const Operation& operation) {
    return operation.deadline_ns != 0 && operation.deadline_ns <= host::monotonic_ns();
}

// Of the volume, as the server has stored it before it lets a writer in.
uint64_t present_epoch(const MappedMemory& control) {
    const auto* header = reinterpret_cast<const wire::ControlHeader*>(control.data());
    return __atomic_load_n(&header->epoch, __ATOMIC_ACQUIRE);
}

}  // namespace

// ---- Opening and closing ----------------------------------------------------------------------------

Result<std::unique_ptr<RemoteMemory>> ShmMemory::open(const RemoteAddress& address,
                                                      const OpenOptions& options,
                                                      const std::string& socket_path,
                                                      const char* transport_reason,
                                                      ConnectionListener* listener, Holder& holder,
                                                      std::string& problem) {
    std::unique_ptr<ShmMemory> memory(new (std::nothrow) ShmMemory());
    if (!memory) {
        return Error::enomem;
    }
    memory->reads_steadily_ = options.mode == OpenOptions::Mode::read_steady;
    StreamExtension extension;
    extension.socket_path = socket_path;
    extension.one_sided = memory.get();
    extension.transport_reason = transport_reason;
    memory->stream_ =
        TRY(TcpMemory::open(address, options, listener, holder, problem, nullptr, extension));
    const auto joined = memory->stream_->wait_until_joined(host::monotonic_ns() + kJoinTimeoutNs);
    if (!joined.ok()) {
        memory->close();
        problem = "the server does not share its memory with this process";
        return joined.error();
    }
    return std::unique_ptr<RemoteMemory>(std::move(memory));
}

ShmMemory::~ShmMemory() = default;

// Whoever gets the lease next has the memory for himself.
void ShmMemory::release() {
    data_.unmap();
    control_.unmap();
}

Result<void> ShmMemory::joined(ByteSpan parameters, ReceivedDescriptors& descriptors,
                               uint64_t data_bytes, uint64_t epoch) {
    const wire::ShmParameters given = TRY(wire::parse_shm_parameters(parameters));
    if (descriptors.count != wire::kShmDescriptors) {
        return Error::eproto;
    }
    gate_.close();
    TRY(data_.map(std::move(descriptors.descriptors[0]), given.data_bytes, given.is_writable != 0));
    TRY(control_.map(std::move(descriptors.descriptors[1]), given.control_bytes, false));
    // Not the one that is there now: a writer may have come since, and told nobody yet.
    steady_epoch_ = reads_steadily_ && given.is_writable == 0 ? epoch : kNoEpoch;
    if (data_bytes > given.data_bytes) {  // the notice came before the answer; see resized()
        [[maybe_unused]] const auto grown = data_.grow(data_bytes);
    }
    gate_.open();
    return {};
}

void ShmMemory::resized(uint64_t data_bytes) {
    if (!gate_.is_open()) {
        return;
    }
    gate_.close();
    // If it fails, the new part is reached by requests.
    [[maybe_unused]] const auto grown = data_.grow(data_bytes);
    gate_.open();
}

Result<void> ShmMemory::start_writing(bool force, Holder& holder) {
    return stream_->start_writing(force, holder);
}

// ---- Questions -----------------------------------------------------------------------------------------

Statistics ShmMemory::statistics() const {
    Statistics statistics = stream_->statistics();
    gate_.add_to(statistics);
    return statistics;
}

Result<void> ShmMemory::add_arena(MutableByteSpan memory) {
    (void)memory;
    return {};
}

// Not while the server is away: who asks then is to wait, as by read(). Nor where each read is to look at the epoch
// after it has copied.
const void* ShmMemory::direct_address(uint64_t offset_bytes, uint64_t size_bytes) {
    const bool is_direct = gate_.is_open() && steady_epoch_.load() == kNoEpoch;
    const uint64_t mapped_bytes = is_direct ? data_.size_bytes() : 0;
    if (offset_bytes > mapped_bytes || size_bytes > mapped_bytes - offset_bytes) {
        return nullptr;
    }
    return data_.data() + offset_bytes;
}

// ---- Operations ----------------------------------------------------------------------------------------

bool ShmMemory::find_length(const Operation& operation, const MappedMemory& memory,
                            uint64_t& length_bytes) const {
    length_bytes = 0;
    if (operation.buffer_count > limits().buffer_count) {
        return false;
    }
    for (size_t i = 0; i < operation.buffer_count; i++) {
        length_bytes += operation.buffers[i].size_bytes;
    }
    const uint64_t mapped_bytes = memory.size_bytes();
    return length_bytes <= limits().transfer_bytes && operation.offset_bytes <= mapped_bytes &&
           length_bytes <= mapped_bytes - operation.offset_bytes;
}

bool ShmMemory::is_steady() const {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return steady_epoch_ == kNoEpoch || present_epoch(control_) == steady_epoch_;
}

bool ShmMemory::read(DirectGate::Place& place, const Operation& operation) {
    const MappedMemory& memory = operation.space == AddressSpace::data ? data_ : control_;
    uint64_t length_bytes = 0;
    if (!find_length(operation, memory, length_bytes)) {
        return false;
    }
    const unsigned char* source = memory.data() + operation.offset_bytes;
    for (size_t i = 0; i < operation.buffer_count; i++) {
        const vfs::IoVector& buffer = operation.buffers[i];
        if (buffer.size_bytes != 0) {
            std::memcpy(buffer.data, source, buffer.size_bytes);
            source += buffer.size_bytes;
        }
    }
    if (!is_steady()) {
        return false;  // the server refuses it
    }
    DirectGate::add(place.bytes_read, length_bytes);
    return true;
}

bool ShmMemory::write(DirectGate::Place& place, const Operation& operation) {
    uint64_t length_bytes = 0;
    const UnitCopy way = unit_copy();
    if (operation.space != AddressSpace::data || !data_.is_writable() || way == UnitCopy::none ||
        !find_length(operation, data_, length_bytes)) {
        return false;
    }
    if (way == UnitCopy::by_kernel) {
        DirectGate::add(place.system_calls, 1);
    }
    if (!copy_units(way, data_.data() + operation.offset_bytes, operation.buffers,
                    operation.buffer_count)) {
        return false;  // a request writes the same once more
    }
    DirectGate::count_change(place);
    DirectGate::add(place.bytes_written, length_bytes);
    return true;
}

bool ShmMemory::change_word(DirectGate::Place& place, Operation& operation) {
    constexpr uint64_t kWordBytes = sizeof(uint64_t);
    if (operation.space != AddressSpace::data || !data_.is_writable() ||
        operation.offset_bytes % kWordBytes != 0 || data_.size_bytes() < kWordBytes ||
        operation.offset_bytes > data_.size_bytes() - kWordBytes) {
        return false;
    }
    auto* word = reinterpret_cast<uint64_t*>(data_.data() + operation.offset_bytes);
    if (operation.kind == OperationKind::fetch_add) {
        operation.old_value = __atomic_fetch_add(word, operation.operand, __ATOMIC_SEQ_CST);
    } else {
        operation.old_value =
            operation.compare;  // becomes what was there, if that is something else
        __atomic_compare_exchange_n(word, &operation.old_value, operation.operand, false,
                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }
    DirectGate::count_change(place);
    return true;
}

bool ShmMemory::execute_within(DirectGate::Place& place, Operation& operation) {
    switch (operation.kind) {
        case OperationKind::read:
            return read(place, operation);
        case OperationKind::write:
            return write(place, operation);
        case OperationKind::compare_swap:
        case OperationKind::fetch_add:
            return change_word(place, operation);
        case OperationKind::flush:
            break;
    }
    return false;
}

bool ShmMemory::execute(Operation& operation) {
    if (is_late(operation)) {
        return false;
    }
    DirectGate::Place* place = gate_.enter();
    if (place == nullptr) {
        return false;
    }
    const bool was_executed = execute_within(*place, operation);
    if (was_executed) {
        DirectGate::add(place->operations[static_cast<size_t>(operation.kind)], 1);
    }
    DirectGate::leave(*place);
    return was_executed;
}

// In this order, each either here and now or by the stream; behind something that the stream has, what must
// follow goes there, too.
void ShmMemory::submit_batch(Operation& first) {
    const bool more_follows = first.more_follows;
    Operation* streamed = nullptr;
    Operation* last_streamed = nullptr;
    Operation* operation = &first;
    while (operation != nullptr) {
        Operation* next = operation->next;
        const bool must_wait =
            operation->after_earlier && (streamed != nullptr || stream_->has_pending());
        if (!must_wait && execute(*operation)) {
            complete_operation(*operation, Outcome::executed);
        } else {
            operation->next = nullptr;
            (streamed == nullptr ? streamed : last_streamed->next) = operation;
            last_streamed = operation;
        }
        operation = next;
    }
    if (streamed != nullptr) {
        streamed->more_follows = more_follows;
        stream_->submit(*streamed);
    }
}

void ShmMemory::submit(Operation& first) {
    if (first.next == nullptr && !first.after_earlier && execute(first)) {
        complete_operation(first, Outcome::executed);
        return;
    }
    submit_batch(first);
}

void ShmMemory::wait(Operation& operation) {
    if (operation.finished.load(std::memory_order_acquire) == 0) {
        stream_->wait(operation);
    }
}

}  // namespace tiffin::rdma_blk
