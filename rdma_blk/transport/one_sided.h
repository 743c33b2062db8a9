// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a transport adds to a session on streams when its reads and writes do not travel on these. The streams open the
// session, keep it, flush, and take all that the other path cannot do.
//   OneSidedPath  needs no more than one answer: memory that is mapped (shm). The session asks for it with a path_join each
//                 time it becomes ready, and again when a reader has become the writer.
//   OneSidedUser  exchanges parameters (rc), and asks for its paths itself: TcpMemory::join_path().
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/transport/tcp/socket.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

// Descriptors that came with messages on a Unix socket (SCM_RIGHTS); more than fit are closed.
struct ReceivedDescriptors {
    static constexpr size_t kCapacity = 4;
    Socket descriptors[kCapacity];
    size_t count = 0;

    void add(int descriptor) {
        Socket received(descriptor);
        if (count < kCapacity) {
            descriptors[count++] = std::move(received);
        }
    }
    void clear() {
        for (Socket& descriptor : descriptors) {
            descriptor.reset();
        }
        count = 0;
    }
};

// Called by the session with its lock held: no function may call it back.
class OneSidedPath {
  public:
    virtual wire::PathTransport transport() const = 0;
    virtual const char* name() const = 0;  // as ConnectionInfo::transport_name

    // The server has answered a path_join: `parameters` and descriptors are what came with that. From here on
    // operations may go this way. `data_bytes`, `epoch`: what the session knows of the volume's size, which may have grown
    // since, and under which epoch it was opened. An error leaves everything to the stream.
    virtual Result<void> joined(ByteSpan parameters, ReceivedDescriptors& descriptors,
                                uint64_t data_bytes, uint64_t epoch) = 0;
    // The connection is no more. Returns once nothing is under way on this path, and nothing begins before
    // joined() comes again: what the session knows of the server's memory then stays true.
    virtual void stop() = 0;
    // The session is about to be given back, and its lease with it: after stop(), nothing of the server's memory
    // may be kept. joined() does not come again.
    virtual void release() = 0;
    // The volume has grown.
    virtual void resized(uint64_t data_bytes) = 0;
    // How many writes and atomics were executed on this path. An operation is counted once it
    // has taken effect, and before it completes.
    virtual uint64_t change_count() const = 0;

  protected:
    ~OneSidedPath() = default;
};

// All functions: from any thread, with the session's lock held. They neither wait nor lock.
class OneSidedUser {
  public:
    // How many writes and atomics it has executed by itself.
    virtual uint64_t change_count() const = 0;
    // Whether it waits for something from the server, or has done so since this was asked last. With several links the active
    // one is watched then as if a request waited there.
    virtual bool expects_answers() = 0;
    // A link has come, failed, or become the active one: see links().
    virtual void links_changed() = 0;

  protected:
    ~OneSidedUser() = default;
};

// What a OneSidedUser wants to know of a session's links.
struct LinksView {
    static constexpr size_t kCapacity = 8;
    struct Link {
        bool is_ready = false;  // has a connection that shows life
        // Connections that it has had and that have ended. A queue pair beside one of these is of no use any more.
        uint32_t ended_count = 0;
        bool is_ended_at_server = true;  // the server has said so of the last one of these
        uint8_t address[16] = {};        // this end; if it is ready. IPv4 mapped into IPv6
    };
    bool is_ready = false;  // there is a connection
    // The server keeps a queue pair beside each connection; else one in the session.
    bool has_queue_pairs = false;
    size_t active = 0;
    size_t count = 0;
    Link links[kCapacity];
};

// What a server says of a path that was asked for.
struct PathAnswer {
    wire::PathJoined joined{};                                     // reason 0: it is there
    unsigned char parameters[wire::kMaxPathParametersBytes] = {};  // joined.parameter_bytes
};

}  // namespace tiffin::rdma_blk
