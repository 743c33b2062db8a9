// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Makes the kernel write back or drop what it has cached of a file, in a thread of its own.
//
// Some requests can only be answered when the kernel's dirty pages have reached the file system, but
// the kernel does not write them first. A notification makes it do that, and waits until the session
// has answered those writes: a thread of the session that waited for it could starve the very
// writes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "fs/vfs/types.h"

struct fuse_session;

namespace tiffin::fuse {

class PageFlusher {
  public:
    PageFlusher() = default;
    ~PageFlusher();
    PageFlusher(const PageFlusher&) = delete;
    PageFlusher& operator=(const PageFlusher&) = delete;

    // Starts the thread; `session` must outlive it. Returns false when there is no memory for it.
    bool start(fuse_session* session);
    // Does what is queued and ends the thread.
    void stop();

    // Writes back and drops what the kernel has cached of `node` from `offset_bytes` on
    // (`length_bytes` 0: to the end), then calls `then`, if it is not empty. When no job is taken any
    // more, it is called at once, and is_flushed is false.
    void flush(vfs::NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
               std::function<void(bool is_flushed)> then);

    // Calls it in the thread, before what is queued; not at all when no job is taken any more.
    void run_next(std::function<void()> job);
    // For such a job. False when stop() was called meanwhile.
    bool sleep(std::chrono::milliseconds time);

  private:
    struct Job {
        vfs::NodeId node;  // 0: none
        uint64_t offset_bytes;
        uint64_t length_bytes;
        std::function<void(bool is_flushed)> then;
    };

    void run();

    fuse_session* session_ = nullptr;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> queue_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace tiffin::fuse
