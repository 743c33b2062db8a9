// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a reliable connection knows of each message in flight, and the policies that decide for it. One object
// of each policy serves all messages; their state is in Sending and Receiving.
#pragma once

#include <cstdint>

#include "rdma_blk/sdr/queue_pair.h"
#include "rdma_blk/sdr/reliability/parity_store.h"

namespace tiffin::rdma_blk::sdr {

struct Sending {
    bool active = false;
    uint64_t message_number = 0;
    RegisteredMemory memory;
    SchemeChoice scheme;
    uint32_t user_immediate = 0;
    uint32_t chunk_count = 0;
    // First pass: chunks before this were sent; erasure codes: groups whose parity was sent.
    uint32_t next_chunk = 0;
    uint32_t parity_groups_sent = 0;
    // Bitmaps of chunks. Wanted: to be sent again; never acknowledged at the same time.
    uint64_t* acknowledged = nullptr;
    uint64_t* wanted = nullptr;
    // Schemes that the receiver drives: sent so lately that the receiver cannot have missed it.
    uint64_t* recent = nullptr;
    uint32_t acknowledged_count = 0;
    uint32_t wanted_count = 0;
    uint32_t repeated_count = 0;
    // Schemes that the receiver drives: when to ask whether it is still there.
    uint64_t last_event_ns = 0;  // sent, or heard
    uint32_t probes = 0;         // since something was heard
    // Since when nothing is newly acknowledged of what was sent, and how many chunks had gone by then.
    uint64_t progress_ns = 0;
    uint64_t sent_at_progress = 0;

    uint64_t sent_count() const { return uint64_t{next_chunk} + repeated_count; }
    void note_progress(uint64_t now_ns) {
        progress_ns = now_ns;
        sent_at_progress = sent_count();
    }
};

struct Receiving {
    bool open = false;
    uint64_t message_number = 0;
    uint32_t round_trip_us = 0;  // as the sender says
    uint32_t echo_time_us = 0;   // of the packet that came last
    uint64_t echo_arrival_ns = 0;
    // Acknowledgements.
    uint32_t new_chunks = 0;  // since the last one
    uint64_t acknowledge_ns = kNoTimer;
    uint32_t acknowledged_until = 0;  // of the one that is being told in several parts; 0: none
    uint32_t in_a_row = 0;
    // Requests. Chunks before judged_end are there, or lost and asked for.
    uint32_t judged_end = 0;
    // Where packets overtake each other: what is missing before judge_end then is lost.
    uint64_t judge_ns = kNoTimer;
    uint32_t judge_end = 0;
    uint64_t silence_ns = kNoTimer;  // when silence means that what is missing was lost
    uint64_t* to_ask = nullptr;      // bitmap: asked for in the next requests
    uint64_t* asked = nullptr;       // bitmap: asked for and not repeated yet
    uint32_t to_ask_count = 0;
    // What is behind the last chunk that came may be lost, or was never sent: only the sender knows. It is asked
    // for, but not counted as lost, and not written down as asked for: it may yet come, and its gaps be noticed.
    bool asks_tail = false;
    uint64_t tail_asked_ns = 0;    // when; 0: never
    bool came_since_tail = false;  // since then
    uint32_t missed_chunks = 0;
    uint32_t missed_runs = 0;              // of neighbours
    uint32_t parity = ParityStore::kNone;  // erasure codes: the groups whose parity is kept
};

// A part of a message that is sent for the first time.
struct SendPart {
    bool is_parity = false;
    uint32_t first_chunk = 0;  // data
    uint32_t chunk_count = 0;
    uint32_t group = 0;  // parity
};

// How the sender of a message behaves.
class SendPolicy {
  public:
    // The next part of the first pass, of at most `most_chunks` chunks of data; false: all was sent.
    virtual bool first_pass(Sending& sending, uint32_t most_chunks, SendPart& part) const = 0;
    // Whether it repeats by itself what was not acknowledged in time; else it waits to be asked.
    virtual bool repeats_by_timer() const = 0;

  protected:
    ~SendPolicy() = default;
};

// How the receiver of a message behaves.
class ReceivePolicy {
  public:
    // Whether it asks for what is lost.
    virtual bool asks() const = 0;
    // Chunks before this that are missing must be taken for lost.
    virtual uint32_t judged_end(const QueuePair::ReceiveSlot& slot) const = 0;

  protected:
    ~ReceivePolicy() = default;
};

const SendPolicy& send_policy(SchemeKind kind);
const ReceivePolicy& receive_policy(SchemeKind kind);

}  // namespace tiffin::rdma_blk::sdr
