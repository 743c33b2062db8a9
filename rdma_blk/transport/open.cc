// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/open.h"

#include <unistd.h>

#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/transport/shm/shm_memory.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/this_host.h"
#include "rdma_blk/transport/verbs/verbs.h"

namespace tiffin::rdma_blk {
namespace {

using Opened = Result<std::unique_ptr<RemoteMemory>>;

constexpr const char* kAskedFor = "asked for";

std::string socket_path_of(const RemoteAddress& address, const OpenOptions& options) {
    return address.runtime_directory + "/" + wire::kVolumeSocketPrefix + options.volume_name +
           wire::kVolumeSocketSuffix;
}

// Whether another transport can do what this one cannot. Who is refused by the volume is refused by all.
bool is_worth_another(Error error) {
    switch (error) {
        case Error::ebusy:
        case Error::erofs:
        case Error::enospc:
        case Error::einval:
        case Error::enomem:
            return false;
        default:
            return true;
    }
}

Opened open_tcp(const RemoteAddress& address, const OpenOptions& options, const char* reason,
                ConnectionListener* listener, Holder& holder, std::string& problem) {
    StreamExtension extension;
    extension.transport_reason = reason;
    auto opened = TcpMemory::open(address, options, listener, holder, problem, nullptr, extension);
    if (!opened.ok()) {
        return opened.error();
    }
    return std::unique_ptr<RemoteMemory>(opened.release_value());
}

// rc where this host has a device, the server offers it and it works, else tcp; what is encrypted goes over tcp. `why_not_shm`: of static storage.
Opened open_over_network(const RemoteAddress& address, const OpenOptions& options,
                         const char* why_not_shm, ConnectionListener* listener, Holder& holder,
                         std::string& problem) {
    std::string why;
    if (verbs::devices().exist(why)) {
        if (options.encrypt) {
            return open_tcp(address, options, "rc does not encrypt", listener, holder, problem);
        }
        Opened opened = RcMemory::open(address, options, "both ends have an RDMA device", listener,
                                       holder, problem);
        if (opened.ok() || opened.error() != Error::eopnotsupp) {
            return opened;
        }
        host::log(host::LogLevel::info, ("remote memory: tcp, and not rc: " + problem).c_str());
        problem.clear();
        return open_tcp(address, options, "rc was tried and does not work (the log says why)",
                        listener, holder, problem);
    }
    return open_tcp(address, options, why_not_shm, listener, holder, problem);
}

// From the shortest way to the longest: each is tried when it seems possible, and left for the next when it turns
// out not to be.
Opened open_automatically(const RemoteAddress& address, const OpenOptions& options,
                          ConnectionListener* listener, Holder& holder, std::string& problem) {
    if (!is_this_host(address.host)) {
        return open_over_network(address, options, "the server is another host", listener, holder,
                                 problem);
    }
    const std::string path = socket_path_of(address, options);
    if (access(path.c_str(), R_OK | W_OK) != 0) {
        return open_over_network(address, options, "the volume has no socket on this host",
                                 listener, holder, problem);
    }
    Opened opened = ShmMemory::open(address, options, path, "the server is this host", listener,
                                    holder, problem);
    if (opened.ok() || !is_worth_another(opened.error())) {
        return opened;
    }
    host::log(host::LogLevel::info, ("remote memory: not shm: " + problem).c_str());
    problem.clear();
    return open_over_network(address, options, "the volume's socket on this host does not serve it",
                             listener, holder, problem);
}

}  // namespace

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
    switch (address.transport) {
        case TransportChoice::shm:
            return ShmMemory::open(address, options, socket_path_of(address, options), kAskedFor,
                                   listener, holder, problem);
        case TransportChoice::tcp:
            return open_tcp(address, options, kAskedFor, listener, holder, problem);
        case TransportChoice::rc:
            return RcMemory::open(address, options, kAskedFor, listener, holder, problem);
        case TransportChoice::automatic:
            break;
    }
    return open_automatically(address, options, listener, holder, problem);
}

}  // namespace tiffin::rdma_blk
