// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The process at the other end of a Unix socket, as something that can be ended for certain: what it has
// mapped cannot be taken away in any other way. It is held by a pidfd, so that a process number that is used
// again hits nobody.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "fs/vfs/result.h"
#include "rdma_blk/server/unique_descriptor.h"

namespace tiffin::rdma_blk {

class PeerProcess {
  public:
    // Who connected this socket. Before Linux 6.5 that is found by its number: should a process connect, fork, and
    // end with its child keeping the socket, the number may by now be that of another process of the same user.
    // Errors: enoent (it is gone, or not in this PID namespace), eopnotsupp (not a Unix socket), those of the system.
    static Result<std::shared_ptr<PeerProcess>> of_socket(int socket);
    // One that was known before this process started. Errors: enoent (it is gone, that is certain), those of the
    // system (it may be there).
    static Result<std::shared_ptr<PeerProcess>> find(pid_t id, uint64_t start_ticks);

    pid_t id() const { return id_; }
    // When it started, in clock ticks since the machine did: with the number it names a process.
    uint64_t start_ticks() const { return start_ticks_; }

    // A server and a client in one process: for tests. It is never ended.
    bool is_this_process() const;
    // Whether end() would work: it may be signalled, and is not this process itself.
    bool may_be_ended() const;
    // SIGKILL. It may go on for a moment: see is_gone().
    void end();
    // end() was called.
    bool is_ending() const { return is_ending_; }
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
    std::atomic<bool> is_ending_{false};
};

}  // namespace tiffin::rdma_blk
