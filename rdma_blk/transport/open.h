// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The way into remote memory: which transport, to which server.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fs/vfs/result.h"
#include "rdma_blk/remote_memory.h"
#include "rdma_blk/sdr/tunables.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

namespace sdr {
class UdpDetour;
}

enum class TransportChoice : uint8_t { automatic, tcp, shm, rc, sdr };

// How what is lost is repaired (docs/sdr.md), in both directions.
using SdrScheme = wire::SdrScheme;

// What carries the packets (docs/sdr.md).
enum class SdrCarrier : uint8_t {
    udp,
    uc,  // Unreliable Connected queue pairs of RDMA devices, at both ends
};

struct SdrOptions {
    SdrScheme scheme = SdrScheme::automatic;
    // Of the erasure codes: each data_chunks chunks are followed by parity_chunks of parity. 1 to 64; 1 to 16 and not more.
    uint8_t data_chunks = sdr::kDefaultDataChunks;
    uint8_t parity_chunks = sdr::kDefaultParityChunks;
    SdrCarrier carrier = SdrCarrier::udp;
    // Answers that may be on their way here at once: each has memory for the largest.
    uint16_t landing_slots = 16;
    // For trials: this share of what is sent is lost, in parts of a million.
    uint32_t drop_ppm = 0;
    // For trials: an emulated link on this host that the session's datagrams pass (rdma_blk/sdr/udp/udp_detour.h). Outlives
    // the session, and serves no other. nullptr: none. Not with queue pairs.
    sdr::UdpDetour* detour = nullptr;

    // What the server is told of it.
    wire::SdrRepair repair() const;
};

inline constexpr size_t kMaxLinks = 8;

// Which of several links requests take.
enum class LinkPolicy : uint8_t {
    standby,  // the first one that works
    spread,  // the one that answers first, by what is on its way on each, its rate and its delay. Not over rc
};

// For trials (bench/failover): what a session with several links does when requests leave one of them.
enum class LinkTrial : uint8_t {
    none,
    resend_all,  // it does not ask what was executed, and sends everything again
    reconnect_all,  // it gives up all connections and makes one anew, as a session with one link does in the end
};

// One memory server. The volume is named by OpenOptions.
struct RemoteAddress {
    std::string host;  // a name, an IPv4 address, or an IPv6 address without brackets
    uint16_t port = wire::kDefaultPort;
    TransportChoice transport = TransportChoice::automatic;
    // shm: where a server on this host has its volumes' sockets.
    std::string runtime_directory = wire::kDefaultRuntimeDirectory;
    SdrOptions sdr = {};
    // Further links to the same server, in the order in which they are preferred; at most kMaxLinks with the first.
    struct Link {
        std::string host;
        uint16_t port = wire::kDefaultPort;
        // automatic: that of the first link. Else tcp or sdr, as that is then.
        TransportChoice transport = TransportChoice::automatic;
        // "HOST:PORT", with brackets where the host has colons.
        std::string text() const;
    };
    std::vector<Link> more_links = {};
    LinkPolicy link_policy = LinkPolicy::standby;
    LinkTrial link_trial = LinkTrial::none;

    // Of the first link (0), or of one of more_links.
    TransportChoice transport_of(size_t link) const;
};

// tcp, auto (which is tcp then), rc, and sdr over UDP; tcp and sdr also side by side.
bool may_have_several_links(const RemoteAddress& address);

// "auto", "tcp", "shm", "rc", "sdr". False: none of them.
bool parse_transport_choice(const char* text, TransportChoice& choice);
// "auto", "sr", "nack", "xor", "mds", and of the last two with k and m, such as "mds:32:8". False: none of them.
bool parse_sdr_scheme(std::string_view text, SdrOptions& options);
// "udp", "uc". False: none of them.
bool parse_sdr_carrier(const char* text, SdrCarrier& carrier);

// Opens a session and returns its memory. Automatic: shm when `host` is this one and the volume's socket serves it,
// rc when both ends can, something comes through it, and OpenOptions::encrypt is not set, else tcp, and later sdr where
// tcp loses packets and a trial shows that sdr is faster;
// ConnectionInfo::transport_reason says why. Blocks until the server has answered,
// at most some seconds. `listener` may be nullptr and must live until close(); `holder` names the holder of the lease
// after ebusy; `problem` gets one line for people after any error.
//
// Errors: eacces (wrong key or no such volume: the server does not say which), ebusy (another client has
// the lease), erofs, enospc (the server is full), estale, eopnotsupp (no such transport here, or it does not
// work), einval (options out of their bounds, or that the transport cannot keep: encrypt over rc), enomem, etimedout,
// enxio (no such host), eio (cannot be reached), eproto (no memory server answers there).
Result<std::unique_ptr<RemoteMemory>> open_remote_memory(const RemoteAddress& address,
                                                         const OpenOptions& options,
                                                         ConnectionListener* listener,
                                                         Holder& holder, std::string& problem);

}  // namespace tiffin::rdma_blk
