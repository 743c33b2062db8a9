// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the examples need around the library: a TCP connection over which both ends tell each other what they must
// know. Real programs use a connection that they trust, and agree on keys over it.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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

// "192.0.2.1:7000", or "7000" for any address of this machine.
inline sockaddr_in6 parse_address(const char* text) {
    const char* colon = std::strchr(text, ':');
    const std::string host =
        colon == nullptr ? "::" : "::ffff:" + std::string(text, static_cast<size_t>(colon - text));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port =
        htons(static_cast<uint16_t>(std::atoi(colon == nullptr ? text : colon + 1)));
    errno = EINVAL;
    need(inet_pton(AF_INET6, host.c_str(), &address.sin6_addr) == 1, text);
    return address;
}

// A connection between the two programs: the receiver listens, the sender connects and tries again for a minute.
inline int meet(const sockaddr_in6& address, bool listens) {
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    if (!listens) {
        for (int attempt = 0; attempt < 600; attempt++) {
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
    need(connection >= 0, "accept");
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

// Tells the peer where our carrier is, which is behind the same address as this end of `connection`, and starts it.
// `through`: an emulated link that our datagrams are to take (rdma_blk/simulation/program/link_emulator.cc), or nullptr.
inline void start(sdr::UdpCarrier& carrier, int connection, const char* through) {
    sdr::UdpInfo ours = carrier.info_get();
    sockaddr_in6 local{};
    socklen_t size = sizeof(local);
    need(getsockname(connection, reinterpret_cast<sockaddr*>(&local), &size) == 0, "address");
    ours.addresses[0].sin6_addr = local.sin6_addr;
    sdr::UdpInfo peer = exchange(connection, ours);
    if (through != nullptr) {
        peer.addresses[0] = parse_address(through);
    }
    need(carrier.start(peer), "start");
}

}  // namespace example
