// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Opening and resuming a session on an authenticated connection, and what the answers mean; for all
// transports. No locks, no threads.
#pragma once

#include <cstdint>
#include <string>

#include "rdma_blk/remote_memory.h"
#include "rdma_blk/transport/tcp/client_connection.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

// What a client knows of its session between connections.
struct SessionFacts {
    uint64_t session_id = 0;  // 0: none yet
    uint32_t incarnation = 0;
    bool is_writer = false;
    uint64_t epoch = 0;
    uint64_t content_incarnation = 0;
    uint64_t empty_since_incarnation = 0;
    // Something was executed that no executed flush covers.
    bool has_unflushed = false;
    bool inherits_unflushed = false;  // see ConnectionInfo
};

struct OpeningAnswer {
    bool is_opened = false;
    wire::SessionOpened opened{};    // is_opened; its outcomes are where open_session() was told
    wire::SessionRefused refused{};  // else
};

// Opens a session if facts.session_id is 0, else resumes it in incarnation facts.incarnation, which the caller
// has raised for this attempt: an earlier one may have been accepted without our knowing. `entries`: what
// RequestSlots::fill_outstanding() gave, for resuming. `outcomes` has room for wire::kMaxSlots bytes and gets
// opened.outstanding_count. What is returned has been checked against what was asked for. Errors: those of
// ClientConnection::exchange().
Result<OpeningAnswer> open_session(ClientConnection& connection, const OpenOptions& options,
                                   const SessionFacts& facts, uint64_t next_sequence,
                                   Span<const wire::OutstandingEntry> entries,
                                   unsigned char* outcomes, uint64_t deadline_ns,
                                   Patience& patience);

// Whether a server that has no such session any more has also lost content that the session counts on.
bool is_content_lost(const SessionFacts& facts, uint64_t content_incarnation,
                     uint64_t empty_since_incarnation);

// For a first opening: the error, one line about it, and the holder.
Error refusal_error(const wire::SessionRefused& refused, Holder& holder, std::string& problem);
// `text` as wire messages have it; control characters become '?'.
void set_holder(Holder& holder, const char (&text)[wire::kHolderTextBytes]);

Geometry geometry_of(const wire::SessionOpened& opened);
Limits limits_of(const wire::SessionOpened& opened, uint16_t slot_count);

}  // namespace tiffin::rdma_blk
