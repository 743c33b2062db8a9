// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The queue pair of an RcMemory: what is posted, or goes by way of the control connection instead.
#include <algorithm>
#include <cstring>
#include <utility>

#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/wire/control_area.h"

namespace tiffin::rdma_blk {
namespace {

bool covers(const wire::RcWindow& window, uint64_t offset_bytes, uint64_t size_bytes) {
    return window.kind != static_cast<uint8_t>(wire::WindowKind::none) &&
           offset_bytes >= window.offset_bytes &&
           offset_bytes - window.offset_bytes <= window.length_bytes &&
           size_bytes <= window.length_bytes - (offset_bytes - window.offset_bytes);
}

}  // namespace

// ---- What may go through which window ---------------------------------------------------------------

RcMemory::Admission RcMemory::admit(const Operation& operation, const wire::RcWindow*& window,
                                    Error& error) const {
    const uint64_t bytes = transfer_bytes(operation);
    const bool is_data = operation.space == AddressSpace::data;
    const uint64_t end = is_data ? std::atomic_ref<const uint64_t>(geometry().data_bytes).load()
                                 : geometry().control_bytes;
    error = Error::eio;
    if (bytes > end || operation.offset_bytes > end - bytes) {
        return Admission::refuse;
    }
    if (!is_data && is_change(operation)) {
        const bool is_word = covers(path_.windows[2], operation.offset_bytes, bytes);
        window = is_word ? &path_.windows[2] : &path_.windows[3];
        // A reader may beat, but that is all.
        const bool may_change = path_.windows[0].writes != 0 || &operation == &heartbeat_;
        error = may_change ? Error::eio : Error::erofs;
        return may_change && covers(*window, operation.offset_bytes, bytes) ? Admission::post
                                                                            : Admission::refuse;
    }
    window = is_data ? &path_.windows[0] : &path_.windows[1];
    if (is_change(operation) && window->writes == 0) {
        error = Error::erofs;
        return Admission::refuse;
    }
    // The volume has grown since the window was opened.
    return covers(*window, operation.offset_bytes, bytes) ? Admission::post : Admission::new_path;
}

// ---- Memory -----------------------------------------------------------------------------------------------

// The caller's buffers, when the device may use them as they are.
bool RcMemory::find_pieces(const Operation& operation, Entry& entry, uint32_t& piece_count) const {
    piece_count = 0;
    for (size_t i = 0; i < operation.buffer_count; i++) {
        auto* begin = static_cast<unsigned char*>(operation.buffers[i].data);
        const size_t size = operation.buffers[i].size_bytes;
        if (size == 0) {
            continue;
        }
        const auto found = std::find_if(arenas_.begin(), arenas_.end(), [&](const Arena& arena) {
            return begin >= arena.begin && begin + size <= arena.end;
        });
        if (found == arenas_.end() || piece_count == piece_count_) {
            return false;
        }
        const auto& registered = path_.device->arenas[static_cast<size_t>(found - arenas_.begin())];
        entry.pieces[piece_count++] = {begin, static_cast<uint32_t>(size), registered->local_key()};
    }
    return true;
}

// False: not now, others hold it.
bool RcMemory::take_bounce(const Operation& operation, uint64_t size_bytes, Entry& entry,
                           uint32_t& piece_count) {
    const auto count =
        static_cast<uint16_t>((size_bytes + BouncePool::kChunkBytes - 1) / BouncePool::kChunkBytes);
    if (bounce_.free_count() < count) {
        return false;
    }
    for (entry.chunk_count = 0; entry.chunk_count < count; entry.chunk_count++) {
        const uint16_t chunk = bounce_.take();
        entry.chunks[entry.chunk_count] = chunk;
        const uint64_t offset = uint64_t{entry.chunk_count} * BouncePool::kChunkBytes;
        entry.pieces[entry.chunk_count] = {
            bounce_.chunk(chunk),
            static_cast<uint32_t>(std::min<uint64_t>(size_bytes - offset, BouncePool::kChunkBytes)),
            path_.device->bounce->local_key()};
    }
    piece_count = count;
    if (operation.kind != OperationKind::write) {
        return true;
    }
    uint64_t done = 0;
    for (size_t i = 0; i < operation.buffer_count; i++) {
        const auto* from = static_cast<const unsigned char*>(operation.buffers[i].data);
        size_t left = operation.buffers[i].size_bytes;
        while (left > 0) {
            const uint64_t within = done % BouncePool::kChunkBytes;
            const size_t part = std::min<uint64_t>(left, BouncePool::kChunkBytes - within);
            std::memcpy(bounce_.chunk(entry.chunks[done / BouncePool::kChunkBytes]) + within, from,
                        part);
            from += part;
            left -= part;
            done += part;
        }
    }
    statistics_.copied_bytes += done;
    return true;
}

// ---- Posting -----------------------------------------------------------------------------------------------

// Everything of the request but its id and its fence. Precondition: it is the next one to be posted.
RcMemory::Admission RcMemory::fill_work(const Operation& operation, const wire::RcWindow& window,
                                        verbs::WorkRequest& work) {
    const uint64_t number = queue_->finished_count() + queue_->posted_count() + 1;
    Entry& place = entry(number);
    place.chunk_count = 0;
    place.round = post_round_ + 1;
    const uint64_t bytes = transfer_bytes(operation);
    work = verbs::WorkRequest{};
    work.remote_address = window.address + (operation.offset_bytes - window.offset_bytes);
    work.remote_key = window.key;
    work.pieces = place.pieces;
    switch (operation.kind) {
        case OperationKind::write:
            work.kind = verbs::WorkKind::write;
            if (bytes <= limits_.inline_bytes && operation.buffer_count <= piece_count_) {
                for (size_t i = 0; i < operation.buffer_count; i++) {
                    place.pieces[i] = {operation.buffers[i].data,
                                       static_cast<uint32_t>(operation.buffers[i].size_bytes), 0};
                }
                work.piece_count = static_cast<uint32_t>(operation.buffer_count);
                work.is_inline = true;
                return Admission::post;
            }
            break;
        default:
            work.kind = verbs::WorkKind::read;
            break;
    }
    if (find_pieces(operation, place, work.piece_count) ||
        take_bounce(operation, bytes, place, work.piece_count)) {
        return Admission::post;
    }
    return Admission::wait;
}

// After Varuna: behind the operations, so that the log never says too much.
bool RcMemory::is_log_due(const Operation& posted) {
    if (posted.kind != OperationKind::write || &posted == &heartbeat_) {
        return false;
    }
    unlogged_changes_++;
    unlogged_bytes_ += transfer_bytes(posted);
    if (unlogged_changes_ < kLogChanges && unlogged_bytes_ < kLogBytes) {
        return false;
    }
    unlogged_changes_ = 0;
    unlogged_bytes_ = 0;
    return true;
}

void RcMemory::fill_log(uint64_t number, size_t log_index, verbs::WorkRequest& work) {
    LogWrite& log = log_writes_[log_index];
    log.number = number;
    log.piece = {&log.number, sizeof(log.number), 0};
    work = verbs::WorkRequest{};
    work.kind = verbs::WorkKind::write;
    work.is_inline = true;
    work.pieces = &log.piece;
    work.piece_count = 1;
    work.remote_address = path_.windows[3].address + wire::kCompletionLogOffset;
    work.remote_key = path_.windows[3].key;
}

RcMemory::Proxy* RcMemory::pump() {
    Proxy* to_control = nullptr;
    Proxy** control_end = &to_control;
    size_t count = 0;
    size_t last_operation = 0;
    size_t log_count = 0;
    bool is_control = false;
    while (path_.queue_pair != nullptr && !is_broken_) {
        Operation* operation = queue_->peek(is_control);
        if (operation == nullptr) {
            break;
        }
        if (is_control) {
            Proxy* proxy = take_proxy(*operation);
            if (proxy == nullptr) {
                break;
            }
            queue_->start_control();
            *control_end = proxy;
            control_end = &proxy->next;
            continue;
        }
        if (is_draining_) {
            break;
        }
        const wire::RcWindow* window = nullptr;
        Error error = Error::eio;
        Admission admission = admit(*operation, window, error);
        if (admission == Admission::refuse) {
            queue_->refuse(error);
            continue;
        }
        if (admission == Admission::new_path && path_wanted_by_ == operation->submit_number) {
            queue_->refuse(Error::eio);  // the server gives no more
            continue;
        }
        if (admission == Admission::new_path) {
            path_wanted_by_ = operation->submit_number;
            is_planned_ = true;
            drop_standbys();
            abort_path();
            break;
        }
        verbs::WorkRequest& work = work_[count];
        admission = fill_work(*operation, *window, work);
        if (admission == Admission::wait) {
            break;
        }
        work.id = queue_->start_device(work.is_fenced);
        last_operation = count++;
        if (is_log_due(*operation)) {
            fill_log(operation->submit_number, log_count++, work_[count]);
            work_[count].id = work.id;
            count++;
        }
    }
    if (count > 0) {
        // The device executes in order: when the last one has ended, all have.
        work_[last_operation].is_signalled = true;
        post_round_++;
        is_posted_.store(true, std::memory_order_relaxed);
        was_posted_.store(true, std::memory_order_relaxed);
        statistics_.system_calls++;
        if (is_broken_ || !path_.queue_pair->post(work_.data(), count).ok()) {
            abort_path();
        }
    }
    return to_control;
}

// ---- By way of control_ ----------------------------------------------------------------------------------

RcMemory::Proxy* RcMemory::take_proxy(Operation& operation) {
    Proxy* proxy = free_proxies_;
    if (proxy == nullptr) {
        return nullptr;
    }
    free_proxies_ = std::exchange(proxy->next, nullptr);
    proxy->target = &operation;
    Operation& copy = proxy->operation;
    copy.reset();
    copy.kind = operation.kind;
    copy.space = operation.space;
    copy.offset_bytes = operation.offset_bytes;
    copy.ranges = operation.ranges;
    copy.range_count = operation.range_count;
    copy.compare = operation.compare;
    copy.operand = operation.operand;
    copy.deadline_ns = operation.deadline_ns;
    copy.complete = control_done;
    copy.owner = proxy;
    return proxy;
}

void RcMemory::submit_to_control(Proxy* first) {
    while (first != nullptr) {
        Proxy* next = std::exchange(first->next, nullptr);
        control_->submit(first->operation);
        first = next;
    }
}

// A completion: in any thread, perhaps with locks of control_ held.
void RcMemory::control_done(Operation& operation) {
    auto* proxy = static_cast<Proxy*>(operation.owner);
    RcMemory& owner = *proxy->owner;
    proxy->next = owner.done_proxies_.load();
    while (!owner.done_proxies_.compare_exchange_weak(proxy->next, proxy)) {
    }
    owner.poke();
}

void RcMemory::handle_control_done() {
    Proxy* proxy = done_proxies_.exchange(nullptr);
    while (proxy != nullptr) {
        Proxy* next = proxy->next;
        Operation& target = *proxy->target;
        const Operation& copy = proxy->operation;
        target.old_value = copy.old_value;
        target.content_incarnation = copy.content_incarnation;
        const Outcome outcome = copy.outcome;
        const Error error = copy.error;
        proxy->next = std::exchange(free_proxies_, proxy);
        queue_->finish_control(target, outcome, error);
        proxy = next;
    }
}

}  // namespace tiffin::rdma_blk
