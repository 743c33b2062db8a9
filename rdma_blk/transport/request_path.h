// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Another way for a session's requests and answers than the stream that keeps it (sdr). Slots, sequences and what is
// done after a failure are the session's, so a request may go either way; the session asks for the path with a
// path_join on each new connection, with keys of that connection, and the path ends with it.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/session/handshake.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

// Called by the session with its lock held: no function may call it back. receive() and what follows from it are
// called by who has the lead.
class RequestPath {
  public:
    virtual ~RequestPath() = default;

    virtual wire::PathTransport transport() const = 0;
    virtual const char* name() const = 0;  // as ConnectionInfo::transport_name

    // ---- Set-up ----

    // A new connection, between these addresses (IPv4 mapped into IPv6): fills in the parameters of its path_join, and
    // returns their size. An error leaves everything to the stream.
    virtual Result<size_t> offer(const sockaddr_in6& local, const sockaddr_in6& peer,
                                 const TrafficKeys& keys, MutableByteSpan parameters) = 0;
    // What the server has answered. Errors: likewise.
    virtual Result<void> joined(ByteSpan parameters) = 0;
    // The connection is no more: from here on nothing touches a buffer.
    virtual void stop() = 0;
    // Something has come through it, so requests may go this way.
    virtual bool is_up() const = 0;
    // It was up, and is no more: the connection has to end.
    virtual bool has_failed() const = 0;
    // For how long nothing has come although the other end has something to acknowledge; 0: it has not.
    virtual uint64_t silence_ns(uint64_t now_ns) const = 0;

    // ---- Requests ----

    virtual bool has_room() const = 0;
    // Sends as much as the network takes now. Buffers and their list may be read until answered() or stop(); request and
    // ranges are copied. Precondition: has_room().
    virtual void send(const wire::Request& request, ByteSpan ranges, const vfs::IoVector* buffers,
                      size_t buffer_count) = 0;
    // The request of this slot has been answered, here or on the stream: its buffers are not read from here on.
    virtual void answered(uint16_t slot) = 0;
    // Likewise, where the other end may have the request over another link only: what is still being sent of it goes on from
    // a copy. False: it cannot, and the connection has to end.
    [[nodiscard]] virtual bool answered_elsewhere(uint16_t slot) = 0;
    // The other end has not acknowledged all of the request that was sent for this slot: its buffers may be read.
    virtual bool is_sending(uint16_t slot) const = 0;

    // ---- Answers ----

    // -1: there is nothing to watch.
    virtual int socket() const = 0;
    // When receive() and transmit() are due although nothing came; ~0: never.
    virtual uint64_t next_time_ns(uint64_t now_ns) const = 0;
    // Takes what came, without blocking. True: something has come.
    virtual bool receive(uint64_t now_ns) = 0;
    // Sends what is due; after receive(), when the answers have been looked at.
    virtual void transmit(uint64_t now_ns) = 0;
    struct Answer {
        wire::Response response{};
        ByteSpan payload;
    };
    // The next answer; false: none. Its payload is there until the next call. Errors: eproto.
    virtual Result<bool> next_answer(Answer& answer) = 0;

    virtual void add_statistics(Statistics& statistics) const = 0;
};

}  // namespace tiffin::rdma_blk
