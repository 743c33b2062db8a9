// SPDX-License-Identifier: MIT OR GPL-2.0-only
// One of a session's connections, as the TcpMemory that has it sees it. No lock and no thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rdma_blk/remote_memory.h"
#include "rdma_blk/transport/request_path.h"
#include "rdma_blk/transport/tcp/client_connection.h"
#include "rdma_blk/transport/tcp/segment_size.h"
#include "rdma_blk/transport/tcp/stream_probe.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

// What is asked for beside a connection: its path of requests, or a one-sided one.
struct PathJoinState {
    bool is_wanted = false;
    bool is_sent = false;
    bool is_joined = false;
    bool has_failed = false;  // on this connection
    uint16_t number =
        0;  // of the last one sent, as its path_id: answers to earlier ones mean nothing
    wire::PathJoined joined{};
    unsigned char parameters[wire::kMaxPathParametersBytes] = {};
};

// A path that a OneSidedUser has asked for.
struct PathQuestion {
    bool is_wanted = false;
    bool is_answered = false;
    bool is_abandoned = false;  // nobody wants the answer that will come
    bool is_receiving = false;  // the parameters are on their way
    bool is_lost = false;       // the connection broke
    uint16_t path_id = 0;
    unsigned char parameters[wire::kMaxPathParametersBytes] = {};
    PathAnswer answer;
};

struct StreamPath {
    // That are no requests: probes, lease, close. There is room for them and one of each slot.
    static constexpr size_t kControlMessages = 16;

    // Its writer: under the session's lock. Its reader, open and close: with the lead, or by who makes it (is_joining).
    std::unique_ptr<ClientConnection> connection;
    // Another way for requests, which begins and ends with the connection; or nullptr. See request_path.h for who may call it.
    std::shared_ptr<RequestPath> requests;
    PathJoinState join;              // under the session's lock
    PathQuestion question;           // likewise
    uint32_t ended_count = 0;        // connections that have ended
    uint16_t id = 0;                 // of this connection, in its incarnation
    bool is_joining = false;         // another thread makes it
    bool is_broken = false;          // interrupted; whoever leads closes it
    bool is_output_waiting = false;  // the socket takes no more at present
    Operation* receiving = nullptr;  // with the lead: whose payload is on its way
    wire::Response response{};       // with the lead: the last answer
    bool is_silent = false;          // is given up because nothing comes
    bool is_failure_told = false;    // that it cannot be made; until it has worked
    std::string problem;             // why; likewise
    SegmentSize segments;            // by who makes it, or has the lead
    uint64_t made_ns = 0;
    StreamProbe probe;
    uint32_t probe_repeats = 0;      // packets that had been sent again when the probe was sent
    uint64_t probe_delay_ns = 0;     // of the last answer to one, with what it waited behind
    uint64_t heard_ns = 0;           // when bytes came last, in datagrams, too
    uint64_t stream_heard_ns = 0;    // ... on the stream
    uint64_t datagram_heard_ns = 0;  // ... in datagrams
    uint64_t stream_lively_ns = 0;   // since when it has not been without any for kMostWordlessNs
    uint64_t sent_bytes = 0;         // of requests
    uint64_t received_bytes = 0;
    uint64_t resent_bytes = 0;  // over another one

    // Whether the other end has agreed to the path of requests, so that something may come on it.
    bool has_request_path() const { return requests != nullptr && requests->socket() >= 0; }
    // Whether that reads from the buffers of the slot's request.
    bool is_request_sending(uint16_t slot) const {
        return requests != nullptr && requests->is_sending(slot);
    }
};

}  // namespace tiffin::rdma_blk
