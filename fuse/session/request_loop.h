// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The threads that receive the kernel's requests and answer them.
//
// A request costs far less than waking a thread for it. So a thread that has answered one first asks for
// the next again and again, for a short time, and sleeps only then; as KVM does before it halts a virtual
// processor. It does so only while requests follow each other closely: each sleep tells whether asking
// longer would have been worth it.
//
// The kernel wakes one of the threads that sleep over their read for each request, also when one is awake
// and takes it first. So while one program asks for one thing after the other, the thread that serves it
// (the leader) keeps the others parked, away from the kernel. They come back when requests pile up, and
// when the leader stays with one for long, which one of the parked threads, the guard, looks after.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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
    // Called now and then while requests follow each other closely; not by libfuse's loop.
    std::function<void()> on_burst;
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

    // Waits until all writes are answered that the kernel had queued for the session before. Of the writes of its cache it
    // passes on only kMaxBackgroundRequests at once, and keeps the others in a queue of its own: that is empty once fewer
    // requests are there. `connection`: the kernel's folder that tells how many; where there is none, or many of them wait for
    // something else than a thread, a mount that has more requests than threads all the time does not let it be seen. False when that took longer than `limit`, libfuse's loop
    // serves, or the calling thread serves. True when the connection has ended.
    bool wait_until_queue_is_answered(std::chrono::milliseconds limit,
                                      const std::string& connection) const EXCLUDES(mutex_);

    // Requests received and not yet answered; absent where libfuse's loop serves, which does not count them.
    std::optional<uint32_t> under_way() const {
        return options_.by_libfuse ? std::nullopt
                                   : std::optional(awaited_.load(std::memory_order_relaxed));
    }

    // Says, just before an answer is sent, that this thread's request is no longer waited for: the program that
    // gets the answer may ask again before the thread goes on. Nothing happens in other threads.
    static void answered();

  private:
    struct Thread;

    // That of the calling thread.
    static thread_local Thread* serving;

    int run_here() EXCLUDES(mutex_);
    int run_by_libfuse() EXCLUDES(mutex_);

    void serve(Thread& self);
    int receive(Thread& self);
    int sleep_for_request(Thread& self);
    bool poll(Thread& self);
    bool is_ready() const;
    struct Turns {
        uint64_t received;  // requests that have an answer
        uint64_t serving;   // threads that have a request
    };
    Turns count_turns() const EXCLUDES(mutex_);
    bool may_be_in_turn(const Thread* thread, uint64_t turn) const EXCLUDES(mutex_);
    bool is_leader(Thread& self);
    bool is_crowded() const;
    void note_crowd();
    void park() EXCLUDES(parking_);
    void leave_parking() EXCLUDES(parking_);
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
    std::atomic<uint64_t> last_answer_ns_{0};

    // One thread at a time, from when it polls until it sleeps over a read, or the guard finds that it does
    // not go on: what comes meanwhile is its. Never dereferenced.
    std::atomic<Thread*> leader_{nullptr};
    // Requests that the leader has taken: whether it goes on.
    std::atomic<uint64_t> leader_turns_{0};
    // Requests received and not yet answered.
    std::atomic<uint32_t> awaited_{0};
    // Until then several requests at once are expected, and no thread is parked.
    std::atomic<uint64_t> crowded_until_ns_{0};

    host::Mutex parking_{host::LockClass::leaf};
    host::Condition parking_ends_;
    std::atomic<uint32_t> parked_{0};  // changed under parking_
    bool is_guarded_ GUARDED_BY(parking_) = false;

    mutable host::Mutex mutex_{host::LockClass::leaf};
    // The first one is that of run(). They stay until the end.
    std::vector<std::unique_ptr<Thread>> threads_ GUARDED_BY(mutex_);
};

}  // namespace tiffin::fuse
