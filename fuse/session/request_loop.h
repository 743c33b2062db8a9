// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The threads that receive the kernel's requests and answer them.
//
// A request costs far less than waking a thread for it. So a thread that has answered one first asks for
// the next again and again, for a short time, and sleeps only then; as KVM does before it halts a virtual
// processor. It does so only while requests follow each other closely: each sleep tells whether asking
// longer would have been worth it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "fs/vfs/host.h"

struct fuse_session;

namespace tiffin::fuse {

struct RequestLoopOptions {
    // Threads are started when a request arrives and all others are busy.
    uint32_t max_threads;
    // How long a thread asks for the next request before it sleeps; 0: it sleeps at once.
    uint32_t busy_poll_us;
    // libfuse's loop instead, which alone can end what it starts for io_uring. It does not poll.
    bool by_libfuse;
};

class RequestLoop {
  public:
    // Requests that a thread met while it asked, and sleeps; for the status.
    struct Counters {
        uint64_t met_awake;
        uint64_t slept;
    };

    // `session` must outlive the loop.
    RequestLoop(fuse_session* session, RequestLoopOptions options);
    ~RequestLoop();
    RequestLoop(const RequestLoop&) = delete;
    RequestLoop& operator=(const RequestLoop&) = delete;

    // Serves in this thread and others until the connection ends or stop() is called. Returns 0 or an
    // error number. Call once.
    int run() EXCLUDES(mutex_);

    // Makes run() return soon. Any thread; waits until each has answered what it has.
    void stop() EXCLUDES(mutex_);

    Counters counters() const EXCLUDES(mutex_);

  private:
    struct Thread;

    int run_here() EXCLUDES(mutex_);
    int run_by_libfuse() EXCLUDES(mutex_);

    void serve(Thread& self);
    int receive(Thread& self);
    bool poll();
    bool is_ready() const;
    void start_thread() EXCLUDES(mutex_);

    fuse_session* session_;
    const RequestLoopOptions options_;
    const uint64_t busy_poll_ns_;

    // Threads that wait for a request. When the last one gets busy, another is started.
    std::atomic<uint32_t> waiting_{0};
    std::atomic<uint32_t> running_{0};
    std::atomic<int> error_{0};
    std::atomic<bool> ended_{false};

    // Whether the last request that a thread slept for came so soon after an answer that polling would have
    // met it. Hints of all threads together, for it is the requests that follow each other.
    std::atomic<bool> polling_pays_{false};
    std::atomic<bool> somebody_polls_{false};
    std::atomic<uint64_t> last_answer_ns_{0};

    mutable host::Mutex mutex_{host::LockClass::leaf};
    // The first one is that of run(). They stay until the end.
    std::vector<std::unique_ptr<Thread>> threads_ GUARDED_BY(mutex_);
};

}  // namespace tiffin::fuse
