// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/mapped_address.h"

#include <cerrno>
#include <cstring>

namespace tiffin::rdma_blk {

Result<sockaddr_in6> mapped_address(int socket, int (*get)(int, sockaddr*, socklen_t*)) {
    sockaddr_storage storage{};
    socklen_t length = sizeof(storage);
    if (get(socket, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
        return static_cast<Error>(errno);
    }
    sockaddr_in6 address{};
    if (storage.ss_family == AF_INET6) {
        std::memcpy(&address, &storage, sizeof(address));
        return address;
    }
    if (storage.ss_family != AF_INET) {
        return Error::eopnotsupp;
    }
    const auto& inet = reinterpret_cast<const sockaddr_in&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = inet.sin_port;
    std::memset(address.sin6_addr.s6_addr + 10, 0xff, 2);
    std::memcpy(address.sin6_addr.s6_addr + 12, &inet.sin_addr, sizeof(inet.sin_addr));
    return address;
}

}  // namespace tiffin::rdma_blk
