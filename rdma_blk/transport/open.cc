// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/open.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/rc/rc_memory.h"
#include "rdma_blk/transport/sdr/sdr_path.h"
#include "rdma_blk/transport/shm/shm_memory.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "rdma_blk/transport/this_host.h"
#include "rdma_blk/transport/verbs/verbs.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {
namespace {

using Opened = Result<std::unique_ptr<RemoteMemory>>;

constexpr const char* kAskedFor = "asked for";

// "K:M", k and m of an erasure code.
bool parse_code(std::string_view text, SdrOptions& options) {
    const char* const end = text.data() + text.size();
    const auto data = std::from_chars(text.data(), end, options.data_chunks);
    if (data.ec != std::errc() || data.ptr == end || *data.ptr != ':') {
        return false;
    }
    const auto parity = std::from_chars(data.ptr + 1, end, options.parity_chunks);
    return parity.ec == std::errc() && parity.ptr == end && wire::is_erasure_code(options.scheme) &&
           wire::is_repair(options.repair());
}

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
    if (address.transport == TransportChoice::automatic && address.more_links.empty()) {
        extension.make_requests = [sdr = address.sdr](size_t) {
            return std::make_shared<SdrPath>(sdr);
        };
        extension.measured = WayChoice::Options();
    }
    auto opened = TcpMemory::open(address, options, listener, holder, problem, nullptr, extension);
    if (!opened.ok()) {
        return opened.error();
    }
    return std::unique_ptr<RemoteMemory>(opened.release_value());
}

bool has_link(const RemoteAddress& address, TransportChoice transport) {
    for (size_t link = 0; link <= address.more_links.size(); link++) {
        if (address.transport_of(link) == transport) {
            return true;
        }
    }
    return false;
}

// The session is on streams, as with tcp; the requests of links with sdr go as datagrams.
Opened open_sdr(const RemoteAddress& address, const OpenOptions& options, const char* reason,
                ConnectionListener* listener, Holder& holder, std::string& problem) {
    constexpr uint64_t kUpTimeoutNs = 10'000'000'000;
    const bool is_uc = address.sdr.carrier == SdrCarrier::uc;
    if (is_uc && !verbs::devices().exist(problem)) {
        return Error::eopnotsupp;
    }
    StreamExtension extension;
    extension.transport_reason = reason;
    extension.make_requests = [address](size_t link) -> std::shared_ptr<RequestPath> {
        return address.transport_of(link) == TransportChoice::sdr
                   ? std::make_shared<SdrPath>(address.sdr)
                   : nullptr;
    };
    auto opened = TcpMemory::open(address, options, listener, holder, problem, nullptr, extension);
    if (!opened.ok()) {
        return opened.error();
    }
    std::unique_ptr<TcpMemory> memory = opened.release_value();
    if (has_link(address, TransportChoice::tcp)) {
        // Requests take streams until datagrams come through, and where none do.
        return std::unique_ptr<RemoteMemory>(memory.release());
    }
    const auto joined = memory->wait_until_joined(host::monotonic_ns() + kUpTimeoutNs);
    if (!joined.ok()) {
        if (joined.error() == Error::etimedout) {
            problem = is_uc ? "the server offers sdr over uc, but nothing comes through"
                            : "the server offers sdr, but no datagrams come through";
        } else {
            problem = is_uc ? "the server does not offer sdr over uc, or this host's RDMA device "
                              "does not do (the "
                              "log says more)"
                            : "the server does not offer sdr";
        }
        memory->close();
        return joined.error() == Error::estale ? Error::estale : Error::eopnotsupp;
    }
    return std::unique_ptr<RemoteMemory>(memory.release());
}

// rc where this host has a device, the server offers it and it works, else tcp, or sdr where that measures better; rc does
// not encrypt.
// `why_not_shm`: of static storage.
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
    if (options.has_reader_key) {
        return open_over_network(address, options, "shm is not for a reader key", listener, holder,
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

std::string RemoteAddress::Link::text() const {
    const bool has_colons = host.find(':') != std::string::npos;
    return (has_colons ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool parse_transport_choice(const char* text, TransportChoice& choice) {
    if (std::strcmp(text, "auto") == 0) {
        choice = TransportChoice::automatic;
    } else if (std::strcmp(text, "tcp") == 0) {
        choice = TransportChoice::tcp;
    } else if (std::strcmp(text, "shm") == 0) {
        choice = TransportChoice::shm;
    } else if (std::strcmp(text, "rc") == 0) {
        choice = TransportChoice::rc;
    } else if (std::strcmp(text, "sdr") == 0) {
        choice = TransportChoice::sdr;
    } else {
        return false;
    }
    return true;
}

wire::SdrRepair SdrOptions::repair() const {
    const bool is_code = wire::is_erasure_code(scheme);
    return {static_cast<uint8_t>(scheme), is_code ? data_chunks : uint8_t{0},
            is_code ? parity_chunks : uint8_t{0}};
}

bool parse_sdr_scheme(std::string_view text, SdrOptions& options) {
    struct Named {
        std::string_view name;
        SdrScheme scheme;
    };
    constexpr Named kSchemes[] = {{"auto", SdrScheme::automatic},
                                  {"sr", SdrScheme::selective_repeat},
                                  {"nack", SdrScheme::selective_repeat_nack},
                                  {"xor", SdrScheme::erasure_xor},
                                  {"mds", SdrScheme::erasure_mds}};
    const size_t name_end = std::min(text.find(':'), text.size());
    for (const Named& named : kSchemes) {
        if (text.substr(0, name_end) == named.name) {
            options.scheme = named.scheme;
            return name_end == text.size() || parse_code(text.substr(name_end + 1), options);
        }
    }
    return false;
}

bool parse_sdr_carrier(const char* text, SdrCarrier& carrier) {
    const bool is_uc = std::strcmp(text, "uc") == 0;
    if (!is_uc && std::strcmp(text, "udp") != 0) {
        return false;
    }
    carrier = is_uc ? SdrCarrier::uc : SdrCarrier::udp;
    return true;
}

TransportChoice RemoteAddress::transport_of(size_t link) const {
    const bool has_own = link > 0 && link <= more_links.size() &&
                         more_links[link - 1].transport != TransportChoice::automatic;
    return has_own ? more_links[link - 1].transport : transport;
}

bool may_have_several_links(const RemoteAddress& address) {
    const auto goes_with_others = [](TransportChoice transport) {
        return transport == TransportChoice::tcp || transport == TransportChoice::sdr;
    };
    for (size_t link = 1; link <= address.more_links.size(); link++) {
        const TransportChoice own = address.transport_of(link);
        if (own != address.transport &&
            !(goes_with_others(own) && goes_with_others(address.transport))) {
            return false;
        }
    }
    return address.transport != TransportChoice::shm &&
           (!has_link(address, TransportChoice::sdr) || address.sdr.carrier == SdrCarrier::udp);
}

Result<std::unique_ptr<RemoteMemory>> open_remote_memory(const RemoteAddress& address,
                                                         const OpenOptions& options,
                                                         ConnectionListener* listener,
                                                         Holder& holder, std::string& problem) {
    if (!address.more_links.empty()) {
        if (!may_have_several_links(address) || address.more_links.size() >= kMaxLinks) {
            problem =
                "several links to a server need transport=tcp, rc, or sdr over UDP, of which tcp "
                "and sdr go together, and there are at most 8";
            return Error::einval;
        }
        constexpr const char* kReason = "several links";
        if (address.transport == TransportChoice::rc) {
            return RcMemory::open(address, options, kReason, listener, holder, problem);
        }
        return has_link(address, TransportChoice::sdr)
                   ? open_sdr(address, options, kReason, listener, holder, problem)
                   : open_tcp(address, options, kReason, listener, holder, problem);
    }
    switch (address.transport) {
        case TransportChoice::shm:
            if (options.has_reader_key) {
                problem =
                    "shm needs the volume's key, and this is a reader key: use transport=auto";
                return Error::eopnotsupp;
            }
            return ShmMemory::open(address, options, socket_path_of(address, options), kAskedFor,
                                   listener, holder, problem);
        case TransportChoice::tcp:
            return open_tcp(address, options, kAskedFor, listener, holder, problem);
        case TransportChoice::rc:
            return RcMemory::open(address, options, kAskedFor, listener, holder, problem);
        case TransportChoice::sdr:
            return open_sdr(address, options, kAskedFor, listener, holder, problem);
        case TransportChoice::automatic:
            break;
    }
    return open_automatically(address, options, listener, holder, problem);
}

}  // namespace tiffin::rdma_blk
