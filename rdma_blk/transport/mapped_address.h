// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The ends of a connected socket, as IPv6 addresses.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "fs/vfs/result.h"

namespace tiffin::rdma_blk {

// What `get` (getsockname, getpeername) says of a socket; IPv4 is mapped into IPv6. Errors: eopnotsupp (another
// kind of socket), and those of `get`.
Result<sockaddr_in6> mapped_address(int socket, int (*get)(int, sockaddr*, socklen_t*));

}  // namespace tiffin::rdma_blk
