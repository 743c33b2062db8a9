// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/open.h"

#include <cstring>

#include "rdma_blk/transport/tcp/tcp_memory.h"

namespace tiffin::rdma_blk {

bool parse_transport_choice(const char* text, TransportChoice& choice) {
    if (std::strcmp(text, "auto") == 0) {
        choice = TransportChoice::automatic;
    } else if (std::strcmp(text, "tcp") == 0) {
        choice = TransportChoice::tcp;
    } else if (std::strcmp(text, "shm") == 0) {
        choice = TransportChoice::shm;
    } else {
        return false;
    }
    return true;
}

Result<std::unique_ptr<RemoteMemory>> open_remote_memory(const RemoteAddress& address,
                                                         const OpenOptions& options,
                                                         ConnectionListener* listener,
                                                         Holder& holder, std::string& problem) {
    if (address.transport == TransportChoice::shm) {
        problem = "this build has no transport shm";
        return Error::eopnotsupp;
    }
    std::unique_ptr<RemoteMemory> memory =
        TRY(TcpMemory::open(address, options, listener, holder, problem));
    return memory;
}

}  // namespace tiffin::rdma_blk
