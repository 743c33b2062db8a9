// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Addresses as carriers give them (IPv6, with IPv4 mapped into it), and as sockets want them. What goes to a mapped
// address costs the kernel less on a socket of IPv4, which can keep its route.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace tiffin::rdma_blk::sdr {

class SocketAddress {
  public:
    SocketAddress() = default;
    explicit SocketAddress(const sockaddr_in6& address) {
        if (!IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
            storage_.inet6 = address;
            storage_.inet6.sin6_family = AF_INET6;
            return;
        }
        storage_.inet = {};
        storage_.inet.sin_family = AF_INET;
        storage_.inet.sin_port = address.sin6_port;
        std::memcpy(&storage_.inet.sin_addr, address.sin6_addr.s6_addr + 12,
                    sizeof(storage_.inet.sin_addr));
    }
    int family() const { return storage_.any.sa_family; }
    in_port_t port() const {  // in the network's order
        return family() == AF_INET ? storage_.inet.sin_port : storage_.inet6.sin6_port;
    }
    sockaddr* get() { return &storage_.any; }
    const sockaddr* get() const { return &storage_.any; }
    socklen_t size() const {
        return family() == AF_INET ? sizeof(storage_.inet) : sizeof(storage_.inet6);
    }

  private:
    union {
        sockaddr any;
        sockaddr_in inet;
        sockaddr_in6 inet6 = {};
    } storage_;
};

}  // namespace tiffin::rdma_blk::sdr
