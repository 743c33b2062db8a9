// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reading and building messages. What these functions return has been checked as far as bytes alone can
// be: types, flags and enumerations are known, counts within their bounds, sizes agree with each other,
// sums do not overflow, texts end. What only a session can know (is this slot mine, does the range lie in
// the volume) is left to it.
//
// A receiver of a stream goes like this:
//     header = TRY(parse_header(16 bytes));
//     read (and open, when sealed) fixed_part_bytes(header) bytes;
//     request = TRY(parse_request(header, fixed part));
//     read payload_bytes(header) bytes to where the request says.
//
// Every error is eproto: the peer is broken or hostile, and the connection ends. No allocation, no state;
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk::wire {

// The largest fixed part of any message: room for receivers.
inline constexpr size_t kMaxFixedPartBytes = 168;

// Checks a header by itself; its checksum is checked with the fixed part. `bytes` holds at least 16.
Result<MessageHeader> parse_header(ByteSpan bytes);

// Sizes of a message whose header has been parsed. Body = fixed part and payload, without tags.
size_t fixed_part_bytes(const MessageHeader& header);
size_t payload_bytes(const MessageHeader& header);
inline bool is_sealed(const MessageHeader& header) {
    return (header.flags & message_flag::sealed) != 0;
}
// What a body of `plain_bytes` takes when it is sealed.
constexpr uint64_t sealed_bytes(uint64_t plain_bytes) {
    return plain_bytes + (plain_bytes + kSealedChunkBytes - 1) / kSealedChunkBytes * kSealTagBytes;
}

// Messages by type; `fixed` holds at least fixed_part_bytes(header).
Result<ClientHello> parse_client_hello(const MessageHeader& header, ByteSpan fixed);
Result<HelloRetry> parse_hello_retry(const MessageHeader& header, ByteSpan fixed);
Result<ServerHello> parse_server_hello(const MessageHeader& header, ByteSpan fixed);
Result<ClientProof> parse_client_proof(const MessageHeader& header, ByteSpan fixed);
Result<SessionOpen> parse_session_open(const MessageHeader& header, ByteSpan fixed);
Result<SessionOpened> parse_session_opened(const MessageHeader& header, ByteSpan fixed);
Result<SessionRefused> parse_session_refused(const MessageHeader& header, ByteSpan fixed);
Result<PathJoin> parse_path_join(const MessageHeader& header, ByteSpan fixed);
Result<PathJoined> parse_path_joined(const MessageHeader& header, ByteSpan fixed);
// The parameters of a path_join for tcp: its payload.
Result<PathProof> parse_path_proof(ByteSpan payload);
Result<PathRecover> parse_path_recover(const MessageHeader& header, ByteSpan fixed);
Result<PathRecovered> parse_path_recovered(const MessageHeader& header, ByteSpan fixed);
// The parameters of a path_joined for shm: its payload.
Result<ShmParameters> parse_shm_parameters(ByteSpan payload);
Result<LeaseRequest> parse_lease_request(const MessageHeader& header, ByteSpan fixed);
Result<LeaseReply> parse_lease_reply(const MessageHeader& header, ByteSpan fixed);
Result<SessionClose> parse_session_close(const MessageHeader& header,
                                         ByteSpan fixed);                // and _closed
Result<Probe> parse_probe(const MessageHeader& header, ByteSpan fixed);  // and _reply
Result<Notice> parse_notice(const MessageHeader& header, ByteSpan fixed);
Result<Request> parse_request(const MessageHeader& header, ByteSpan fixed);
Result<Response> parse_response(const MessageHeader& header, ByteSpan fixed);

// Payloads. Entry `index` of the payload of a session_open; sequences must ascend, which a reader checks
// by passing the one before (0 at first). Precondition: 16 * (index + 1) <= payload.size().
Result<OutstandingEntry> parse_outstanding_entry(ByteSpan payload, size_t index,
                                                 uint64_t previous_sequence);
// Entry `index` of the payload of a session_opened. Precondition: index < payload.size().
Result<uint8_t> parse_outcome(ByteSpan payload, size_t index);
// The same of a path_recovered.
Result<uint8_t> parse_recovered_outcome(ByteSpan payload, size_t index);
// Range `index` of a flush. Precondition as above.
Result<FlushRange> parse_flush_range(ByteSpan payload, size_t index);
// Parameters of paths, in whole. Windows are in the order of their kinds; that of the data is there.
Result<RcPathOffer> parse_rc_path_offer(ByteSpan payload);
Result<RcPathAnswer> parse_rc_path_answer(ByteSpan payload);
// Whether its numbers are those of its scheme (format.h).
bool is_repair(const SdrRepair& repair);
Result<DatagramPathEnd> parse_datagram_path_end(ByteSpan payload);
Result<UcPathEnd> parse_uc_path_end(ByteSpan payload);

// The header of a message that is about to be sent. `fixed` is the fixed part before sealing; preconditions:
// it has the type's size, and payload_size_bytes is within the type's bound.
MessageHeader make_header(MessageType type, uint16_t flags, ByteSpan fixed,
                          size_t payload_size_bytes);

// Writes header and fixed part to `out`, which has room for them; returns their size in bytes.
template <typename T>
size_t encode(MessageType type, uint16_t flags, const T& fixed, size_t payload_size_bytes,
              unsigned char* out) {
    const ByteSpan bytes(reinterpret_cast<const unsigned char*>(&fixed), sizeof(T));
    const MessageHeader header = make_header(type, flags, bytes, payload_size_bytes);
    std::memcpy(out, &header, sizeof(header));
    std::memcpy(out + sizeof(header), &fixed, sizeof(T));
    return sizeof(header) + sizeof(T);
}

}  // namespace tiffin::rdma_blk::wire
