// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Sockets on 127.0.0.1.
#pragma once

#include <cstdint>

namespace tiffin::rdma_blk::test {

// All return descriptors; failures end the test program, but for the last one, which gives -1 if nobody listens.
int listen_on_loopback(uint16_t& port);
int connect_to_loopback(uint16_t port);
int try_to_connect_to_loopback(uint16_t port);
void set_no_delay(int socket);

}  // namespace tiffin::rdma_blk::test
