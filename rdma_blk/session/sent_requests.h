// SPDX-License-Identifier: MIT OR GPL-2.0-only
// On which path of a session each request travels, and what is asked of the server when a path is lost: between
// RequestSlots, which knows no paths, and SessionMachine, which knows no requests. No input or output, no clock, no lock.
#pragma once

#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/session/path_loads.h"
#include "rdma_blk/session/request_slots.h"
#include "rdma_blk/session/session_machine.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

class SentRequests {
  public:
    // Both outlive it. Errors: enomem.
    static Result<std::unique_ptr<SentRequests>> create(RequestSlots& slots,
                                                        SessionMachine& machine);

    // The request of this slot goes out on a path, perhaps once more; with its answer it is so many bytes. / It has been
    // answered, on the path `over`.
    void sent(uint16_t slot, size_t path, uint64_t bytes, uint64_t now_ns);
    void answered(uint16_t slot, size_t over, uint64_t now_ns);
    // The incarnation is over.
    void forget();
    // Which of the `candidates`, a bit for each path and at least one, the next request takes: one that follows another goes
    // where that went, if it may.
    size_t choose(uint32_t candidates, const wire::Request& request, uint64_t bytes,
                  uint64_t now_ns) const;
    // Whether the next request may go out now. One that follows others, and brings data or is answered with some, waits here
    // until they have arrived, or are on the path that it takes: a server that holds much of what waits for another path does
    // not read on, not even what it is asked about that one.
    bool may_send_next(uint32_t candidates) const;
    // Of the requests that were on their way when a path was lost.
    struct Counts {
        uint64_t again = 0;       // had to be sent again
        uint64_t recovered = 0;   // the server had them
        uint64_t settled_ns = 0;  // when all this was known the last time
    };
    const Counts& counts(size_t path) const { return counts_[path]; }
    // Over which its answer comes. kNoPath: none, or it has to be sent again.
    size_t path_of(uint16_t slot) const { return paths_[slot] & ~kDelivered; }
    // The server had it when it was asked about: it was not sent on path_of().
    bool is_delivered(uint16_t slot) const { return (paths_[slot] & kDelivered) != 0; }

    // For trials: nothing is asked about any more, and everything that was sent on a lost path is sent again.
    void set_resends_all() { resends_all_ = true; }

    // For SessionMachine::Action::Kind::recover: fills in all of the question but session, incarnation and the path's id. Its
    // payload is entries().
    void ask(size_t lost, wire::PathRecover& question);
    ByteSpan entries() const {
        return {reinterpret_cast<const unsigned char*>(entries_.get()),
                asked_count_ * sizeof(wire::OutstandingEntry)};
    }
    // An answer that came on a path. What has to be sent again comes from RequestSlots::take_next() then. Returns the path
    // that was asked about; kNoPath: it answers an earlier question, or one that is of no use any more, and nothing has
    // changed. Errors: eproto (the incarnation must end: nothing is known then).
    Result<size_t> take_answer(const wire::PathRecovered& answer, ByteSpan outcomes, size_t over,
                               uint64_t now_ns);

  private:
    SentRequests(RequestSlots& slots, SessionMachine& machine, std::unique_ptr<uint8_t[]> paths,
                 std::unique_ptr<uint8_t[]> may_answer_over,
                 std::unique_ptr<wire::OutstandingEntry[]> entries, PathLoads loads)
        : slots_(slots),
          machine_(machine),
          paths_(std::move(paths)),
          may_answer_over_(std::move(may_answer_over)),
          entries_(std::move(entries)),
          loads_(std::move(loads)) {}

    static constexpr uint8_t kDelivered = 0x80;
    static_assert(SessionMachine::kMaxPaths <= 8, "a bit for each");
    static uint8_t bit(size_t path) { return static_cast<uint8_t>(1U << path); }
    bool concerns(uint16_t slot, size_t lost) const;
    void leave_path(uint16_t slot);
    void put_on(uint16_t slot, size_t path, uint64_t bytes, uint64_t now_ns);
    size_t path_of_follower(uint32_t candidates) const;

    RequestSlots& slots_;
    SessionMachine& machine_;
    std::unique_ptr<uint8_t[]> paths_;  // by slot; with kDelivered
    // By slot: the paths on which the request was sent, or asked about, and which the server has not ended since, a bit each.
    // Whatever of that reaches the server last decides where it answers, even if nobody waits for that any more.
    std::unique_ptr<uint8_t[]> may_answer_over_;
    std::unique_ptr<wire::OutstandingEntry[]> entries_;  // of the last question
    PathLoads loads_;
    size_t last_path_ = SessionMachine::kNoPath;  // on which a request went out
    Counts counts_[SessionMachine::kMaxPaths];
    uint16_t entry_count_ = 0;
    uint16_t asked_count_ = 0;  // of them: all, or none
    bool resends_all_ = false;
    uint32_t number_ = 0;
    bool revokes_ = false;
};

}  // namespace tiffin::rdma_blk
