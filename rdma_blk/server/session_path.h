// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A connection, as a volume's session sees it: where answers go. A connection implements it; tests do, too.
#pragma once

#include <cstdint>

#include "fs/vfs/span.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

// All functions may be called from any thread, with the session's lock held: they queue and wake, and
// neither block nor call the session or the volume.
class SessionPath {
  public:
    virtual ~SessionPath() = default;

    // `payload` (a read's) is memory that others may be writing: it is copied once, and the checksum is
    // that of the copy.
    virtual void send_response(const wire::Response& response, ByteSpan payload) = 0;
    // The request that handle_request() was given last gets no answer: it came twice, or too late.
    virtual void request_ignored() {}
    // The connection ends once what is queued has been sent. `notice` goes before; nullptr: nothing is said.
    virtual void end(const wire::Notice* notice) = 0;
    virtual void send_notice(const wire::Notice& notice) = 0;

    // A request waits for others: its payload is kept, and an answer of that size will come. The connection
    // reads no more when that gets too much. Given back with release_held().
    virtual void hold(size_t payload_bytes, size_t answer_bytes) = 0;
    virtual void release_held(size_t payload_bytes, size_t answer_bytes) = 0;
    // What the connection had to wait for (requests being executed) may be over: it looks again.
    virtual void wake() = 0;
};

}  // namespace tiffin::rdma_blk
