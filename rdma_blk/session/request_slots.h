// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The client's side of a session's requests: which operation travels in which slot under which sequence,
// what is sent again in a new incarnation, and that each operation completes exactly once. docs/remote.md,
// "Slots" and "Liveness and reconnection", say why.
//
// No input or output, no clock, no lock: a transport calls it under a lock of its own. Completions are called from
// within (they obey the rules of Operation::complete), or by the transport, see collect_completions(). The life of a
// connection:
//
//     connected:  take_next() until it has nothing more; send what it gives
//     response:   find(), receive the payload into the operation's buffers, finish()
//     deadline:   expire(): when it says so, destroy the connection and call connection_lost()
//     broken:     destroy everything of it (nothing may touch a buffer afterwards), connection_lost();
//                 connect again; fill_outstanding() into session_open;
//                 resumed() or restarted() or fail_all(), as the server answers; then as connected
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/session/operation_queue.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

class RequestSlots {
  public:
    struct Statistics {
        uint64_t completed[4] = {};  // by Outcome
        uint64_t replayed = 0;       // sent again in another incarnation
        uint64_t fetched = 0;        // of which only the reply
        uint64_t resent = 0;         // sent again in the same incarnation, as a path was lost
        uint64_t recovered = 0;      // ... and not sent again, as the server had it
        uint64_t stale_responses = 0;
    };

    // Errors: einval (slot_count is 0 or above wire::kMaxSlots), enomem. All memory is taken here.
    static Result<std::unique_ptr<RequestSlots>> create(uint16_t slot_count);
    ~RequestSlots();
    RequestSlots(const RequestSlots&) = delete;
    RequestSlots& operator=(const RequestSlots&) = delete;

    // From now on operations with a `complete` function are put in there instead of being called: for all that is counted
    // here they are complete, and hand_back() is what is left to do. `place` lives as long as this object.
    void collect_completions(OperationQueue& place) { collected_ = &place; }

    // ---- The caller's side ----

    // Takes the operations linked from `first` on. After fail_all() they complete at once, in the same
    // way. Precondition: they are within the transport's limits (those answer einval themselves).
    void submit(Operation& first);

    // Submitted and not complete.
    size_t pending_count() const { return queue_.size() + used_count_; }
    // ... of which sent, in this incarnation or an earlier one.
    size_t sent_count() const { return used_count_; }
    // ... that change memory: writes and atomics.
    size_t pending_changes() const { return change_count_; }
    // ... that have a `complete` function, so that perhaps nobody waits for them.
    size_t pending_callbacks() const { return callback_count_; }

    // The earliest deadline of a pending operation, 0 when none has one. Looks through all of them only
    // when there are deadlines.
    uint64_t next_deadline_ns() const;
    // Completes as not_executed (etimedout) what was not sent by its deadline. Returns whether something
    // that was sent is over its deadline: then the connection must be destroyed and connection_lost()
    // called, which completes it.
    [[nodiscard]] bool expire(uint64_t now_ns);

    // ---- The connection's side ----

    // The next request to send: fills all of `request` but session_id, epoch, incarnation and
    // payload_checksum, and returns its operation, whose buffers or ranges are the payload unless
    // request.flags has reply_only. nullptr: nothing to send, no free slot, not connected, or what comes next has to wait for
    // the answer to an earlier read.
    Operation* take_next(wire::Request& request);
    // What take_next() looks at first, and the sequence that it has, or gets; nullptr: there is nothing to send.
    const Operation* peek(uint64_t& sequence) const;
    // Of a request that has been sent and not been answered; else 0.
    uint64_t sequence_of(uint16_t slot) const {
        return slots_[slot].state == SlotState::sent ? slots_[slot].sequence : 0;
    }

    // The operation that a response is for; nullptr: for none (an answer that came twice): skip its
    // payload. Errors: eproto (no such slot or sequence, another operation, a read's payload that is not
    // of the length asked for).
    Result<Operation*> find(const wire::Response& response);
    // Completes it. Precondition: find() returned it for this response, and its payload is in place.
    void finish(const wire::Response& response);

    // Everything sent will be sent again in the same incarnation: on another path, when one was lost.
    void resend_all();

    // The same where the server is asked first what has become of them (wire::PathRecover). Writes what was sent and not answered,
    // by ascending sequence, and returns the number of entries; `entries` has room for sent_count().
    uint16_t fill_sent(wire::OutstandingEntry* entries);
    // The answer about one of them. settled: it has been answered meanwhile. again: take_next() will give it.
    enum class Recovery : uint8_t { settled, answer_comes, again };
    Recovery recover(const wire::OutstandingEntry& entry, Outcome outcome);

    // The connection, or all paths of it, have been destroyed. Now nothing is sent until resumed() or
    // restarted(). Operations past their deadline at `now_ns` complete as unknown. May be called again: deadlines pass during reconnection, too.
    void connection_lost(uint64_t now_ns);

    // ---- Opening an incarnation ----

    uint16_t slot_count() const { return slot_count_; }
    // For wire::SessionOpen.
    uint64_t next_sequence() const { return next_sequence_; }
    // Writes what is outstanding, by ascending sequence; returns the number of entries. Precondition:
    // not connected; `entries` has room for sent_count(). From here until the server's answer, or the next
    // connection_lost(), nothing that was sent completes, as the server counts on it.
    uint16_t fill_outstanding(wire::OutstandingEntry* entries);

    // A first session: the server granted that many slots, at least 1, perhaps fewer than asked for.
    void opened(uint16_t granted_slots);
    // The server has settled the old incarnation. `outcomes` are its answers, one for each entry that
    // fill_outstanding() gave. Errors: eproto (another number).
    Result<void> resumed(ByteSpan outcomes);
    // The server knows nothing of the old session, and nothing was lost by that: a new session with
    // sequences from 1. Everything pending starts over, but atomics that were sent: unknown (estale).
    void restarted(uint16_t granted_slots);

    // The end: everything pending completes, what was sent as unknown and the rest as not_executed, and
    // so does whatever is submitted later. Precondition: the connection has been destroyed.
    void fail_all(Error error);

    const Statistics& statistics() const { return statistics_; }

  private:
    enum class SlotState : uint8_t { free, to_send, to_fetch, sent };
    struct Slot {
        Operation* operation = nullptr;
        uint64_t sequence = 0;
        uint64_t after = 0;
        uint64_t pending_since = 0;  // when it was first sent: a failure since then concerns it
        SlotState state = SlotState::free;
        bool cancelled = false;   // something before it failed: it must not be executed any more
        bool fetch_only = false;  // settled in this incarnation: only its reply is wanted
    };

    RequestSlots(std::unique_ptr<Slot[]> slots, std::unique_ptr<uint16_t[]> free_slots,
                 std::unique_ptr<uint16_t[]> order, uint16_t slot_count);

    void queue(Operation& operation);
    void count_pending(const Operation& operation, size_t by);
    uint16_t first_to_take_again() const;
    void fill_request(uint16_t index, wire::Request& request) const;
    uint64_t smallest_pending_sequence() const;
    bool must_wait_for_read(const Operation& operation) const;
    void release(uint16_t index);
    void complete_slot(uint16_t index, Outcome outcome, Error error);
    void complete(Operation& operation, Outcome outcome, Error error);
    void cancel_followers(uint64_t submit_number);
    template <typename Condition>
    void complete_queued(Condition condition, Error error);
    void complete_expired(uint64_t now_ns);
    void grant(uint16_t granted_slots);
    void sort_by_sequence();
    void send_again(uint16_t index, SlotState state);
    // A sent one goes out once more, within its incarnation.
    void take_back(Slot& slot);
    void settle_one(uint16_t index, Outcome answer);
    bool is_used(uint16_t index) const { return slots_[index].state != SlotState::free; }

    std::unique_ptr<Slot[]> slots_;
    std::unique_ptr<uint16_t[]> free_slots_;  // a stack, of free_count_
    std::unique_ptr<uint16_t[]> order_;       // for sort_by_sequence()
    uint16_t slot_count_;
    uint16_t free_count_ = 0;
    uint16_t used_count_ = 0;
    uint16_t again_count_ = 0;  // slots that are to_send or to_fetch
    size_t deadline_count_ = 0;
    size_t follower_count_ = 0;  // pending operations with after_earlier
    size_t change_count_ = 0;
    size_t callback_count_ = 0;
    OperationQueue queue_;
    uint64_t next_sequence_ = 1;
    uint64_t next_submit_number_ = 1;
    // Of what waits, those up to this one were sent to a server that has started again.
    uint64_t restarted_through_ = 0;
    bool connected_ = false;
    bool opening_ = false;  // from fill_outstanding() to the answer
    bool failed_ = false;
    Error failure_ = Error::enodev;
    OperationQueue* collected_ = nullptr;
    Statistics statistics_;
};

}  // namespace tiffin::rdma_blk
