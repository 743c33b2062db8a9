// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where in the receiver's memory a packet is written to: an arena has a slot for each message id, a slot has a cell for
// each packet of the longest message, and behind them cells for its parity. There are two arenas, and messages whose
// numbers divided by the maximum of messages (their generation) are even land in the first: receives that are posted at
// the same time are of two generations at most, so the arena of a new one has always been left by the one before the
// last.
#pragma once

#include <cstdint>

#include "fs/vfs/result.h"
#include "rdma_blk/sdr/sdr.h"
#include "rdma_blk/sdr/uc/uc_format.h"

namespace tiffin::rdma_blk::sdr {

// Both arenas of a connection together have at most this size: the device keeps all of it in memory.
inline constexpr uint64_t kMaxUcLandingBytes = uint64_t{4} << 30;

struct LandingLayout {
    uint32_t packet_bytes = 0;
    uint32_t max_messages = 1;
    uint32_t data_packets = 0;    // of a message
    uint32_t parity_packets = 0;  // of a message

    uint64_t slot_bytes() const { return (uint64_t{data_packets} + parity_packets) * packet_bytes; }
    uint64_t arena_bytes() const { return slot_bytes() * max_messages; }
    uint64_t generation(uint64_t message_number) const { return message_number / max_messages; }
    uint16_t message_id(uint64_t message_number) const {
        return static_cast<uint16_t>(message_number % max_messages);
    }
    bool has_cells(bool is_parity, uint64_t first_packet, uint64_t packet_count) const {
        return first_packet + packet_count <= (is_parity ? parity_packets : data_packets);
    }
    // In the arena of its generation. Precondition: has_cells().
    uint64_t offset_bytes(uint16_t message_id, bool is_parity, uint32_t packet) const {
        const uint64_t cell = uint64_t{is_parity ? data_packets : 0} + packet;
        return message_id * slot_bytes() + cell * packet_bytes;
    }

    bool operator==(const LandingLayout&) const = default;
};

// With room for the parity of messages that `scheme` protects (none: no parity comes). Errors: e2big (more packets than an
// immediate can name, or more memory than kMaxUcLandingBytes).
inline Result<LandingLayout> landing_layout(const QueuePairAttributes& attributes,
                                            const SchemeChoice& scheme) {
    LandingLayout layout;
    layout.packet_bytes = attributes.packet_bytes;
    layout.max_messages = attributes.max_messages;
    layout.data_packets = attributes.packets_of(attributes.max_message_bytes);
    uint64_t parity_packets = 0;
    if (scheme.is_erasure() && scheme.data_chunks > 0) {
        const uint64_t chunks = attributes.chunks_of(attributes.max_message_bytes);
        const uint64_t groups = (chunks + scheme.data_chunks - 1) / scheme.data_chunks;
        parity_packets = groups * scheme.parity_chunks * attributes.packets_per_chunk();
    }
    if (layout.data_packets > kMaxUcPackets || parity_packets > kMaxUcPackets ||
        layout.max_messages > kMaxUcMessages) {
        return Error::e2big;
    }
    layout.parity_packets = static_cast<uint32_t>(parity_packets);
    if (layout.arena_bytes() > kMaxUcLandingBytes / kUcArenas) {
        return Error::e2big;
    }
    return layout;
}

}  // namespace tiffin::rdma_blk::sdr
