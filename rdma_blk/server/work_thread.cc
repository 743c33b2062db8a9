// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/work_thread.h"

#include <utility>

namespace tiffin::rdma_blk {

Result<void> WorkThread::start(const char* name, uint64_t interval_ns,
                               std::function<void()> at_intervals) {
    interval_ns_ = interval_ns;
    at_intervals_ = std::move(at_intervals);
    return thread_.start(
        name, [](void* self) { static_cast<WorkThread*>(self)->run(); }, this);
}

void WorkThread::stop() {
    if (!thread_.running()) {
        return;
    }
    {
        MutexLock lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

bool WorkThread::add(std::function<void()> work) {
    MutexLock lock(mutex_);
    if (stopping_ || queue_.size() >= kMaxQueued) {
        return false;
    }
    queue_.push_back(std::move(work));
    changed_.notify_one();
    return true;
}

void WorkThread::run() {
    constexpr uint64_t kLongestSleepNs = 1'000'000'000;
    interval_ns_ = at_intervals_ ? interval_ns_ : kLongestSleepNs;
    uint64_t next_ns = host::monotonic_ns() + interval_ns_;
    while (true) {
        std::function<void()> work;
        {
            MutexLock lock(mutex_);
            const uint64_t now_ns = host::monotonic_ns();
            if (queue_.empty() && stopping_) {
                return;
            }
            if (queue_.empty() && now_ns < next_ns) {
                (void)changed_.wait_for(mutex_, (next_ns - now_ns) / 1000 + 1);
            }
            if (!queue_.empty()) {
                work = std::move(queue_.front());
                queue_.pop_front();
            }
        }
        if (work) {
            work();
        }
        if (host::monotonic_ns() >= next_ns) {
            next_ns = host::monotonic_ns() + interval_ns_;
            if (at_intervals_) {
                at_intervals_();
            }
        }
    }
}

}  // namespace tiffin::rdma_blk
