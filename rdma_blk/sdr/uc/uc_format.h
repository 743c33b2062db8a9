// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The bytes of the carrier on Unreliable Connected queue pairs (rdma_blk/transport/uc), and nothing else; docs/sdr.md
// has them as tables and says why.
//
// The bytes of data and parity are written into the peer's memory by RDMA WRITE WITH IMMEDIATE, one packet each. What a
// packet is says the immediate, 32 bits (arXiv:2505.05366, section 3.2.2): which message, and which of its packets.
// What a message is says its description, a UcHeader and a DataHeader, which goes with each run of packets over a queue
// pair of its own, with send and receive; control messages and feedback go there, too.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rdma_blk/sdr/packet_format.h"

namespace tiffin::rdma_blk::sdr {

inline constexpr uint8_t kUcVersion = 1;

// ---- The immediate ---------------------------------------------------------------------------------------

// The paper's division: 10 bits, 18 bits, and 4 that it gives to a part of the user immediate, which is whole in the
// description here.
inline constexpr unsigned kUcMessageBits = 10;
inline constexpr unsigned kUcPacketBits = 18;
inline constexpr unsigned kUcGenerationBits = 2;
inline constexpr unsigned kUcKindBits = 1;
inline constexpr unsigned kUcFlagBits = 1;
static_assert(kUcMessageBits + kUcPacketBits + kUcGenerationBits + kUcKindBits + kUcFlagBits == 32);

inline constexpr uint32_t kMaxUcMessages = 1U << kUcMessageBits;
inline constexpr uint32_t kMaxUcPackets = 1U << kUcPacketBits;  // of a message, and of its parity

struct UcImmediate {
    uint16_t message_id = 0;  // message number modulo maximum of messages
    uint32_t packet = 0;      // data: place in the message; parity: as DataHeader::packet_index
    uint8_t generation = 0;   // message number / maximum of messages, modulo 4
    bool is_parity = false;
    bool acknowledge_now = false;

    bool operator==(const UcImmediate&) const = default;
};

// Preconditions: numbers within their bits.
constexpr uint32_t encode_immediate(const UcImmediate& immediate) {
    return uint32_t{immediate.message_id} << (32 - kUcMessageBits) |
           immediate.packet << (kUcGenerationBits + kUcKindBits + kUcFlagBits) |
           uint32_t{immediate.generation} << (kUcKindBits + kUcFlagBits) |
           uint32_t{immediate.is_parity} << kUcFlagBits | uint32_t{immediate.acknowledge_now};
}

constexpr UcImmediate decode_immediate(uint32_t bits) {
    UcImmediate immediate;
    immediate.message_id = static_cast<uint16_t>(bits >> (32 - kUcMessageBits));
    immediate.packet =
        bits >> (kUcGenerationBits + kUcKindBits + kUcFlagBits) & (kMaxUcPackets - 1);
    immediate.generation =
        static_cast<uint8_t>(bits >> (kUcKindBits + kUcFlagBits) & ((1U << kUcGenerationBits) - 1));
    immediate.is_parity = (bits >> kUcFlagBits & 1) != 0;
    immediate.acknowledge_now = (bits & 1) != 0;
    return immediate;
}

// ---- Datagrams of the control queue pair -------------------------------------------------------------------

// The memory that a generation's packets may be written to, as long as its window is open.
struct UcWindow {
    uint32_t generation;  // modulo 2^32
    uint32_t key;         // 0: not open
};
static_assert(sizeof(UcWindow) == 8);

// A message's packets lie in one of two places in the peer's memory, by its generation: those of two are open at most.
inline constexpr uint32_t kUcArenas = 2;

// In front of every datagram. PacketKind data and parity: DataHeader follows, of a run that is written; control: a control
// message; feedback: FeedbackHeader.
struct UcHeader {
    uint32_t connection_id;  // chosen by the receiver of the datagram
    uint8_t version;         // kUcVersion
    uint8_t kind;            // PacketKind
    uint16_t packet_count;   // data and parity: of the run, at least 1
    // Of this datagram; the run's packets have the numbers behind it. What feedback tells of. Feedback has none (0).
    uint64_t packet_number;
    UcWindow windows[kUcArenas];  // into which the sender of this can be written to
    uint64_t tag;                 // of all before, and of the CRC32C of what is behind (uc_tag.h)
};
static_assert(sizeof(UcHeader) == 40);

inline constexpr size_t kUcKeyBytes = 16;  // of tags

inline constexpr size_t kMaxUcDatagramBytes = sizeof(UcHeader) + kMaxControlBytes;
static_assert(sizeof(UcHeader) + sizeof(DataHeader) <= kMaxUcDatagramBytes);
static_assert(sizeof(UcHeader) + sizeof(FeedbackHeader) <= kMaxUcDatagramBytes);

}  // namespace tiffin::rdma_blk::sdr
