// SPDX-License-Identifier: MIT OR GPL-2.0-only
#pragma once

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace tiffin::rdma_blk {

// What the kernel counts and measures of a TCP connection. False: it says nothing, as of a Unix socket, and `info` is zeros.
inline bool read_stream_info(int socket, tcp_info& info) {
    info = {};
    socklen_t size = sizeof(info);
    return getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
}

}  // namespace tiffin::rdma_blk
