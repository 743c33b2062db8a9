// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the examples need around the library: a TCP connection over which both ends tell each other what they must
// know. Real programs use a connection that they trust, and agree on keys over it.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "rdma_blk/sdr/sdr.h"
#include "rdma_blk/sdr/udp/udp_carrier.h"

namespace example {

namespace sdr = tiffin::rdma_blk::sdr;

// Ends the program when something failed: good enough for an example.
template <typename T>
T need(tiffin::Result<T> result, const char* what) {
    if (!result.ok()) {
        std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno_value(result.error())));
        std::exit(1);
    }
    return result.release_value();
}
inline void need(tiffin::Result<void> result, const char* what) {
    if (!result.ok()) {
        std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno_value(result.error())));
        std::exit(1);
    }
}
inline void need(bool good, const char* what) {
    if (!good) {
        std::perror(what);
        std::exit(1);
    }
}

inline sockaddr_in6 loopback(uint16_t port) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr);
    address.sin6_port = htons(port);
    return address;
}

// A connection between the two programs: the receiver listens, the sender connects and tries again for 10 s.
inline int meet(uint16_t port, bool listens) {
    const sockaddr_in6 address = loopback(port);
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    if (!listens) {
        for (int attempt = 0; attempt < 100; attempt++) {
            const int connection = socket(AF_INET6, SOCK_STREAM, 0);
            if (connect(connection, generic, sizeof(address)) == 0) {
                return connection;
            }
            close(connection);
            usleep(100'000);
        }
        need(false, "connect");
    }
    const int listener = socket(AF_INET6, SOCK_STREAM, 0);
    const int on = 1;
    const int off = 0;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    need(bind(listener, generic, sizeof(address)) == 0 && listen(listener, 1) == 0, "listen");
    const int connection = accept(listener, nullptr, nullptr);
    close(listener);
    return connection;
}

// Gives the peer ours and returns its own.
template <typename T>
T exchange(int connection, const T& ours) {
    T theirs{};
    need(send(connection, &ours, sizeof(ours), 0) == sizeof(ours), "exchange");
    need(recv(connection, &theirs, sizeof(theirs), MSG_WAITALL) == sizeof(theirs), "exchange");
    return theirs;
}

}  // namespace example
