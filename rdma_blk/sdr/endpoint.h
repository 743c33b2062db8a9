// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where protocol and carrier meet: (time, packets) go in, packets and the time of the next timer come out.
// No sockets, no clock, no threads on this side. A carrier is UDP sockets (rdma_blk/sdr/udp), verbs, or a
// simulated link in virtual time; each drives any Endpoint.
//
// Packets come in runs, so that gigabytes can be simulated at the cost of their losses: a run is a number
// of consecutive packets of one message. A carrier may split a run anywhere and lose, repeat or reorder
// the pieces; where packets really are single, a run is one packet.
//
//     while (endpoint.next_transmit(now_ns, 64, out)) { send out.run or out.control }
//     endpoint.on_data(now_ns, run);              // as it arrives, in pieces or whole
//     endpoint.on_control(now_ns, bytes);
//     sleep until endpoint.next_timer_ns(), then endpoint.on_timer(now_ns)
//
// A carrier that measures how fast the path is says so: endpoint.on_path_rate(channel, bytes_per_s).
//
// Time is in nanoseconds of any clock that never goes back. The caller serialises all calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/span.h"
#include "rdma_blk/sdr/gather.h"
#include "rdma_blk/sdr/packet_format.h"

namespace tiffin::rdma_blk::sdr {

inline constexpr uint64_t kNoTimer = ~uint64_t{0};

// How one message is protected.
struct SchemeChoice {
    SchemeKind kind = SchemeKind::none;
    uint8_t data_chunks = 0;    // k; erasure codes only
    uint8_t parity_chunks = 0;  // m

    bool is_erasure() const {
        return kind == SchemeKind::erasure_xor || kind == SchemeKind::erasure_mds;
    }
    bool operator==(const SchemeChoice&) const = default;
};

// Consecutive packets of one message. All but the message's last packet are QueuePairAttributes::packet_bytes
// long. With packet_count 1 it is exactly what a data or parity packet says.
struct DataRun {
    PacketKind kind = PacketKind::data;  // or parity
    uint8_t flags = 0;                   // data_flag; of the last packet of the run
    SchemeChoice scheme;
    uint64_t message_number = 0;
    uint64_t message_bytes = 0;
    uint32_t first_packet = 0;
    uint32_t packet_count = 0;  // at least 1
    uint32_t user_immediate = 0;
    uint32_t send_time_us = 0;  // of the first packet
    uint32_t round_trip_us = 0;
    uint16_t delivered_until = 0;  // with data_flag::tells_delivered
    uint16_t posted_until = 0;     // with data_flag::tells_posted
    // The bytes of all packets, one behind the other; nullptr where only the protocol is simulated: the
    // receiving side then keeps its books and touches no memory.
    const unsigned char* payload = nullptr;
    uint64_t payload_bytes = 0;  // also given when payload is nullptr
    // Of a run that is sent and lies in several pieces: it begins there in them, and payload is nullptr.
    const GatherList* gather = nullptr;
    uint64_t gather_offset = 0;
};

// What an endpoint wants to send next: a run, or one control message.
struct Transmit {
    bool is_control = false;
    DataRun run;  // its payload stays valid until the next call of the endpoint
    size_t control_bytes = 0;
    unsigned char control[kMaxControlBytes];

    uint32_t packet_count() const { return is_control ? 1 : run.packet_count; }
};

// Where the payloads of the packets belong that probably come next: from `first_packet` of a message on, one behind the
// other. All of it lies in the memory of a posted receive, and nothing of it has come.
struct ExpectedPlace {
    unsigned char* bytes = nullptr;  // nullptr: nothing is expected, or its place not known
    uint64_t size_bytes = 0;         // up to the end of the message, or of its receive
    uint64_t message_number = 0;
    uint32_t first_packet = 0;
};

class Endpoint {
  public:
    virtual ~Endpoint() = default;

    // QueuePairAttributes, for carriers to hold their options against; 0: not known.
    virtual uint32_t packet_bytes() const { return 0; }
    virtual uint16_t channel_count() const { return 0; }
    // Receives [0, this) have been posted, of which the last max_messages at most have not ended. For carriers that have a
    // place for each of them.
    virtual uint64_t receives_posted() const { return 0; }

    // Packets that arrived. What does not fit the state (late, repeated, beyond a receive) is counted
    // and leaves no trace in memory.
    virtual void on_data(uint64_t now_ns, const DataRun& run) = 0;
    // For carriers that can receive payloads straight to their place. All of it may be written while the carrier receives
    // the next time, whatever comes then: it counts as arrived only with an on_data() whose payload lies where it belongs, which
    // copies nothing. No other payload of an on_data() may lie in it.
    virtual ExpectedPlace expected_place() { return {}; }
    // A control message that arrived; anything but a well-formed one is counted and ignored.
    virtual void on_control(uint64_t now_ns, ByteSpan message) = 0;

    // What gets through of what this end sends, as a channel of the carrier's has measured it. Channels add up.
    virtual void on_path_rate(uint16_t /*channel*/, uint64_t /*bytes_per_s*/) {}

    // Fills `out` with what is to be sent next; false: nothing at the moment. A run has at most
    // `max_packets` packets, but never ends within a chunk (so that timers are of whole chunks): it may have
    // QueuePairAttributes::packets_per_chunk() packets. The caller asks when its link has room.
    virtual bool next_transmit(uint64_t now_ns, uint32_t max_packets, Transmit& out) = 0;

    // False: next_transmit() would find nothing now, unless a timer is due. Who does not know says true.
    virtual bool may_transmit(uint64_t /*now_ns*/) const { return true; }

    // When on_timer() is to be called at the latest; kNoTimer: not until something else happens. Changes
    // with every other call. A time that stays in the past after on_timer() means that next_transmit() has
    // something.
    virtual uint64_t next_timer_ns() const = 0;
    virtual void on_timer(uint64_t now_ns) = 0;
};

}  // namespace tiffin::rdma_blk::sdr
