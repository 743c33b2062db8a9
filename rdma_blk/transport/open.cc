// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/open.h"

#include <cstring>

#include "fs/vfs/host.h"

#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk {

bool parse_transport_choice(const char* text, TransportChoice& choice) {
    if (std::strcmp(text, "auto") == 0) {
        choice = TransportChoice::automatic;
    } else if (std::strcmp(text, "tcp") == 0) {
        choice = TransportChoice::tcp;
    } else if (std::strcmp(text, "shm") == 0) {
        choice = TransportChoice::shm;
    } else if (std::strcmp(text, "rc") == 0) {
        choice = TransportChoice::rc;
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
    if (address.transport == TransportChoice::rc) {
        return RcMemory::open(address, options, listener, holder, problem);
    }
    std::string why;
    if (address.transport == TransportChoice::automatic && verbs::devices().exist(why)) {
        auto opened = RcMemory::open(address, options, listener, holder, problem);
        if (opened.ok() || opened.error() != Error::eopnotsupp) {
            return opened;
        }
        host::log(host::LogLevel::info, ("remote memory: tcp, and not rc: " + problem).c_str());
        problem.clear();
    }
    std::unique_ptr<RemoteMemory> memory =
        TRY(TcpMemory::open(address, options, listener, holder, problem));
    return memory;
}

}  // namespace tiffin::rdma_blk
