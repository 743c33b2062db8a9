// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/this_host.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace tiffin::rdma_blk {
namespace {

bool same_address(const sockaddr& left, const sockaddr& right) {
    if (left.sa_family != right.sa_family) {
        return false;
    }
    if (left.sa_family == AF_INET) {
        return std::memcmp(&reinterpret_cast<const sockaddr_in&>(left).sin_addr,
                           &reinterpret_cast<const sockaddr_in&>(right).sin_addr,
                           sizeof(in_addr)) == 0;
    }
    return left.sa_family == AF_INET6 &&
           std::memcmp(&reinterpret_cast<const sockaddr_in6&>(left).sin6_addr,
                       &reinterpret_cast<const sockaddr_in6&>(right).sin6_addr,
                       sizeof(in6_addr)) == 0;
}

bool is_loopback(const sockaddr& address) {
    if (address.sa_family == AF_INET) {
        constexpr uint32_t kLoopbackNetwork = 127;
        const auto& inet = reinterpret_cast<const sockaddr_in&>(address);
        return ntohl(inet.sin_addr.s_addr) >> 24 == kLoopbackNetwork;
    }
    return address.sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

bool is_own(const sockaddr& address, const ifaddrs* interfaces) {
    for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
        if (each->ifa_addr != nullptr && same_address(address, *each->ifa_addr)) {
            return true;
        }
    }
    return is_loopback(address);
}

}  // namespace

bool is_this_host(const std::string& host) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) {
        return false;
    }
    ifaddrs* interfaces = nullptr;
    if (getifaddrs(&interfaces) != 0) {
        interfaces = nullptr;
    }
    bool is_this = false;
    for (const addrinfo* each = found; each != nullptr && !is_this; each = each->ai_next) {
        is_this = is_own(*each->ai_addr, interfaces);
    }
    freeifaddrs(interfaces);
    freeaddrinfo(found);
    return is_this;
}

}  // namespace tiffin::rdma_blk
