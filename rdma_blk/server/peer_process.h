// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The process at the other end of a Unix socket, as something that can be ended for certain: what it has
// mapped cannot be taken away in any other way. It is held by a pidfd, so that a process number that is used
// again hits nobody.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/server/unique_descriptor.h"

namespace tiffin::rdma_blk {

class PeerProcess {
  public:
    // Who connected this socket. Errors: enoent (it is gone, or not in this PID namespace), eopnotsupp (not a
    // Unix socket), those of the system.
    static Result<std::shared_ptr<PeerProcess>> of_socket(int socket);
    // One that was known before this process started; nullptr: it is gone.
    static std::shared_ptr<PeerProcess> find(pid_t id, uint64_t start_ticks);

    pid_t id() const { return id_; }
    // When it started, in clock ticks since the machine did: with the number it names a process.
    uint64_t start_ticks() const { return start_ticks_; }

    // A server and a client in one process: for tests. It is never ended.
    bool is_this_process() const;
    // Whether end() would work: it may be signalled, and is not this process itself.
    bool may_be_ended() const;
    // SIGKILL. It may go on for a moment: see is_gone().
    void end() const;
    // All its threads have ended, so that nothing of it touches any memory any more.
    bool is_gone() const;
    // Waits until it is gone, at most that long. Returns is_gone().
    bool wait_until_gone(int timeout_ms) const;

  private:
    PeerProcess(UniqueDescriptor descriptor, pid_t id, uint64_t start_ticks)
        : descriptor_(std::move(descriptor)), id_(id), start_ticks_(start_ticks) {}
    static Result<std::shared_ptr<PeerProcess>> make(UniqueDescriptor descriptor, pid_t id);

    UniqueDescriptor descriptor_;
    pid_t id_;
    uint64_t start_ticks_;
};

}  // namespace tiffin::rdma_blk
