// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The addresses of a host, by its name or as digits. The system's resolver may take longer over a name server that does
// not answer than anybody wants to wait, and cannot be told to stop: what it still works at is left to it then.
#pragma once

#include <netdb.h>

#include <memory>
#include <string>

#include "fs/vfs/result.h"
#include "rdma_blk/transport/open.h"
#include "rdma_blk/transport/tcp/socket.h"

namespace tiffin::rdma_blk {

struct FreeAddresses {
    void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

// For streams. `problem` says what went wrong. Errors: enxio (no such host), eio (for now), etimedout, ecanceled
// (by `patience`), enomem.
Result<Addresses> look_up(const RemoteAddress& address, uint64_t deadline_ns, Patience& patience,
                          std::string& problem);

}  // namespace tiffin::rdma_blk
