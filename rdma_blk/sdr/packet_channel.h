// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A carrier without a thread: whoever waits for a connection drives it. UdpChannel is one (a socket), UcChannel of
// rdma_blk/transport/uc another (queue pairs of an RDMA device).
//
//     poll(channel.descriptor(), until the earlier of channel.next_time_ns() and endpoint.next_timer_ns());
//     while (channel.take(now_ns, endpoint.expected_place()).has_any) { channel.deliver(now_ns, endpoint); }
//     if (endpoint.next_timer_ns() <= now_ns) { endpoint.on_timer(now_ns); }
//     while (channel.transmit(now_ns, endpoint)) { }
//
// One thread at a time. How a channel is set up is its own; nothing here is called before its peer is known.
#pragma once

#include <cstdint>

#include "rdma_blk/sdr/endpoint.h"

namespace tiffin::rdma_blk::sdr {

// Counters since the creation. Packets are all that is sent by itself: of messages, control messages and feedback.
struct ChannelStatistics {
    uint64_t packets_sent = 0;
    uint64_t packets_received = 0;  // that were authentic, where the channel tells, and new
    uint64_t packets_refused = 0;   // wrong connection, tag or number
    uint64_t packets_dropped = 0;   // by this host, and for trials
    uint64_t send_calls = 0;
    uint64_t receive_calls = 0;
    // What gets through whole, as far as it was tried (UdpStatistics); 0: not known.
    uint64_t path_packet_bytes = 0;
    bool path_is_too_narrow = false;
};

class PacketChannel {
  public:
    virtual ~PacketChannel() = default;

    struct Taken {
        bool has_any = false;        // deliver() has to follow, before anything else
        bool may_have_more = false;  // the descriptor need not say so
    };

    // Readable when something has come since a take() that found nothing.
    virtual int descriptor() const = 0;
    // Takes what has come, without blocking. `place`: what comes may be received there (Endpoint::expected_place()), and
    // is copied away if it does not belong there.
    virtual Taken take(uint64_t now_ns, const ExpectedPlace& place) = 0;
    // Hands over what take() found; false: it was nothing for the endpoint.
    virtual bool deliver(uint64_t now_ns, Endpoint& endpoint) = 0;
    // Sends what the endpoint has and the network allows; true: there may be more.
    virtual bool transmit(uint64_t now_ns, Endpoint& endpoint) = 0;
    // When to call transmit() again although nothing comes; stays the same until something happens.
    virtual uint64_t next_time_ns() const = 0;
    // Whether transmit() could not ask the endpoint: until then at least, its timers cannot be served.
    virtual bool is_blocked() const = 0;
    // Nothing comes or goes any more, though the peer may be well.
    virtual bool has_failed() const { return false; }
    // Of the statistics: whoever is heard of is alive.
    virtual uint64_t packets_received() const = 0;
    // Bytes of these packets, or an upper bound: for who shares its time between channels.
    virtual uint64_t bytes_received() const = 0;
    virtual ChannelStatistics statistics() const = 0;
};

}  // namespace tiffin::rdma_blk::sdr
