// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory for tests, in this process: a server that is an object, and sessions with it that do
// what rdma_blk/remote_memory.h allows and no more than it promises. Operations complete in random
// order and on a thread of their own; they fail, end as unknown, or wait for a reconnection when a test
// says so. Misuse of the contract ends the test program.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "rdma_blk/remote_memory.h"

namespace tiffin::test {

// What outlives the sessions: the memory of one volume on one server, and what a power failure would
// leave of it. Not for use by two sessions at once, but for their opening and closing.
struct LocalServer {
    LocalServer(uint64_t data_bytes, uint32_t number);

    // As after the loss of power: what was flushed, new control words.
    void lose_power();
    void flush_words();

    rdma_blk::Geometry geometry;
    std::vector<unsigned char> data;
    std::vector<unsigned char> durable;
    std::vector<unsigned char> control;
    std::vector<unsigned char> durable_words;
    bool forgets_words = false;  // as versions did that kept the content only
    bool words_unknown = false;
    uint64_t content_incarnation = 1;
    uint64_t empty_since_incarnation = 1;
    const void* writer = nullptr;                // the session with the lease
    std::vector<uint32_t>* lease_log = nullptr;  // gets `number` whenever a lease is taken
    uint32_t number;

  private:
    void make_control();
};

class LocalMemory final : public rdma_blk::RemoteMemory {
  public:
    enum class Delivery : uint8_t {
        at_once,   // within submit()
        threaded,  // by a thread, in random order, now and then after a pause
    };
    struct Options {
        Delivery delivery = Delivery::threaded;
        uint32_t seed = 1;
        bool mapped = false;  // direct_address() answers
        bool may_write = true;
        rdma_blk::Limits limits{.transfer_bytes = 1 << 20,
                                .eager_bytes = 64 << 10,
                                .inline_bytes = 256,
                                .buffer_count = 16,
                                .flush_range_count = 8,
                                .operations_in_flight = 64};
    };
    // What becomes of an operation; `applied` says for unknown whether it took effect.
    struct Fault {
        rdma_blk::Outcome outcome = rdma_blk::Outcome::not_executed;
        Error error = Error::eio;
        bool applied = false;
    };
    using Judge = std::function<std::optional<Fault>(const rdma_blk::Operation&)>;
    struct Counts {
        uint64_t submits = 0;     // batches: with an idle network the round trips
        uint64_t operations = 0;  // submitted
        uint64_t reads = 0;
        uint64_t writes = 0;
        uint64_t flushes = 0;
        uint64_t flushed_bytes = 0;
        uint64_t largest_batch = 0;
        uint64_t deepest = 0;  // most operations pending at once
    };

    LocalMemory(LocalServer& server, const Options& options,
                rdma_blk::ConnectionListener* listener);
    ~LocalMemory() override;
    LocalMemory(const LocalMemory&) = delete;
    LocalMemory& operator=(const LocalMemory&) = delete;

    const rdma_blk::Geometry& geometry() const override { return geometry_; }
    const rdma_blk::Limits& limits() const override { return options_.limits; }
    rdma_blk::ConnectionInfo connection() const override;
    rdma_blk::Statistics statistics() const override;
    // What says that more follows waits for as long as the contract allows it, but for the time.
    void submit(rdma_blk::Operation& first) override;
    void send_gathered() override;
    void wait(rdma_blk::Operation& operation) override;
    bool help(const std::atomic<uint32_t>& count, uint32_t seen) override;
    size_t progress() override;
    Result<void> add_arena(MutableByteSpan memory) override;
    Result<void> start_writing(bool force, rdma_blk::Holder& holder) override;
    const void* direct_address(uint64_t offset_bytes, uint64_t size_bytes) override;
    uint64_t change_mark() const override;
    // Asserts what the caller claims, where that can be told.
    void changes_flushed(uint64_t mark) override;
    void close() override;

    // The greatest mark that was given back.
    uint64_t flushed_mark() const;
    // Asked for each operation when its turn comes; nothing: it is executed.
    void set_judge(Judge judge);
    // reconnecting: operations wait until ready. fenced, memory_lost, closed: all end, for good.
    void change_state(rdma_blk::ConnectionState state);
    // No operation completes from hold() to let_go(): what is pending can be looked at.
    void hold();
    void let_go();
    Counts counts() const;
    uint64_t pending() const;
    // Sleeps until so many operations are pending.
    void wait_until_pending(uint64_t count);

  private:
    void run();
    bool can_run() const;
    size_t pick();
    void execute_at(size_t index);
    Fault execute(rdma_blk::Operation& operation);
    void finish(size_t index, const Fault& fault);
    void finish_all(rdma_blk::Outcome outcome, Error error);
    void inherit();
    void check(const rdma_blk::Operation& operation) const;
    void check_flush_against_writes() const;

    LocalServer& server_;
    const Options options_;
    rdma_blk::Geometry geometry_;
    rdma_blk::ConnectionListener* listener_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::mt19937 random_;
    std::vector<rdma_blk::Operation*> pending_;
    uint64_t next_number_ = 1;
    Judge judge_;
    rdma_blk::ConnectionState state_ = rdma_blk::ConnectionState::ready;
    uint32_t incarnation_ = 1;
    rdma_blk::Statistics statistics_;
    Counts counts_;
    uint64_t changes_ = 0;  // of the data, that were executed
    bool inherits_unflushed_ = false;
    uint64_t flushed_mark_ = 0;
    bool held_ = false;
    bool gathers_ = false;
    bool closed_ = false;
    std::thread thread_;
};

}  // namespace tiffin::test
