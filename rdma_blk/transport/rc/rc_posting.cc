// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The queue pair of an RcMemory: what is posted, what completes, and its end.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "rdma_blk/transport/back_off.h"
#include "rdma_blk/transport/rc/rc_memory.h"

namespace tiffin::rdma_blk {
namespace {

// How long a leader polls before it sleeps: longer than the network takes, shorter than a disk would.
constexpr uint64_t kPollNs = 200'000;
constexpr int kPollsPerLook = 32;
constexpr uint64_t kMillisecondNs = 1'000'000;
constexpr size_t kCompletionsAtOnce = 32;

bool covers(const wire::RcWindow& window, uint64_t offset_bytes, uint64_t size_bytes) {
    return window.kind != static_cast<uint8_t>(wire::WindowKind::none) &&
           offset_bytes >= window.offset_bytes &&
           offset_bytes - window.offset_bytes <= window.length_bytes &&
           size_bytes <= window.length_bytes - (offset_bytes - window.offset_bytes);
}

void drain(int event) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = read(event, &count, sizeof(count));
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
    const uint32_t most = std::min(device_->capabilities().piece_count, kMaxPieces);
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
        if (found == arenas_.end() || piece_count == most) {
            return false;
        }
        entry.pieces[piece_count++] = {begin, static_cast<uint32_t>(size),
                                       found->memory->local_key()};
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
            bounce_.local_key()};
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
        case OperationKind::compare_swap:
        case OperationKind::fetch_add:
            work.kind = operation.kind == OperationKind::fetch_add ? verbs::WorkKind::fetch_add
                                                                   : verbs::WorkKind::compare_swap;
            work.compare = operation.compare;
            work.operand = operation.operand;
            place.pieces[0] = {&word(number), sizeof(uint64_t), bounce_.local_key()};
            work.piece_count = 1;
            return Admission::post;
        case OperationKind::write:
            work.kind = verbs::WorkKind::write;
            if (bytes <= limits_.inline_bytes &&
                operation.buffer_count <=
                    std::min(device_->capabilities().piece_count, kMaxPieces)) {
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

RcMemory::Proxy* RcMemory::pump() {
    Proxy* to_control = nullptr;
    Proxy** control_end = &to_control;
    size_t count = 0;
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
            abort_path();
            break;
        }
        verbs::WorkRequest& work = work_[count];
        admission = fill_work(*operation, *window, work);
        if (admission == Admission::wait) {
            break;
        }
        work.id = queue_->start_device(work.is_fenced);
        count++;
    }
    if (count > 0) {
        // The device executes in order: when the last one has ended, all have.
        work_[count - 1].is_signalled = true;
        post_round_++;
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

// With control_'s lock held.
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

// ---- Completions --------------------------------------------------------------------------------------------

void RcMemory::release_entry(uint64_t number) {
    Entry& place = entry(number);
    while (place.chunk_count > 0) {
        bounce_.give_back(place.chunks[--place.chunk_count]);
    }
}

// A server that has lost its memory was asked about nothing but what had been counted by the time control_ lost its
// connection. So what is counted later is not believed, but repeated: one of the two sees the other. It stays counted,
// which at worst takes a change for two.
bool RcMemory::count_change() {
    if (path_.generation != control_generation_.load()) {
        return false;
    }
    change_count_.fetch_add(1);
    return path_.generation == control_generation_.load();
}

// False: it cannot be believed, nor what follows it.
bool RcMemory::finish_one() {
    const uint64_t number = queue_->finished_count() + 1;
    Operation& operation = queue_->oldest();
    Entry& place = entry(number);
    const uint64_t bytes = transfer_bytes(operation);
    if (is_change(operation) && &operation != &heartbeat_ && !count_change()) {
        return false;
    }
    if (operation.kind == OperationKind::read) {
        statistics_.bytes_read += bytes;
        uint64_t done = 0;
        for (size_t i = 0; place.chunk_count > 0 && i < operation.buffer_count; i++) {
            auto* to = static_cast<unsigned char*>(operation.buffers[i].data);
            size_t left = operation.buffers[i].size_bytes;
            while (left > 0) {
                const uint64_t within = done % BouncePool::kChunkBytes;
                const size_t part = std::min<uint64_t>(left, BouncePool::kChunkBytes - within);
                std::memcpy(
                    to, bounce_.chunk(place.chunks[done / BouncePool::kChunkBytes]) + within, part);
                to += part;
                left -= part;
                done += part;
            }
        }
        statistics_.copied_bytes += done;
    } else if (operation.kind == OperationKind::write) {
        statistics_.bytes_written += &operation != &heartbeat_ ? bytes : 0;
    } else {
        operation.old_value = word(number);
    }
    if (place.round > counted_round_) {
        statistics_.round_trips++;
        counted_round_ = post_round_;
    }
    release_entry(number);
    queue_->finish_oldest();
    return true;
}

void RcMemory::finish_up_to(uint64_t number) {
    const uint64_t last =
        std::min(number, queue_->finished_count() + uint64_t{queue_->posted_count()});
    while (queue_->finished_count() < last) {
        if (!finish_one()) {
            abort_path();
            return;
        }
    }
}

// An error tells that all before it were executed, and nothing of the rest.
void RcMemory::handle_completions(const verbs::Completion* completions, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const bool is_good = completions[i].status == verbs::Status::success;
        if (is_good) {
            finish_up_to(completions[i].id);
            continue;
        }
        if (!is_broken_) {
            finish_up_to(completions[i].id - 1);
            abort_path();
        }
    }
}

// Polls, for a while without sleeping if sleep_until_ns is not 0, and handles what came. mutex_ is let go.
void RcMemory::poll_round(uint64_t sleep_until_ns, bool is_thread) {
    verbs::QueuePair& queue_pair = *path_.queue_pair;
    verbs::Completion completions[kCompletionsAtOnce];
    mutex_.unlock();
    size_t count = queue_pair.poll(completions, kCompletionsAtOnce);
    if (count == 0 && sleep_until_ns != 0) {
        // The clock is asked now and then only: it takes as long as some polls.
        const uint64_t give_up_ns = host::monotonic_ns() + kPollNs;
        do {
            for (int i = 0; i < kPollsPerLook && count == 0; i++) {
                count = queue_pair.poll(completions, kCompletionsAtOnce);
            }
        } while (count == 0 && host::monotonic_ns() < give_up_ns);
    }
    mutex_.lock();
    if (count == 0 && sleep_until_ns != 0 && !is_broken_) {
        statistics_.system_calls++;
        mutex_.unlock();
        const bool is_armed = queue_pair.arm().ok();
        count = queue_pair.poll(completions, kCompletionsAtOnce);
        const uint64_t now = host::monotonic_ns();
        if (is_armed && count == 0 && sleep_until_ns > now) {
            pollfd ready[3] = {{queue_pair.event_descriptor(), POLLIN, 0},
                               {lead_event_, POLLIN, 0},
                               {is_thread ? event_ : -1, POLLIN, 0}};
            poll(ready, 3,
                 static_cast<int>((sleep_until_ns - now + kMillisecondNs - 1) / kMillisecondNs));
            if (ready[1].revents != 0) {
                drain(lead_event_);
            }
            if (ready[2].revents != 0) {
                drain(event_);
            }
            count = queue_pair.poll(completions, kCompletionsAtOnce);
        }
        queue_pair.disarm();
        mutex_.lock();
    }
    handle_completions(completions, count);
    if (is_broken_) {
        break_path();
    }
    pump_all();
    waiters_.wake_finished();
}

// ---- The end of a path ---------------------------------------------------------------------------------------

// Without the lead: whoever has it sees that it is over.
void RcMemory::abort_path() {
    if (!is_broken_ && path_.queue_pair != nullptr) {
        is_broken_ = true;
        path_.queue_pair->stop();
        wake_leader();
        poke();
    }
}

// With the lead. Nothing of the queue pair touches a buffer from here on.
void RcMemory::break_path() {
    const uint64_t now = host::monotonic_ns();
    verbs::Completion completions[kCompletionsAtOnce];
    size_t count = 0;
    while ((count = path_.queue_pair->poll(completions, kCompletionsAtOnce)) > 0) {
        handle_completions(completions, count);
    }
    path_.queue_pair.reset();
    for (uint64_t number = queue_->finished_count() + 1;
         number <= queue_->finished_count() + queue_->posted_count(); number++) {
        release_entry(number);
    }
    is_broken_ = false;
    // A path that breaks before anything has come through it is no success: the next one comes later.
    if (is_planned_ || queue_->finished_count() > adopted_count_ || lost_ns_ == 0) {
        attempts_ = 0;
        lost_ns_ = now;
        next_attempt_ns_ = now;
    } else {
        next_attempt_ns_ = now + back_off_ns(attempts_);
        attempts_++;
    }
    queue_->broken(now);
    if (!is_planned_ && state_ == ConnectionState::ready) {
        set_state(ConnectionState::reconnecting);
    }
    waiters_.wake_finished();
    poke();
}

}  // namespace tiffin::rdma_blk
