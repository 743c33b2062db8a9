// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How operations get into a TcpMemory, and back to who submitted them: through the inbox (operation_inbox.h), which
// whoever has the lock empties before he lets go of it, and all at once.
#include <algorithm>
#include <utility>

#include "rdma_blk/transport/tcp/operation_word.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"

namespace tiffin::rdma_blk {
namespace {

// Who lets go of the lock sends what others submit meanwhile, so many times; then the thread does.
constexpr uint32_t kRoundsForOthers = 8;

// Outside of the lock, as it takes time; but for what datagrams sum up themselves.
void prepare_words(const OperationQueue& batch, bool needs_checksums) {
    for (Operation* operation = batch.front(); operation != nullptr; operation = operation->next) {
        const bool is_summed_up = needs_checksums && operation->kind == OperationKind::write;
        set_word(*operation, is_summed_up ? checksum_word(*operation) : 0);
    }
}

}  // namespace

// ---- From who submits ------------------------------------------------------------------------------------

void TcpMemory::submit(Operation& first) {
    const bool wants_to_wait = first.more_follows;
    const auto [accepted, rejected] = sort_operations(first, limits_);
    // Sent late, it would end the connection, as nobody could know whether it has been executed.
    const bool more_follows = wants_to_wait && accepted.earliest_deadline_ns() == 0;
    prepare_words(accepted, !takes_datagrams_.load(std::memory_order_relaxed));
    if (accepted.front() != nullptr) {
        put(*accepted.front(), more_follows);
    } else if (!more_follows) {
        send_gathered();
    }
    if (rejected.front() != nullptr) {
        Locked lock(*this);
        complete_rejected(rejected, statistics_);
    }
}

void TcpMemory::put(Operation& first, bool more_follows) {
    switch (inbox_.put(first, more_follows)) {
        case OperationInbox::Put::kept:
            return;
        case OperationInbox::Put::first_kept:
            if (!is_thread_looking_.load(std::memory_order_acquire)) {
                poke();
            }
            return;
        case OperationInbox::Put::to_send:
            send_inbox();
            return;
        case OperationInbox::Put::full: {
            Locked lock(*this);
            take_inbox();
            start_batches(first);
            return;
        }
    }
}

void TcpMemory::send_inbox() {
    if (mutex_.try_lock()) {
        leave();
    } else if (silent_unlocks_.load(std::memory_order_acquire) != 0) {
        mutex_.lock();
        leave();
    }
}

// Not what others send: that would be waiting for their system calls.
void TcpMemory::send_gathered() {
    if (inbox_.is_kept()) {
        Locked lock(*this);
        take_inbox();
    }
}

// ---- With the lock ---------------------------------------------------------------------------------------

void TcpMemory::take_inbox() {
    if (Operation* const first = inbox_.take(); first != nullptr) {
        start_batches(*first);
    }
}

// Those linked from `first` on by next_batch. The thread is woken once, and not before they are on their way.
void TcpMemory::start_batches(Operation& first) {
    uint64_t earliest_deadline_ns = 0;
    for (Operation* batch = &first; batch != nullptr;) {
        Operation* const next = std::exchange(batch->next_batch, nullptr);
        earliest_deadline_ns = earlier_deadline_ns(earliest_deadline_ns, add_batch(*batch));
        batch = next;
    }
    send_queued();
    poke_after_submit(earliest_deadline_ns);
}

// The thread's: it sends what nobody else does.
bool TcpMemory::is_kept_too_long() {
    if (inbox_.is_empty()) {
        kept_since_ns_ = 0;
        return false;
    }
    const uint64_t now = host::monotonic_ns();
    kept_since_ns_ = kept_since_ns_ == 0 ? now : kept_since_ns_;
    return now - kept_since_ns_ >= kKeptNs;
}

// A batch goes into the slots in whole, and those of one thread in their order. Returns its earliest deadline.
uint64_t TcpMemory::add_batch(Operation& first) {
    const OperationQueue batch(first);
    const uint64_t earliest_deadline_ns = batch.earliest_deadline_ns();
    count_operations(batch, statistics_);
    note_flush(batch);
    slots_->submit(first);
    return earliest_deadline_ns;
}

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

// The thread is woken only if it is about to miss something.
void TcpMemory::poke_after_submit(uint64_t earliest_deadline_ns) {
    const bool nobody_receives = !has_leader_ && !is_thread_receiving_;
    // The path repeats what is lost after milliseconds; the thread may have thought it idle.
    const bool sleeps_too_long = is_thread_receiving_ && has_request_path_in_use() &&
                                 slots_->pending_count() > 0 &&
                                 next_look_ns_ > host::monotonic_ns() + 2 * kLongestPathSleepNs;
    // When it fell asleep, nothing could make a path suspect.
    const bool watches_too_late =
        has_several() && is_thread_receiving_ &&
        next_look_ns_ > machine_.next_time_ns() + SessionMachine::kLeastSuspicionNs;
    if (watches_too_late ||
        (nobody_receives && slots_->pending_callbacks() > 0 && !is_found_soon()) ||
        sleeps_too_long || (earliest_deadline_ns != 0 && earliest_deadline_ns < next_look_ns_)) {
        poke();
    }
}

// ---- Letting go of the lock ------------------------------------------------------------------------------

// Those who could not get the lock rely on this: what they have put is sent by who had it.
void TcpMemory::leave() {
    for (uint32_t round = 0; true; round++) {
        if (inbox_.is_to_be_sent()) {
            take_inbox();
        }
        const OperationQueue completed = std::exchange(completed_, OperationQueue());
        mutex_.unlock();
        hand_back(completed);
        if (!inbox_.must_be_sent()) {
            return;
        }
        if (round == kRoundsForOthers) {
            poke();
            return;
        }
        if (!mutex_.try_lock()) {
            return;  // who has it has it to do
        }
    }
}

// For kIntervalMs, or until lease_changed_. It may end without a reason.
void TcpMemory::wait_for_change() {
    silent_unlocks_.fetch_add(1, std::memory_order_acq_rel);
    if (inbox_.must_be_seen_to() || completed_.front() != nullptr) {
        take_inbox();
        leave();
        mutex_.lock();
    } else {
        lease_changed_.wait_for(mutex_, uint64_t{kIntervalMs} * 1000);
    }
    silent_unlocks_.fetch_sub(1, std::memory_order_acq_rel);
}

}  // namespace tiffin::rdma_blk
