// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/loopback.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk::test {
namespace {

sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

}  // namespace

int listen_on_loopback(uint16_t& port) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    TIFFIN_ASSERT(bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0);
    TIFFIN_ASSERT(listen(listener, 64) == 0);
    TIFFIN_ASSERT(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
    return listener;
}

int try_to_connect_to_loopback(uint16_t port) {
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = loopback(port);
    if (connect(made, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
        close(made);
        return -1;
    }
    set_no_delay(made);
    return made;
}

int connect_to_loopback(uint16_t port) {
    const int made = try_to_connect_to_loopback(port);
    TIFFIN_ASSERT(made >= 0);
    return made;
}

void set_no_delay(int socket) {
    const int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

}  // namespace tiffin::rdma_blk::test
