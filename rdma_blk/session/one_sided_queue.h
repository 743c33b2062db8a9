// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The client's side of operations that a device carries out alone, in the order of their posting (rc): what may be
// posted when, what is done again on a new connection, and that each operation completes exactly once. Beside the
// device there is a control connection, to which flushes and atomics go; nothing but this class orders the two.
//
// No input or output, no clock, no lock: a transport calls it under a lock of its own, and completions are called
// from within. docs/remote.md, "Order" and "Liveness and reconnection", say what is promised.
//
//     connected:  while peek() has one: start_device() and post it, start_control() and send it, or refuse() it
//     completed:  while finished_count() < number: look at oldest(), finish_oldest()
//     deadline:   expire(): when it says so, destroy the connection and call broken()
//     broken:     destroy it (nothing may touch a buffer afterwards), broken(); later, when the server has ended its side and
//                 the completion log has been read, finish_executed() of each find_executed(), and connected(); or fail_all()
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/session/operation_queue.h"

namespace tiffin::rdma_blk {

class OneSidedQueue {
  public:
    // At most `depth` (1 to wire::kMaxSlots) are posted at a time. Errors: einval, enomem. All memory is taken here.
    static Result<std::unique_ptr<OneSidedQueue>> create(uint16_t depth);
    ~OneSidedQueue();
    OneSidedQueue(const OneSidedQueue&) = delete;
    OneSidedQueue& operator=(const OneSidedQueue&) = delete;

    // ---- The caller's side ----

    // Takes the operations linked from `first` on; they are within the transport's limits. After fail_all() they
    // complete at once.
    void submit(Operation& first);
    // Submitted and not complete; posted; given to the control connection; with a `complete` function.
    size_t pending_count() const { return queue_.size() + posted_count() + control_count_; }
    size_t posted_count() const { return static_cast<size_t>(started_ - finished_); }
    size_t control_count() const { return control_count_; }
    size_t pending_callbacks() const { return callback_count_; }
    // The earliest deadline of what is queued or posted, 0: none has one.
    uint64_t next_deadline_ns() const;
    // Completes what was not started by its deadline. True: something posted is late, and the connection must be
    // destroyed. The deadlines of the rest are the control connection's.
    [[nodiscard]] bool expire(uint64_t now_ns);

    // ---- The connection's side ----

    void connected() { connected_ = true; }
    bool is_connected() const { return connected_; }
    // The next operation, if it may start now; `is_control`: where.
    Operation* peek(bool& is_control) const;
    // Starts the one that peek() returned. The device executes in order, but reads end late: with
    // `is_fenced` it must wait for those. Returns its number: 1, 2, ...
    uint64_t start_device(bool& is_fenced);
    void start_control();
    // ... or completes it without.
    void refuse(Error error);

    // Numbers up to here are complete.
    uint64_t finished_count() const { return finished_; }
    // The posted operation of the smallest number; its results are set, then it is executed.
    Operation& oldest() const;
    void finish_oldest();
    void finish_control(Operation& operation, Outcome outcome, Error error);

    // The first change that was posted before the connection broke, and was submitted as number `executed_through` or
    // before: by the completion log (wire::CompletionLog) it has been executed. nullptr: none is left. Reads are not in the
    // log, since it says nothing of their answers.
    Operation* find_executed(uint64_t executed_through) const;
    void finish_executed(Operation& found);

    // The connection has been destroyed. What was posted is queued again in front of all others, but for
    // what is late at `now_ns`: that may have been executed, and is unknown. So is what was ordered behind them.
    void broken(uint64_t now_ns);
    // The end: what was posted at any time is unknown, the rest not executed. The connection has been destroyed. What
    // the control connection has completes by finish_control().
    void fail_all(Error error);

    uint64_t completed(Outcome outcome) const { return completed_[static_cast<size_t>(outcome)]; }
    // What was posted again after a break, and the changes that the log saved from that.
    uint64_t replayed_count() const { return replayed_; }
    uint64_t replayed_bytes() const { return replayed_bytes_; }  // of changes
    uint64_t recovered_count() const { return recovered_; }

  private:
    explicit OneSidedQueue(std::unique_ptr<Operation*[]> posted, uint16_t depth)
        : posted_(std::move(posted)), depth_(depth) {}

    Operation*& posted(uint64_t number) const { return posted_[number % depth_]; }
    bool must_wait_for_read(const Operation& operation) const;
    void count_pending(const Operation& operation, size_t by);
    void complete(Operation& operation, Outcome outcome, Error error);
    template <typename Condition>
    void complete_queued(Condition condition, Error error);

    std::unique_ptr<Operation*[]> posted_;  // a ring: numbers finished_ + 1 to started_
    uint16_t depth_;
    bool connected_ = false;
    bool failed_ = false;
    Error failure_ = Error::enodev;
    uint64_t started_ = 0;
    uint64_t finished_ = 0;
    uint64_t last_late_number_ = 0;  // the greatest of a posted read
    size_t control_count_ = 0;
    size_t deadline_count_ = 0;
    size_t callback_count_ = 0;
    size_t follower_count_ = 0;
    OperationQueue queue_;
    uint64_t next_submit_number_ = 1;
    uint64_t completed_[4] = {};
    uint64_t replayed_ = 0;
    uint64_t replayed_bytes_ = 0;
    uint64_t recovered_ = 0;
};

}  // namespace tiffin::rdma_blk
