// SPDX-License-Identifier: MIT OR GPL-2.0-only
// An RcMemory's callers while they wait: who leads, who sleeps, the lease, and the end.
#include <unistd.h>

#include <utility>

#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/transport/time_units.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kLeadSleepNs = 20 * kMillisecondNs;
constexpr uint64_t kPathTimeoutNs = 90'000 * kMillisecondNs;

}  // namespace

void RcMemory::wait(Operation& operation) {
    if (is_finished(operation)) {
        return;
    }
    MutexLock lock(mutex_);
    while (!is_finished(operation)) {
        if (path_.queue_pair != nullptr && !has_leader_ && queue_->posted_count() > 0) {
            lead(operation);
        } else {
            waiters_.sleep(operation, mutex_);
            // It may have been woken to lead, and finds that it has nothing to wait for any more.
            if (is_finished(operation)) {
                pass_lead();
            }
        }
    }
}

// Polls for all until `operation` is complete, or nothing is posted.
void RcMemory::lead(const Operation& operation) {
    has_leader_ = true;
    while (!is_finished(operation) && path_.queue_pair != nullptr && queue_->posted_count() > 0) {
        poll_round(host::monotonic_ns() + kLeadSleepNs, false);
    }
    has_leader_ = false;
    pass_lead();
}

// Whoever leaves the lead sees to it that somebody has it, as long as something is posted.
void RcMemory::pass_lead() {
    const bool is_needed =
        !has_leader_ && path_.queue_pair != nullptr && queue_->posted_count() > 0;
    if (is_needed && !wake_next_leader() && queue_->pending_callbacks() > 0) {
        poke();
    }
}

// False: nobody waits.
bool RcMemory::wake_next_leader() {
    if (has_leader_ || path_.queue_pair == nullptr || queue_->posted_count() == 0) {
        return false;
    }
    return waiters_.wake_leader();
}

size_t RcMemory::progress() {
    MutexLock lock(mutex_);
    if (has_leader_ || path_.queue_pair == nullptr) {
        return 0;
    }
    const size_t before = queue_->pending_count();
    has_leader_ = true;
    poll_round(0, false);
    has_leader_ = false;
    pass_lead();
    const size_t after = queue_->pending_count();
    return before > after ? before - after : 0;
}

// ---- Lease and end ------------------------------------------------------------------------------------------

// Windows that writes may go through come with another path.
Result<void> RcMemory::start_writing(bool force, Holder& holder) {
    TRY(control_->start_writing(force, holder));
    const uint64_t deadline = host::monotonic_ns() + kPathTimeoutNs;
    MutexLock lock(mutex_);
    drop_standbys();
    while (path_.queue_pair == nullptr || is_broken_ || path_.windows[0].writes == 0) {
        // One that was asked for just before the lease came has a reader's windows, too.
        if (path_.queue_pair != nullptr && !is_broken_) {
            is_planned_ = true;
            abort_path();
        }
        if (state_ != ConnectionState::ready && state_ != ConnectionState::reconnecting) {
            return Error::estale;
        }
        if (host::monotonic_ns() >= deadline) {
            return Error::etimedout;
        }
        changed_.wait_for(mutex_, 20'000);
    }
    return {};
}

void RcMemory::close() {
    if (thread_.running()) {
        {
            MutexLock lock(mutex_);
            is_stopping_ = true;
        }
        poke();
        standby_wanted_.notify_all();
        if (standby_thread_.running()) {
            standby_thread_.join();
        }
        thread_.join();
    }
    {
        MutexLock lock(mutex_);
        drop_standbys();
        if (path_.queue_pair != nullptr) {
            is_planned_ = true;
            is_broken_ = true;
            (void)path_.queue_pair->stop();
            break_path();
        }
        if (queue_) {
            if (state_ == ConnectionState::ready || state_ == ConnectionState::reconnecting) {
                set_state(ConnectionState::closed);
            }
            queue_->fail_all(Error::enodev);
            waiters_.wake_finished();
            count_unknown();
        }
    }
    control_->close();
    MutexLock lock(mutex_);
    if (queue_) {
        handle_control_done();
        waiters_.wake_finished();
    }
}

void RcMemory::count_unknown() {
    if (queue_->completed(Outcome::unknown) > unknown_beat_count_.load()) {
        change_count_.fetch_add(1);
    }
}

}  // namespace tiffin::rdma_blk
