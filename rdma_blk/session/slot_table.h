// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The server's side of a session's requests: what is executed, in which order, and what is answered from a
// kept reply. docs/remote.md, "Slots", says why.
//
// The kept replies (wire::SlotEntry) lie in memory of the caller's that outlives the process; the rest is
// rebuilt when an incarnation opens. No input or output, no lock: the caller serialises calls. A request, once
// its payload is there in whole and its checksum right (what is to be executed must be finished, so that no
// broken connection may come between):
//
//     decide()           execute: apply it (a flush: check its ranges), finish(), send the response
//                        wait:    keep request and payload; next_ready() names it later
//                        reply:   send the response that came with the decision
//                        ignore:  nothing (its payload is skipped)
//     after a finish()   next_ready() until it has nothing more
//
// A process may end between any two instructions of this code: a request is then answered, or executed
// again with the same effect, or was an atomic and is settled by recover().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/session/access.h"
#include "rdma_blk/wire/control_area.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

enum class RequestAction : uint8_t { execute, wait, reply, ignore };

struct RequestDecision {
    RequestAction action = RequestAction::ignore;
    wire::Response response{};  // reply
};

// A request that waited: as decide(), but never wait or ignore. Its slot says which it is.
struct ReadyRequest {
    uint16_t slot = 0;
    RequestDecision decision;
};

class SlotTable {
  public:
    struct Statistics {
        uint64_t executed = 0;
        uint64_t refused = 0;
        uint64_t answered_again = 0;  // from a kept reply
        uint64_t ignored = 0;
        uint64_t waited = 0;
    };

    // `entries`, 1 to wire::kMaxSlots of them, stay the caller's and must outlive the table; for a new
    // session they are zero. Errors: einval, enomem. All memory is taken here.
    static Result<std::unique_ptr<SlotTable>> create(Span<wire::SlotEntry> entries);
    SlotTable(const SlotTable&) = delete;
    SlotTable& operator=(const SlotTable&) = delete;

    // After the process ended: settles atomics that were being executed. `word` gives the present value
    // of 8 bytes (space, offset). `last_incarnation` is that of
    // the wire::SessionRecord. `has_mapped_data`: the client has changed words of the data by itself, too, and may
    // still do: what is found in one says nothing then, and the atomic is unknown.
    void recover(uint32_t last_incarnation,
                 uint64_t (*word)(void* owner, AddressSpace space, uint64_t offset_bytes),
                 void* owner, bool has_mapped_data = false);

    // Opens an incarnation, the first one with no entries. Precondition: all paths of the one before are
    // destroyed, and nothing is being executed (executing_count() is 0); what waited is forgotten.
    // `entries` is the payload of the session_open; `outcomes` has room for a byte for each entry and
    // gets the answers. Errors: estale (not greater than the present incarnation), eproto.
    Result<void> open_incarnation(uint32_t incarnation, uint64_t next_sequence, ByteSpan entries,
                                  unsigned char* outcomes);

    // Rights and sizes; may change at any time. After fence() everything is refused with estale, for good.
    void set_access(const SessionAccess& access) { access_ = access; }
    const SessionAccess& access() const { return access_; }
    void fence() { fenced_ = true; }

    // A parsed request. Errors: eproto: the connection must end (a slot or sequence that cannot be).
    Result<RequestDecision> decide(const wire::Request& request);

    // Of one that decide() has ignored: whether that was because it waits or is being executed, so that an answer will come.
    bool is_in_progress(const wire::Request& request) const;

    // What has become of a request of this incarnation that the client sent on a path which it has given up. missing: it has
    // not come. answered: `response` is its answer. settled: the client has its answer already. Errors: eproto.
    enum class Fate : uint8_t { missing, in_progress, answered, settled };
    Result<Fate> fate_of(const wire::OutstandingEntry& entry, wire::Response& response) const;

    // For an atomic, right before it is applied: makes what is about to happen known to recover().
    void prepare_atomic(const wire::Request& request, uint64_t old_value, uint64_t new_value);

    // `request` has been executed, or could not be: not_executed with an error. Keeps the reply and
    // returns it. `value`: old value or content incarnation. A read's payload_bytes are set by the caller.
    // Precondition: decide() or next_ready() said execute, and nothing was said about it since.
    wire::Response finish(const wire::Request& request, Outcome outcome, Error error,
                          uint64_t value);

    // A waiting request whose turn has come; it is being executed then, or refused. False: none.
    bool next_ready(ReadyRequest& ready);

    uint16_t slot_count() const { return static_cast<uint16_t>(entries_.size()); }
    uint32_t incarnation() const { return incarnation_; }
    uint16_t executing_count() const { return executing_count_; }
    uint16_t waiting_count() const { return waiting_count_; }
    const Statistics& statistics() const { return statistics_; }

  private:
    enum class Progress : uint8_t { idle, waiting, executing };
    struct Slot {
        uint64_t sequence = 0;  // the last one that was begun; finished when idle
        wire::Request request{};
        Progress progress = Progress::idle;
        // A read that was answered before and is done again: its answer may be of no use any more, so
        // that the next request of the slot does not wait for it.
        bool is_repeated = false;
    };

    SlotTable(Span<wire::SlotEntry> entries, std::unique_ptr<Slot[]> slots,
              std::unique_ptr<uint64_t[]> missing)
        : entries_(entries), slots_(std::move(slots)), missing_(std::move(missing)) {}

    Result<RequestDecision> decide_new(const wire::Request& request);
    RequestDecision begin(Slot& slot);
    RequestDecision ignore();
    bool note_arrival(uint64_t sequence, bool& is_settled);
    void settle(uint64_t sequence);
    size_t find_missing(uint64_t sequence) const;
    bool may_apply(const wire::Request& request) const;
    bool follows_refusal(const wire::Request& request) const;
    void note_refusal(uint64_t sequence);
    void keep_reply(const wire::Request& request, Outcome outcome, uint16_t error, uint64_t value);
    wire::Response response_to(const wire::Request& request) const;
    wire::Response kept_response(const wire::Request& request) const;
    Result<unsigned char> outcome_of(const wire::OutstandingEntry& entry) const;

    Span<wire::SlotEntry> entries_;
    std::unique_ptr<Slot[]> slots_;
    // Sequences up to highest_ that have not been applied yet, ascending: at most one for each slot.
    std::unique_ptr<uint64_t[]> missing_;
    size_t missing_count_ = 0;
    uint64_t highest_ = 0;
    // Refused sequences: the latest, a ring; those of before lie between first and last_refused_, which are 0 when
    // there was none.
    static constexpr size_t kRefusalsKept = 32;
    uint64_t refused_[kRefusalsKept] = {};
    size_t next_refused_ = 0;
    uint64_t first_refused_ = 0;
    uint64_t last_refused_ = 0;
    // Writes below this may have been applied by a process that ended before it recorded them: they are
    // applied again, but cannot be called not executed any more.
    uint64_t suspect_below_ = 0;
    bool was_recovered_ = false;
    bool is_open_ =
        false;  // an incarnation; what comes before it in a new process is of an old one
    uint32_t incarnation_ = 0;
    uint16_t executing_count_ = 0;
    uint16_t waiting_count_ = 0;
    bool fenced_ = false;
    SessionAccess access_;
    Statistics statistics_;
};

// Carries out a compare_swap or fetch_add at `word` (8 bytes, aligned, which other processes may change at
// the same time), and finishes it. Precondition: decide() or next_ready() said execute.
wire::Response execute_atomic(SlotTable& table, const wire::Request& request, uint64_t* word);

}  // namespace tiffin::rdma_blk
