// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A thread with an epoll set of connections. The acceptor is one that has listening sockets, too, and hands
// connections on once they belong to a session.
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rdma_blk/server/connection.h"
#include "rdma_blk/transport/busy_poll.h"

namespace tiffin::rdma_blk {

class IoThread final : public ConnectionRunner {
  public:
    // What an acceptor does. Called in its thread.
    struct Acceptor {
        // A connection that a client asks for; nullptr: refused (and counted), the socket is closed.
        std::function<std::shared_ptr<Connection>(UniqueDescriptor socket,
                                                  std::vector<unsigned char> peer_address)>
            accept;
        // How many connections may be here that belong to no session (Connection::is_stranger()). For one more, the oldest of
        // the address that has most of them is closed, and displaced() called: so idle connections keep no client out, and
        // frequent ones from one address none from elsewhere.
        std::function<size_t()> most_strangers;
        std::function<void()> displaced;
        // Takes an attached connection over.
        std::function<void(std::shared_ptr<Connection>)> hand_over;
    };

    // Errors: those of the system.
    // `busy_poll_us`: how long it looks for more before it sleeps, while requests come that fast.
    static Result<std::unique_ptr<IoThread>> create(uint64_t tick_interval_ns,
                                                    uint32_t busy_poll_us,
                                                    ServerCounters& counters);
    ~IoThread();

    // Before start().
    void set_acceptor(Acceptor acceptor) { acceptor_ = std::move(acceptor); }
    // A socket to accept from, until remove_listener() of what this returned. Any thread.
    uint64_t add_listener(UniqueDescriptor listener) EXCLUDES(mutex_);
    void remove_listener(uint64_t id) EXCLUDES(mutex_);
    Result<void> start(const char* name);
    // Closes all its connections, and ends. No other call may be running or follow.
    void stop();

    // Any thread.
    void adopt(std::shared_ptr<Connection> connection);
    void wake(std::shared_ptr<Connection> connection) override;
    size_t connection_count() const { return connection_count_.load(); }

  private:
    struct Entry {
        std::shared_ptr<Connection> connection;
        uint32_t events = 0;
        uint32_t datagram_path_number = 0;  // of the path whose socket is watched; 0: none
    };

    IoThread(uint64_t tick_interval_ns, uint32_t busy_poll_us, ServerCounters& counters)
        : tick_interval_ns_(tick_interval_ns), counters_(counters), busy_poll_(busy_poll_us) {}
    void run();
    void run_once();
    int wait_for_events(epoll_event* events);
    bool looks_at_lively_path();
    void take_inbox();
    void accept_from(uint64_t listener_id);
    void make_room_for(const std::vector<unsigned char>& peer_address);
    void watch_listener(int listener, uint64_t id, bool watch);
    void serve(uint64_t id);
    void serve_datagrams(uint64_t id);
    void serve_late_datagrams();
    void update(uint64_t id, Entry& entry);
    void drop(uint64_t id);
    void drop_when_gone(uint64_t id, uint32_t events);
    void tick();
    void watch_listeners(bool watch) EXCLUDES(mutex_);
    void signal();

    const uint64_t tick_interval_ns_;
    ServerCounters& counters_;
    BusyPoll busy_poll_;
    UniqueDescriptor epoll_;
    UniqueDescriptor event_;
    Acceptor acceptor_;
    host::Thread thread_;
    std::atomic<bool> stopping_{false};
    std::atomic<size_t> connection_count_{0};
    // Only the thread's. Ids are never used twice, so that a late event hits no other entry.
    std::unordered_map<uint64_t, Entry> entries_;
    std::unordered_map<const Connection*, uint64_t> ids_;
    std::vector<uint64_t> datagram_ids_;  // of connections with a path of datagrams
    uint64_t lively_id_ = 0;              // whose path of datagrams had something last; 0: none
    bool is_lively_due_ = false;          // it has something
    uint32_t looks_ = 0;                  // at it, or at all
    std::vector<uint64_t> more_;          // those that have more to do without an event
    std::vector<uint64_t>
        turn_;             // those that are served now; kept, as memory for each turn costs time
    uint64_t now_ns_ = 0;  // when this turn began
    uint64_t next_id_;
    uint64_t next_tick_ns_ = 0;

    host::Mutex mutex_{host::LockClass::leaf};
    // By id; shared with a thread that accepts from it just now.
    std::map<uint64_t, std::shared_ptr<UniqueDescriptor>> listeners_ GUARDED_BY(mutex_);
    uint64_t next_listener_id_ GUARDED_BY(mutex_);
    bool are_listeners_watched_ GUARDED_BY(mutex_) = true;
    std::vector<std::shared_ptr<Connection>> adopted_ GUARDED_BY(mutex_);
    std::vector<std::shared_ptr<Connection>> woken_ GUARDED_BY(mutex_);
};

}  // namespace tiffin::rdma_blk
