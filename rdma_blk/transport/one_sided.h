// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a transport adds to a session on a stream when its reads and writes do not travel on that stream, and its
// path needs no more than one answer: memory that is mapped (shm). (rc exchanges parameters: OneSidedUser in
// tcp_memory.h.) The stream opens the session, keeps it, flushes, and takes all that the other path cannot do; it
// asks for that path with a path_join each time the session becomes ready, and again when a reader has become the
// writer.
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
    // operations may go this way. `data_bytes`: what the session knows of the volume's size, which may have grown
    // since. An error leaves everything to the stream.
    virtual Result<void> joined(ByteSpan parameters, ReceivedDescriptors& descriptors,
                                uint64_t data_bytes) = 0;
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

}  // namespace tiffin::rdma_blk
