// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Sockets of a client: connecting with bounds, and waiting in a way that can be given up.
#pragma once

#include <cstdint>
#include <string>

#include "fs/vfs/result.h"
#include "rdma_blk/transport/open.h"

namespace tiffin::rdma_blk {

// A descriptor that is closed when it goes.
class Socket {
  public:
    Socket() = default;
    explicit Socket(int descriptor) : descriptor_(descriptor) {}
    Socket(Socket&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
    Socket& operator=(Socket&& other) noexcept;
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;
    ~Socket() { reset(); }

    int get() const { return descriptor_; }
    bool is_open() const { return descriptor_ >= 0; }
    void reset();

  private:
    int descriptor_ = -1;
};

// What a wait of some length is bounded by.
class Patience {
  public:
    // Asked every kIntervalMs at least, without any lock. False: give up (ecanceled).
    virtual bool go_on() = 0;

    static constexpr int kIntervalMs = 20;

  protected:
    ~Patience() = default;
};

// What a time-out means to who reads of it.
inline constexpr const char* kNoAnswerInTime =
    "nothing has answered in time: the server has stopped, or the network loses what is sent";

// Until one of `events` (POLLIN, POLLOUT) is there. Errors: etimedout, ecanceled, eio.
Result<void> wait_ready(int socket, short events, uint64_t deadline_ns, Patience& patience);

// The result blocks, is close-on-exec and sends without delay (TCP_NODELAY). `problem` says what went wrong.
// `segment_bytes`: of the longest segment in either direction (TCP_MAXSEG); 0: as the kernel takes it.
// Errors: enxio (no such host), etimedout, ecanceled, eio.
Result<Socket> connect_tcp(const RemoteAddress& address, int segment_bytes, uint64_t deadline_ns,
                           Patience& patience, std::string& problem);

// A Unix socket; as above. Does not wait.
Result<Socket> connect_unix(const std::string& path, std::string& problem);

}  // namespace tiffin::rdma_blk
