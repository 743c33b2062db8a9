// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading and building SDR packets. What the parse functions return has been checked as far as bytes alone
// can be: kinds and flags are known, counts agree with sizes, ranges ascend and do not overflow. No state, no
// allocation; any thread. Every error is eproto. These are what a fuzzer calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/sdr/endpoint.h"
#include "rdma_blk/sdr/packet_format.h"

namespace tiffin::rdma_blk::sdr {

// A data or parity packet behind its datagram header, as a run of one; its payload points into `bytes`.
Result<DataRun> parse_data(PacketKind kind, ByteSpan bytes);
// The header alone, where the payload goes another way.
Result<DataRun> parse_data_header(PacketKind kind, ByteSpan bytes);
// The header of packet `index` of a run. Precondition: index < run.packet_count.
DataHeader make_data_header(const DataRun& run, uint32_t index);

// A control message whose header and counts have been checked; points into the parsed bytes.
struct ControlView {
    ControlKind kind = ControlKind::user;
    uint8_t flags = 0;
    uint16_t entry_count = 0;
    uint64_t message_number = 0;
    uint32_t missed_runs = 0;                // acknowledgement
    AcknowledgementBody acknowledgement{};   // acknowledgement
    const unsigned char* entries = nullptr;  // not aligned

    ClearToSendEntry clear_to_send_entry(size_t index) const;
    GapEntry gap(size_t index) const;
};
Result<ControlView> parse_control(ByteSpan bytes);

// Each writes a message to out.control and sets its size. Preconditions: counts within the format's bounds.
void make_control(ControlKind kind, uint8_t flags, uint64_t message_number, Transmit& out);
void make_user_control(ByteSpan message, Transmit& out);
// Appends an entry to what make_control() began; false when it is full.
bool add_clear_to_send(const ClearToSendEntry& entry, Transmit& out);
void make_acknowledgement(uint8_t flags, uint64_t message_number, const AcknowledgementBody& body,
                          uint32_t missed_runs, Transmit& out);
bool add_gap(const GapEntry& gap, Transmit& out);

}  // namespace tiffin::rdma_blk::sdr
