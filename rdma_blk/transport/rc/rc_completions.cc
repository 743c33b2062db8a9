// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The queue pair of an RcMemory: what completes, who polls for it, and its end.
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "rdma_blk/transport/back_off.h"
#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

// How long a leader polls at least before it sleeps, unless it is not to: longer than the network takes, shorter than a
// disk would.
constexpr uint64_t kLeastPollNs = 200'000;
constexpr int kPollsPerLook = 32;
constexpr size_t kCompletionsAtOnce = 32;

void drain(int event) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = read(event, &count, sizeof(count));
}

}  // namespace

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
bool RcMemory::count_change(const Path& path) {
    if (path.generation != control_generation_.load()) {
        return false;
    }
    change_count_.fetch_add(1);
    return path.generation == control_generation_.load();
}

// False: it cannot be believed, nor what follows it.
bool RcMemory::finish_one() {
    const uint64_t number = queue_->finished_count() + 1;
    Operation& operation = queue_->oldest();
    Entry& place = entry(number);
    const uint64_t bytes = transfer_bytes(operation);
    if (is_change(operation) && &operation != &heartbeat_ && !count_change(path_)) {
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
    bool has_slept = false;
    size_t count = queue_pair.poll(completions, kCompletionsAtOnce);
    if (count == 0 && sleep_until_ns != 0 && options_.busy_poll_us != 0) {
        // The clock is asked now and then only: it takes as long as some polls.
        const uint64_t give_up_ns =
            host::monotonic_ns() + std::max(kLeastPollNs, options_.busy_poll_us * uint64_t{1000});
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
            has_slept = true;
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
    is_posted_.store(queue_->posted_count() > 0, std::memory_order_relaxed);
    if (count == 0 && has_slept && queue_->posted_count() > 0) {
        control_->watch_links();
    }
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
        (void)path_.queue_pair->stop();
        wake_leader();
        poke();
    }
}

// What is posted is done with its buffers once the queue pair is in its error state, or gone. Where the device refuses both,
// the buffers are lost, and the queue pair is kept.
void RcMemory::end_queue_pair() {
    const bool is_stopped = path_.queue_pair->stop().ok();
    const bool is_ended = path_.queue_pair->destroy().ok() || is_stopped;
    for (uint64_t number = queue_->finished_count() + 1;
         number <= queue_->finished_count() + queue_->posted_count(); number++) {
        if (is_ended) {
            release_entry(number);
        } else {
            entry(number).chunk_count = 0;
        }
    }
    if (!is_ended) {
        host::log(host::LogLevel::error,
                  "remote memory: the RDMA device does not end a queue pair: its buffers are not "
                  "used again");
        unended_.push_back(std::move(path_.queue_pair));
    }
    path_.queue_pair.reset();
}

// With the lead. Nothing of the queue pair touches a buffer in use from here on.
void RcMemory::break_path() {
    const uint64_t now = host::monotonic_ns();
    verbs::Completion completions[kCompletionsAtOnce];
    size_t count = 0;
    while ((count = path_.queue_pair->poll(completions, kCompletionsAtOnce)) > 0) {
        handle_completions(completions, count);
    }
    end_queue_pair();
    doubt_ = {queue_->posted_count() > 0, path_.link, path_.ended_count, path_.generation};
    is_draining_ = false;
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
    is_posted_.store(false, std::memory_order_relaxed);
    // With several links another path is there, or will be soon.
    if (!is_planned_ && !has_several_ && state_ == ConnectionState::ready) {
        set_state(ConnectionState::reconnecting);
    }
    waiters_.wake_finished();
    poke();
}

}  // namespace tiffin::rdma_blk
