// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The bytes of SDR datagrams, and nothing else. docs/sdr.md has them as tables and says why;
// rdma_blk/sdr/packet.h reads and builds them.
//
// All integers are little-endian. A datagram is a DatagramHeader, the header that its kind decides, and a
// payload: the packet's part of a message (data), of a parity chunk (parity), or entries (control kinds).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tiffin::rdma_blk::sdr {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

inline constexpr uint8_t kPacketVersion = 1;

// What a datagram holds behind its header.
enum class PacketKind : uint8_t {
    data = 1,      // DataHeader, bytes of the message
    parity = 2,    // DataHeader, bytes of a parity chunk
    control = 3,   // one of the control messages below
    feedback = 4,  // FeedbackHeader; of the carrier, for congestion control
    probe = 5,     // ProbeHeader, padding: does a datagram of this size arrive?
    probe_reply = 6,
};

// Set in the channel of feedback, which has packet numbers of its own.
inline constexpr uint16_t kFeedbackChannel = 0x8000;

// In front of every datagram of the UDP carrier.
struct DatagramHeader {
    uint32_t connection_id;  // chosen by the receiver of the datagram
    uint8_t version;         // kPacketVersion
    uint8_t kind;            // PacketKind
    uint16_t channel;
    uint64_t packet_number;  // of this direction and channel: 0, 1, ...; never used twice
    uint64_t tag;            // SipHash-2-4 of all before it and the CRC32C of all behind it
};
static_assert(sizeof(DatagramHeader) == 24);

// How a message is protected; what a receiver needs to know to acknowledge and repair it.
enum class SchemeKind : uint8_t {
    none = 0,                   // nothing is repaired: the application looks at the bitmap
    selective_repeat = 1,       // acknowledgements; the sender repeats what its timer says is lost
    selective_repeat_nack = 2,  // the receiver asks for what is missing
    erasure_xor = 3,  // k data, m parity chunks; parity i covers the chunks j with j mod m = i
    erasure_mds = 4,  // k data, m parity chunks; any k of them give the data
};

namespace data_flag {
// The sender wants to hear at once what has arrived of this message.
inline constexpr uint8_t acknowledge_now = 1;
// delivered_until and posted_until of the header mean something.
inline constexpr uint8_t tells_delivered = 2;
inline constexpr uint8_t tells_posted = 4;
inline constexpr uint8_t all = acknowledge_now | tells_delivered | tells_posted;
}  // namespace data_flag

struct DataHeader {
    uint64_t message_number;  // generation * maximum of messages + message id
    uint64_t message_bytes;   // of the whole message; at least 1
    uint32_t
        packet_index;  // data: its place in the message. Parity: group * m * packets of a chunk + ...
    uint32_t user_immediate;  // whole in every packet
    uint32_t send_time_us;    // of the sender's clock, modulo 2^32; comes back in acknowledgements
    uint32_t round_trip_us;   // measured by the sender, plus four times its variation; 0: not yet
    uint8_t scheme;           // SchemeKind
    uint8_t data_chunks;      // k of an erasure code, else 0
    uint8_t parity_chunks;    // m of an erasure code, else 0
    uint8_t flags;            // data_flag
    // What the sender of this packet has received, modulo 2^16: all messages before this have been delivered; receives
    // before this are posted, each with the capacity of the clear-to-send that came last.
    uint16_t delivered_until;
    uint16_t posted_until;
};
static_assert(sizeof(DataHeader) == 40);

// ---- Control messages: what the paper's out-of-band path carries ----------------------------------

// Never larger than this, so that they pass every path (IPv6's 1280 bytes less all headers).
inline constexpr size_t kMaxControlBytes = 1184;

enum class ControlKind : uint8_t {
    clear_to_send = 1,          // ControlHeader, ClearToSendEntry * entry_count
    clear_to_send_request = 2,  // ControlHeader: from which message on the sender wants to know
    acknowledgement = 3,        // ControlHeader, AcknowledgementBody, GapEntry * entry_count
    repeat_request = 4,         // ControlHeader, GapEntry * entry_count: chunks to send again, now
    user = 5,                   // ControlHeader, bytes of a scheme outside of this library
    error = 6,                  // ControlHeader: the sender of this has given up the connection
};

struct ControlHeader {
    uint8_t kind;  // ControlKind
    uint8_t flags;
    uint16_t entry_count;  // user: bytes
    // Acknowledgement: in how many runs of neighbours missed_chunks were; 0: not counted. Else 0.
    uint32_t missed_runs;
    // The message that it is about. clear_to_send: that of the first entry; the others follow it.
    uint64_t message_number;
};
static_assert(sizeof(ControlHeader) == 16);

struct ClearToSendEntry {
    uint64_t capacity_bytes;  // of the posted receive; 0: already completed
};
static_assert(sizeof(ClearToSendEntry) == 8);

namespace acknowledgement_flag {
inline constexpr uint8_t done = 1;  // all bytes are in their place, and the receive is closed
inline constexpr uint8_t discarded =
    2;  // the receiver gave this message up: it will never be delivered
inline constexpr uint8_t all = done | discarded;
}  // namespace acknowledgement_flag

// Chunks [0, cumulative) have arrived; so have those of [window_begin, window_end) that no gap names.
struct AcknowledgementBody {
    uint32_t cumulative;
    uint32_t window_begin;
    uint32_t window_end;
    uint32_t echo_time_us;   // send_time_us of the packet that arrived last
    uint32_t echo_delay_us;  // how long ago that was
    uint32_t missed_chunks;  // how many had to be decoded or asked for, up to now
};
static_assert(sizeof(AcknowledgementBody) == 24);

struct GapEntry {
    uint32_t first_chunk;
    uint32_t chunk_count;  // at least 1; gaps ascend and do not touch
};
static_assert(sizeof(GapEntry) == 8);

inline constexpr size_t kMaxGaps =
    (kMaxControlBytes - sizeof(ControlHeader) - sizeof(AcknowledgementBody)) / sizeof(GapEntry);
inline constexpr size_t kMaxClearToSendEntries =
    (kMaxControlBytes - sizeof(ControlHeader)) / sizeof(ClearToSendEntry);
inline constexpr size_t kMaxUserControlBytes = kMaxControlBytes - sizeof(ControlHeader);

// ---- Of the carrier -----------------------------------------------------------------------------------

// What has arrived on one channel, in sums: a lost feedback loses nothing.
struct FeedbackHeader {
    uint64_t highest_packet_number;
    uint64_t packets_received;  // each once
    uint64_t bytes_received;
    uint32_t delay_us;  // since highest_packet_number arrived
    uint32_t reserved;
};
static_assert(sizeof(FeedbackHeader) == 32);

struct ProbeHeader {
    uint32_t datagram_bytes;  // with all headers of this format
    uint32_t probe_number;
};
static_assert(sizeof(ProbeHeader) == 8);

}  // namespace tiffin::rdma_blk::sdr
