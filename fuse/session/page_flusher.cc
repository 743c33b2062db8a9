// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/page_flusher.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "fuse/session/libfuse.h"

namespace tiffin::fuse {

PageFlusher::~PageFlusher() { stop(); }

bool PageFlusher::start(fuse_session* session) {
    session_ = session;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {
        return false;
    }
    pthread_setname_np(thread_.native_handle(), "page_flusher");
    return true;
}

void PageFlusher::stop() {
    {
        std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void PageFlusher::flush(vfs::NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                        std::function<void(bool is_flushed)> then) {
    {
        std::lock_guard lock(mutex_);
        if (!stopping_) {
            queue_.push_back({node, offset_bytes, length_bytes, std::move(then)});
            changed_.notify_one();
            return;
        }
    }
    if (then) {
        then(false);
    }
}

void PageFlusher::run_next(std::function<void()> job) {
    std::lock_guard lock(mutex_);
    if (!stopping_) {
        queue_.push_front({0, 0, 0, [job = std::move(job)](bool /*is_flushed*/) { job(); }});
        changed_.notify_one();
    }
}

bool PageFlusher::sleep(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, time, [this] { return stopping_; });
}

void PageFlusher::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) {
            return;
        }
        Job job = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        // It fails when the kernel does not know the file any more (then it holds nothing of it) or
        // the mount is gone.
        if (job.node != 0) {
            fuse_lowlevel_notify_inval_inode(session_, job.node,
                                             static_cast<off_t>(job.offset_bytes),
                                             static_cast<off_t>(job.length_bytes));
        }
        if (job.then) {
            job.then(true);
        }
        lock.lock();
    }
}

}  // namespace tiffin::fuse
