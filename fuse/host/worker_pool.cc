// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/worker_pool.h"

#include "fuse/host/device_request.h"

namespace tiffin::fuse {

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::submit(vfs::IoRequest& request) {
    if (!enqueue(request)) {
        complete_synchronously(device_, request);
    }
}

bool WorkerPool::enqueue(vfs::IoRequest& request) {
    MutexLock lock(mutex_);
    TIFFIN_ASSERT(!stopping_);
    if (queue_count_ == kQueueLength) {
        return false;
    }
    if (queue_count_ >= idle_count_ && thread_count_ < kMaxThreads) {
        if (threads_[thread_count_].start("tiffin-io", run, this).ok()) {
            ++thread_count_;
        } else if (thread_count_ == 0) {
            return false;
        }
    }
    queue_[(queue_first_ + queue_count_) % kQueueLength] = &request;
    ++queue_count_;
    work_or_stop_.notify_one();
    return true;
}

void WorkerPool::run(void* pool) { static_cast<WorkerPool*>(pool)->work(); }

void WorkerPool::work() {
    for (;;) {
        vfs::IoRequest* request = nullptr;
        {
            MutexLock lock(mutex_);
            while (queue_count_ == 0 && !stopping_) {
                ++idle_count_;
                work_or_stop_.wait(mutex_);
                --idle_count_;
            }
            if (queue_count_ == 0) {
                return;
            }
            request = queue_[queue_first_];
            queue_first_ = (queue_first_ + 1) % kQueueLength;
            --queue_count_;
        }
        complete_synchronously(device_, *request);
    }
}

void WorkerPool::stop() {
    size_t thread_count = 0;
    {
        MutexLock lock(mutex_);
        stopping_ = true;
        thread_count = thread_count_;
        thread_count_ = 0;
        work_or_stop_.notify_all();
    }
    for (size_t i = 0; i < thread_count; ++i) {
        threads_[i].join();
    }
}

}  // namespace tiffin::fuse
