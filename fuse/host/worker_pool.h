// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Threads that carry out the blocking I/O of devices without an asynchronous interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"

namespace tiffin::fuse {

// Runs requests with complete_synchronously(). Threads start one by one when work waits and all
// others are busy; nothing is allocated for a request. When the queue is full or no thread can be
// started, a request runs in the thread that submits it.
class WorkerPool {
  public:
    static constexpr size_t kMaxThreads = 8;
    static constexpr size_t kQueueLength = 256;

    // `device` must outlive the pool.
    explicit WorkerPool(vfs::BlockDevice& device) : device_(device) {}
    // Finishes what is queued.
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    // Any thread.
    void submit(vfs::IoRequest& request) EXCLUDES(mutex_);

    // Finishes what is queued and ends the threads. Nothing may be submitted from then on.
    void stop() EXCLUDES(mutex_);

  private:
    static void run(void* pool);
    void work() EXCLUDES(mutex_);
    bool enqueue(vfs::IoRequest& request) EXCLUDES(mutex_);

    vfs::BlockDevice& device_;
    host::Mutex mutex_{host::LockClass::leaf};
    host::Condition work_or_stop_;
    vfs::IoRequest* queue_[kQueueLength] GUARDED_BY(mutex_) = {};
    size_t queue_first_ GUARDED_BY(mutex_) = 0;
    size_t queue_count_ GUARDED_BY(mutex_) = 0;
    // The first thread_count_ run; enqueue() starts the next under the mutex, only stop() joins.
    host::Thread threads_[kMaxThreads];
    size_t thread_count_ GUARDED_BY(mutex_) = 0;
    size_t idle_count_ GUARDED_BY(mutex_) = 0;
    bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace tiffin::fuse
