// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/tcp/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/tcp/name_lookup.h"

namespace tiffin::rdma_blk {

Socket& Socket::operator=(Socket&& other) noexcept {
    if (this != &other) {
        reset();
        descriptor_ = other.descriptor_;
        other.descriptor_ = -1;
    }
    return *this;
}

void Socket::reset() {
    if (descriptor_ >= 0) {
        close(descriptor_);
        descriptor_ = -1;
    }
}

Result<void> wait_ready(int socket, short events, uint64_t deadline_ns, Patience& patience) {
    while (true) {
        pollfd ready{socket, events, 0};
        const int count = poll(&ready, 1, Patience::kIntervalMs);
        if (count > 0) {
            return {};  // an error or the end shows at the next call on the socket
        }
        if (count < 0 && errno != EINTR) {
            return Error::eio;
        }
        if (!patience.go_on()) {
            return Error::ecanceled;
        }
        if (host::monotonic_ns() >= deadline_ns) {
            return Error::etimedout;
        }
    }
}

namespace {

Result<void> finish_connect(int socket, uint64_t deadline_ns, Patience& patience,
                            std::string& problem) {
    if (const auto ready = wait_ready(socket, POLLOUT, deadline_ns, patience); !ready.ok()) {
        problem = ready.error() == Error::etimedout ? kNoAnswerInTime : problem;
        return ready.error();
    }
    int error = 0;
    socklen_t size = sizeof(error);
    if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        problem = std::strerror(error);
        return error == ETIMEDOUT ? Error::etimedout : Error::eio;
    }
    return {};
}

Result<Socket> connect_to(const addrinfo& target, int segment_bytes, uint64_t deadline_ns,
                          Patience& patience, std::string& problem) {
    Socket made(socket(target.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made.is_open() ||
        (segment_bytes != 0 && setsockopt(made.get(), IPPROTO_TCP, TCP_MAXSEG, &segment_bytes,
                                          sizeof(segment_bytes)) != 0)) {
        problem = std::strerror(errno);
        return Error::eio;
    }
    if (connect(made.get(), target.ai_addr, target.ai_addrlen) != 0) {
        if (errno != EINPROGRESS) {
            problem = std::strerror(errno);
            return Error::eio;
        }
        TRY(finish_connect(made.get(), deadline_ns, patience, problem));
    }
    const int yes = 1;
    const int flags = fcntl(made.get(), F_GETFL);
    if (setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes)) != 0 || flags < 0 ||
        fcntl(made.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
        problem = std::strerror(errno);
        return Error::eio;
    }
    return made;
}

}  // namespace

Result<Socket> connect_tcp(const RemoteAddress& address, int segment_bytes, uint64_t deadline_ns,
                           Patience& patience, std::string& problem) {
    const Addresses found = TRY(look_up(address, deadline_ns, patience, problem));
    uint64_t left = 0;
    for (const addrinfo* target = found.get(); target != nullptr; target = target->ai_next) {
        left++;
    }
    Error error = Error::eio;
    for (const addrinfo* target = found.get(); target != nullptr && error != Error::ecanceled;
         target = target->ai_next) {
        // A dead address must not use up the time of those behind it.
        const uint64_t now = host::monotonic_ns();
        const uint64_t share = deadline_ns > now ? (deadline_ns - now) / left : 0;
        left--;
        auto connected = connect_to(*target, segment_bytes, now + share, patience, problem);
        if (connected.ok()) {
            return connected;
        }
        error = connected.error();
    }
    return error;
}

Result<Socket> connect_unix(const std::string& path, std::string& problem) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
        problem = path + ": too long for a socket";
        return Error::enametoolong;
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    // Connecting to a socket of this kind is done at once, or fails when too many wait for the server.
    Socket made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!made.is_open() ||
        connect(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
        const int error = errno;
        problem = path + ": " + std::strerror(error);
        return error == ENOENT ? Error::enoent : error == EACCES ? Error::eperm : Error::eio;
    }
    const int flags = fcntl(made.get(), F_GETFL);
    if (flags < 0 || fcntl(made.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
        problem = path + ": " + std::strerror(errno);
        return Error::eio;
    }
    return made;
}

}  // namespace tiffin::rdma_blk
