// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Drives an Endpoint over UDP sockets: segmentation offload in both directions (GSO, GRO), authenticated datagrams,
// congestion control for each channel.
//
//     carrier = TRY(UdpCarrier::create(*connection, options));
//     carrier->info_get()  <exchange>  carrier->start(peer_info);
//     {
//         MutexGuard guard(carrier->mutex());     // around every call of the endpoint
//         connection->send_post(host::monotonic_ns(), ...);
//     }
//     carrier->kick();                            // something may be there to send
//     seen = carrier->wait(seen, timeout_us);     // until something has changed; then look for completions
//
// Each channel is a socket and a thread. Receiving, tags and checksums of what came are done outside of the mutex,
// by as many threads as there are channels; placing it, and building and sending datagrams straight from the
// messages' memory, under it. Runs have bytes: an endpoint without (ReliabilityAttributes::without_bytes, memory
// registered as nullptr) is for simulations, and what it sends here is dropped and counted as failed.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <memory>

#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/tunables.h"
#include "rdma_blk/sdr/udp/datagram.h"

namespace tiffin::rdma_blk::sdr {

struct UdpOptions {
    sockaddr_in6 local = {};  // port 0: any; IPv4 as ::ffff:a.b.c.d
    // Other sockets of this user may have the same port: then each takes what comes from its own peer only.
    bool shares_port = false;
    // The same, without sharing: costs the kernel less for each datagram. Not for who receives from another address than
    // he sends to (udp_detour.h).
    bool has_one_peer = false;
    uint32_t packet_bytes = 0;   // of the queue pair; at most kMaxUdpPacketBytes
    uint16_t channel_count = 1;  // of the queue pair; 1 to kMaxChannels; both ends the same
    uint64_t rate_limit_bytes_per_s = 0;  // of each channel; 0: none
    // Keys of the two directions, agreed on over a connection that is trusted.
    unsigned char send_key[kTagKeyBytes] = {};
    unsigned char receive_key[kTagKeyBytes] = {};
    // For trials: this share of what is sent is lost, in parts of a million.
    uint32_t drop_ppm = 0;
};

// What the peer must know. Keys do not travel with it.
struct UdpInfo {
    uint32_t connection_id = 0;
    uint16_t channel_count = 0;
    uint64_t receive_buffer_bytes = 0;  // of each channel's socket
    sockaddr_in6
        addresses[kMaxChannels];  // as the peer can reach them: the caller fills in the host
};

struct UdpStatistics {
    uint64_t datagrams_sent = 0;
    uint64_t datagrams_received = 0;  // that were authentic and new
    uint64_t datagrams_refused = 0;   // wrong connection, tag or number
    uint64_t datagrams_dropped = 0;   // by the kernel's queue being full, and by drop_ppm
    uint64_t datagrams_failed = 0;    // that the kernel would never take: too large, no route
    uint64_t send_calls = 0;
    uint64_t receive_calls = 0;
    // What probes have found (RFC 8899): the largest packet_bytes whose datagrams get through whole, as far as this end's
    // route could take them; 0: not known (yet). And whether those of this carrier are known not to: then they may go in
    // fragments, or not at all, and only a new connection with smaller packets is better.
    uint64_t path_packet_bytes = 0;
    bool path_is_too_narrow = false;
};

class UdpCarrier {
  public:
    // Opens the sockets. The endpoint outlives the carrier. Errors: einval (options out of range, or other than the
    // endpoint's), enomem, and those of sockets.
    static Result<std::unique_ptr<UdpCarrier>> create(Endpoint& endpoint,
                                                      const UdpOptions& options);
    // Stops the threads.
    virtual ~UdpCarrier() = default;

    virtual UdpInfo info_get() const = 0;
    // Errors: einval (channels differ), e2big (datagrams of packet_bytes do not fit into the path: see
    // udp_path_packet_bytes()), eagain or enomem (threads).
    virtual Result<void> start(const UdpInfo& peer) = 0;

    virtual host::Mutex& mutex() = 0;
    virtual void kick() = 0;
    // Until the carrier has done something with the endpoint since `seen`, or the time is over. Returns what to pass
    // the next time, at first 0: look for completions between two calls, and none is missed. Any number of threads.
    virtual uint64_t wait(uint64_t seen, uint64_t timeout_us) = 0;
    virtual UdpStatistics statistics() = 0;
};

// The packet size for which datagrams just fit into the path to `peer`, as far as this host knows it (the MTU of the
// route, and what ICMP has told). Errors: those of sockets.
Result<uint32_t> udp_path_packet_bytes(const sockaddr_in6& peer);

}  // namespace tiffin::rdma_blk::sdr
