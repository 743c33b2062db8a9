// SPDX-License-Identifier: MIT OR GPL-2.0-only
// RDMA devices of this process: queue pairs that copy memory, with windows and keys checked as a network card does, and
// with errors where a test wants them. What is posted is executed within post(), unless it is held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk::test {

// What is in here stands for hardware, which the product asks with its own locks held: its lock has no place in
// their order.
class CAPABILITY("mutex") DeviceMutex {
  public:
    void lock() ACQUIRE() { mutex_.lock(); }
    void unlock() RELEASE() { mutex_.unlock(); }

  private:
    std::mutex mutex_;
};

class SCOPED_CAPABILITY DeviceLock {
  public:
    explicit DeviceLock(DeviceMutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
    ~DeviceLock() RELEASE() { mutex_.unlock(); }
    DeviceLock(const DeviceLock&) = delete;
    DeviceLock& operator=(const DeviceLock&) = delete;

  private:
    DeviceMutex& mutex_;
};

class FakeNetwork;

class FakeQueuePair final : public verbs::QueuePair {
  public:
    FakeQueuePair(FakeNetwork& network, uint32_t number, uint32_t depth, bool is_reliable = true);
    ~FakeQueuePair() override;
    const wire::QueuePairAddress& address() const override { return address_; }
    Result<void> connect(const wire::QueuePairAddress& peer) override;
    Result<void> post(const verbs::WorkRequest* work, size_t count) override;
    Result<void> post_receives(const verbs::Receive* receives, size_t count) override;
    size_t poll(verbs::Completion* completions, size_t capacity) override;
    int event_descriptor() const override { return event_; }
    Result<void> arm() override;
    void disarm() override;
    Result<void> stop() override;
    Result<void> destroy() override;

  private:
    friend class FakeNetwork;
    // A copy, as the poster's memory for it is used again.
    struct Held {
        verbs::WorkRequest work;
        std::vector<verbs::Piece> pieces;
        std::vector<unsigned char> inline_bytes;
    };

    void forget();

    FakeNetwork& network_;
    wire::QueuePairAddress address_{};
    uint32_t depth_;
    bool is_reliable_;
    uint32_t peer_ = 0;
    bool is_broken_ = false;
    bool is_armed_ = false;
    int event_ = -1;
    size_t unpolled_ = 0;                // posted and not known to be complete
    bool is_held_ = false;               // what it posts stays on its way
    bool is_deaf_ = false;               // answers to it are lost
    uint64_t gives_up_ns_ = 0;           // 0: it never does
    std::atomic<bool> has_data_{false};  // posted: it is a client's
    std::deque<Held> held_;
    std::deque<verbs::WorkRequest> unanswered_;
    std::deque<std::pair<verbs::Completion, size_t>> completions_;  // with how many it completes
    size_t since_signalled_ = 0;
    std::deque<verbs::Receive> receives_;
};

class FakeNetwork final : public verbs::Devices {
  public:
    // While it lives, it is what verbs::devices() gives.
    FakeNetwork();
    ~FakeNetwork() override;

    bool exist(std::string& problem) override;
    Result<std::unique_ptr<verbs::Device>> open(const uint8_t address[16],
                                                std::string& problem) override;

    struct Counts {
        uint64_t posts = 0;  // doorbells
        uint64_t reads = 0;
        uint64_t writes = 0;
        uint64_t inlined = 0;
        uint64_t fenced = 0;
        uint64_t signalled = 0;  // of reads and writes
        uint64_t bindings = 0;
        uint64_t invalidations = 0;
        uint64_t refusals = 0;
        uint64_t unreliable_losses = 0;
        uint64_t unreliable_delays = 0;
    };
    Counts counts();

    bool is_present = true;
    bool has_windows = true;
    std::atomic<uint32_t> mtu_bytes{4096};  // of devices and queue pairs that are made from then on
    // Every read and write is lost, as by a firewall.
    std::atomic<bool> is_filtered{false};
    // Memory that windows may be bound to: none above this size can be registered.
    std::atomic<uint64_t> max_registration_bytes{~uint64_t{0}};
    // ... and all other memory.
    std::atomic<uint64_t> max_local_registration_bytes{~uint64_t{0}};
    // Registering memory for windows takes until it is false again, or for 5 s.
    std::atomic<bool> stalls_registration{false};
    std::atomic<bool> is_stalled{false};
    // poll() of clients' queue pairs does not return before it is false again, or for 5 s.
    std::atomic<bool> stalls_polls{false};

    // Of what unreliable queue pairs send, in parts of a million: is lost; comes after up to max_delay_packets of what is
    // sent later.
    std::atomic<uint32_t> unreliable_loss_ppm{0};
    std::atomic<uint32_t> unreliable_delay_ppm{0};
    std::atomic<uint32_t> max_delay_packets{1000};

    // The next write with an immediate arrives with another first byte.
    std::atomic<bool> changes_next_immediate{false};
    // Writes with an immediate are kept besides, as a network may that repeats packets much later.
    std::atomic<bool> copies_immediates{false};
    // They arrive, each with `content` for all its bytes; how many there were.
    size_t deliver_copies(unsigned char content);

    // What reliable queue pairs send is carried out, and nobody learns it before the connection breaks: then it counts as
    // lost. Reads get nothing.
    std::atomic<bool> loses_answers{false};
    // The queue pair that posted a write last falls silent: as loses_answers, or what it sends stays on its way until
    // hold(false). As a device does, it gives up after a second without an answer.
    void silence_writer(bool loses_answers_only);

    // As loses_answers of a deaf queue pair, but what a read gets lands where it belongs when this is called, if the
    // client has not ended the queue pair, which does not give up. Returns how many did.
    std::atomic<bool> delays_answers{false};
    size_t deliver_answers();
    // Clients' queue pairs cannot be ended.
    std::atomic<bool> ends_no_client{false};

    // Servers' queue pairs neither end nor close a window, and what they let through comes through.
    std::atomic<bool> ends_no_pair{false};

    // All queue pairs that there are now, as when a device fails.
    void break_pairs();

    // After that many more reads and writes have been executed, the connection of the next one breaks;
    // `is_executed`: that one is carried out, though nobody learns it.
    void break_after(uint64_t count, bool is_executed);
    // Reads and writes of the queue pairs that there are now stay on their way; false: they arrive. Writes do
    // when their sender has gone, too, if the peer is still there and its windows are open.
    void hold(bool holds);
    size_t held_count();
    size_t queue_pair_count();
    size_t window_count();  // that are open
    struct OpenWindow {
        uint32_t queue_pair;  // of the side that opened it
        uint64_t size_bytes;
        bool allows_writes;
    };
    std::vector<OpenWindow> windows();

  private:
    friend class FakeQueuePair;
    friend class FakeDevice;
    friend class FakeWindow;
    friend class FakeMemory;
    struct Binding {
        uint32_t queue_pair = 0;
        unsigned char* begin = nullptr;
        uint64_t size_bytes = 0;
        bool allows_writes = false;
    };
    struct InFlight {
        uint32_t sender = 0;
        uint32_t receiver = 0;
        FakeQueuePair::Held held;
    };
    struct Region {
        unsigned char* begin = nullptr;
        uint64_t size_bytes = 0;
    };

    void execute(FakeQueuePair& pair, const FakeQueuePair::Held& held) REQUIRES(mutex_);
    verbs::Status transfer(uint32_t sender, uint32_t receiver, const FakeQueuePair::Held& held)
        REQUIRES(mutex_);
    void send_unreliably(const FakeQueuePair& pair, const FakeQueuePair::Held& held)
        REQUIRES(mutex_);
    void arrive(const InFlight& packet) REQUIRES(mutex_);
    unsigned char* writable(uint32_t receiver, const verbs::WorkRequest& work, uint64_t size_bytes)
        REQUIRES(mutex_);
    void notify(FakeQueuePair& pair) REQUIRES(mutex_);
    static void make_inline(FakeQueuePair::Held& held);
    void leave_in_flight(const FakeQueuePair& pair, FakeQueuePair::Held held) REQUIRES(mutex_);
    bool owns_pieces(const verbs::WorkRequest& work, const std::vector<verbs::Piece>& pieces)
        REQUIRES(mutex_);
    void complete(FakeQueuePair& pair, const verbs::WorkRequest& work, verbs::Status status)
        REQUIRES(mutex_);
    void break_pair(FakeQueuePair& pair) REQUIRES(mutex_);
    void drop_answers(const FakeQueuePair& pair) REQUIRES(mutex_);
    FakeQueuePair* find(uint32_t number) REQUIRES(mutex_);

    DeviceMutex mutex_;
    std::map<uint32_t, FakeQueuePair*> pairs_ GUARDED_BY(mutex_);
    std::map<uint32_t, Binding> bindings_ GUARDED_BY(mutex_);
    std::map<uint32_t, Region> regions_ GUARDED_BY(mutex_);
    Counts counts_ GUARDED_BY(mutex_);
    uint32_t next_number_ GUARDED_BY(mutex_) = 100;
    uint32_t last_writer_ GUARDED_BY(mutex_) = 0;
    bool breaks_ GUARDED_BY(mutex_) = false;
    bool breaks_executed_ GUARDED_BY(mutex_) = false;
    uint64_t breaks_after_ GUARDED_BY(mutex_) = 0;
    std::vector<InFlight> in_flight_ GUARDED_BY(mutex_);  // writes of those that have gone
    struct Delayed {
        uint64_t packets_left = 0;
        InFlight packet;
    };
    std::deque<Delayed> delayed_ GUARDED_BY(mutex_);
    std::vector<InFlight> copies_ GUARDED_BY(mutex_);
    std::vector<InFlight> late_answers_ GUARDED_BY(mutex_);  // whose inline bytes are what was read
    std::mt19937_64 random_ GUARDED_BY(mutex_){1};
};

}  // namespace tiffin::rdma_blk::test
