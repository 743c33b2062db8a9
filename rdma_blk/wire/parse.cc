// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/wire/parse.h"

#include <algorithm>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/message_sizes.h"

namespace tiffin::rdma_blk::wire {
namespace {

// The size before sealing of a body that has `sealed` bytes with its tags; 0 when no body has.
uint64_t opened_bytes(uint64_t sealed) {
    constexpr uint64_t kWholeChunk = kSealedChunkBytes + kSealTagBytes;
    const uint64_t rest = sealed % kWholeChunk;
    if (rest != 0 && rest <= kSealTagBytes) {
        return 0;
    }
    return sealed / kWholeChunk * kSealedChunkBytes + (rest == 0 ? 0 : rest - kSealTagBytes);
}

uint64_t body_bytes(const MessageHeader& header) {
    return is_sealed(header) ? opened_bytes(header.body_bytes) : header.body_bytes;
}

// What is sealed has better protection, and a checksum in the open would tell about it.
uint32_t message_checksum(MessageHeader header, ByteSpan fixed) {
    header.checksum = 0;
    const uint32_t checksum = host::crc32c(0, &header, sizeof(header));
    return is_sealed(header) ? checksum : host::crc32c(checksum, fixed.data(), fixed.size());
}

}  // namespace

Result<MessageHeader> parse_header(ByteSpan bytes) {
    MessageHeader header;
    if (bytes.size() < sizeof(header)) {
        return Error::eproto;
    }
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.magic != kMessageMagic || header.version != kHeaderVersion ||
        (header.flags & ~message_flag::all) != 0) {
        return Error::eproto;
    }
    const MessageSizes sizes = message_sizes(header.type);
    if (sizes.fixed_bytes == 0 || (is_sealed(header) && sizes.sealing == Sealing::never) ||
        (!is_sealed(header) && sizes.sealing == Sealing::always)) {
        return Error::eproto;
    }
    const uint64_t body = body_bytes(header);
    if (body < sizes.fixed_bytes || body > sizes.fixed_bytes + sizes.max_payload_bytes) {
        return Error::eproto;
    }
    return header;
}

size_t fixed_part_bytes(const MessageHeader& header) {
    return message_sizes(header.type).fixed_bytes;
}

size_t payload_bytes(const MessageHeader& header) {
    return body_bytes(header) - message_sizes(header.type).fixed_bytes;
}

MessageHeader make_header(MessageType type, uint16_t flags, ByteSpan fixed,
                          size_t payload_size_bytes) {
    const MessageSizes sizes = message_sizes(static_cast<uint8_t>(type));
    TIFFIN_ASSERT(fixed.size() == sizes.fixed_bytes);
    TIFFIN_ASSERT(payload_size_bytes <= sizes.max_payload_bytes);
    if (sizes.sealing == Sealing::always) {
        flags |= message_flag::sealed;
    }
    const uint64_t body = fixed.size() + payload_size_bytes;
    MessageHeader header{};
    header.magic = kMessageMagic;
    header.version = kHeaderVersion;
    header.type = static_cast<uint8_t>(type);
    header.flags = flags;
    header.body_bytes =
        static_cast<uint32_t>((flags & message_flag::sealed) != 0 ? sealed_bytes(body) : body);
    header.checksum = message_checksum(header, fixed);
    return header;
}

namespace {

// Copies the fixed part out, when `header` is of that type and the checksum is right.
template <typename T>
Result<T> fixed_part(MessageType type, const MessageHeader& header, ByteSpan fixed) {
    if (header.type != static_cast<uint8_t>(type) || fixed.size() < sizeof(T) ||
        header.checksum != message_checksum(header, fixed.first(sizeof(T)))) {
        return Error::eproto;
    }
    T message;
    std::memcpy(&message, fixed.data(), sizeof(T));
    return message;
}

template <size_t N>
bool ends(const char (&text)[N]) {
    return std::memchr(text, 0, N) != nullptr;
}

bool is_reason(uint8_t reason) {
    return reason <= static_cast<uint8_t>(RefusalReason::no_transport);
}

bool is_operation(uint8_t operation) { return operation >= 1 && operation <= 5; }

bool is_counter(uint64_t value) { return value < kCounterLimit; }

// A range of an address space: neither end nor sum may be beyond what a space can have.
bool is_range(uint64_t offset_bytes, uint64_t length_bytes) {
    return offset_bytes <= kMaxSpaceBytes && length_bytes <= kMaxSpaceBytes - offset_bytes;
}

bool is_power_of_two(uint32_t value) { return value != 0 && (value & (value - 1)) == 0; }

bool is_request_shape(const Request& request, size_t payload) {
    constexpr uint8_t kRead = 1;
    constexpr uint8_t kWrite = 2;
    constexpr uint8_t kFlush = 5;
    const bool reply_only = (request.flags & request_flag::reply_only) != 0;
    const bool carries =
        !reply_only && (request.operation == kWrite || request.operation == kFlush);
    if (payload != (carries ? request.length_bytes : 0)) {
        return false;
    }
    switch (request.operation) {
        case kRead:
        case kWrite:
            return request.length_bytes <= kMaxTransferBytes;
        case kFlush:
            return request.length_bytes % sizeof(FlushRange) == 0 &&
                   request.length_bytes <= kMaxFlushRanges * sizeof(FlushRange);
        default:
            return request.length_bytes == 8 && request.offset_bytes % 8 == 0;
    }
}

}  // namespace

Result<ClientHello> parse_client_hello(const MessageHeader& header, ByteSpan fixed) {
    const ClientHello hello =
        TRY(fixed_part<ClientHello>(MessageType::client_hello, header, fixed));
    if (!ends(hello.volume_name) || hello.lowest_version > hello.highest_version ||
        (hello.flags & ~hello_flag::all) != 0) {
        return Error::eproto;
    }
    return hello;
}

Result<HelloRetry> parse_hello_retry(const MessageHeader& header, ByteSpan fixed) {
    return fixed_part<HelloRetry>(MessageType::hello_retry, header, fixed);
}

Result<ServerHello> parse_server_hello(const MessageHeader& header, ByteSpan fixed) {
    const ServerHello hello =
        TRY(fixed_part<ServerHello>(MessageType::server_hello, header, fixed));
    if ((hello.flags & ~hello_flag::all) != 0) {
        return Error::eproto;
    }
    return hello;
}

Result<ClientProof> parse_client_proof(const MessageHeader& header, ByteSpan fixed) {
    return fixed_part<ClientProof>(MessageType::client_proof, header, fixed);
}

Result<SessionOpen> parse_session_open(const MessageHeader& header, ByteSpan fixed) {
    const SessionOpen open = TRY(fixed_part<SessionOpen>(MessageType::session_open, header, fixed));
    const bool is_new = open.session_id == 0;
    if (open.mode > static_cast<uint8_t>(SessionMode::read_steady) ||
        (open.flags & ~open_flag::all) != 0 || open.slot_count == 0 ||
        open.slot_count > kMaxSlots || open.outstanding_count > open.slot_count ||
        payload_bytes(header) != open.outstanding_count * sizeof(OutstandingEntry) ||
        !ends(open.holder_text) || open.incarnation == 0 || !is_counter(open.epoch) ||
        open.next_sequence == 0 || !is_counter(open.next_sequence)) {
        return Error::eproto;
    }
    if (is_new && (open.outstanding_count != 0 || open.next_sequence != 1)) {
        return Error::eproto;
    }
    return open;
}

Result<SessionOpened> parse_session_opened(const MessageHeader& header, ByteSpan fixed) {
    const SessionOpened opened =
        TRY(fixed_part<SessionOpened>(MessageType::session_opened, header, fixed));
    if (opened.outstanding_count > kMaxSlots || opened.slot_count == 0 ||
        opened.slot_count > kMaxSlots || payload_bytes(header) != opened.outstanding_count ||
        opened.session_id == 0 || opened.incarnation == 0 || !is_counter(opened.epoch) ||
        !is_counter(opened.content_incarnation) ||
        opened.empty_since_incarnation > opened.content_incarnation) {
        return Error::eproto;
    }
    if (opened.data_bytes == 0 || opened.data_bytes > kMaxSpaceBytes ||
        opened.control_bytes > kMaxSpaceBytes || opened.transfer_bytes < kEagerBytes ||
        opened.transfer_bytes > kMaxTransferBytes || opened.eager_bytes > opened.transfer_bytes ||
        !is_power_of_two(opened.write_unit_bytes) || opened.write_unit_bytes > 4096 ||
        opened.durability > 1 || opened.atomics_executor != 0 ||
        (opened.flags & ~session_flag::all) != 0) {
        return Error::eproto;
    }
    return opened;
}

Result<SessionRefused> parse_session_refused(const MessageHeader& header, ByteSpan fixed) {
    const SessionRefused refused =
        TRY(fixed_part<SessionRefused>(MessageType::session_refused, header, fixed));
    if (refused.reason == 0 || !is_reason(refused.reason) || !ends(refused.holder_text) ||
        !is_counter(refused.epoch) || !is_counter(refused.content_incarnation) ||
        refused.empty_since_incarnation > refused.content_incarnation) {
        return Error::eproto;
    }
    return refused;
}

Result<PathJoin> parse_path_join(const MessageHeader& header, ByteSpan fixed) {
    const PathJoin join = TRY(fixed_part<PathJoin>(MessageType::path_join, header, fixed));
    if (join.transport == 0 || join.transport > static_cast<uint8_t>(PathTransport::uc) ||
        join.session_id == 0 || join.parameter_bytes != payload_bytes(header)) {
        return Error::eproto;
    }
    return join;
}

Result<PathJoined> parse_path_joined(const MessageHeader& header, ByteSpan fixed) {
    const PathJoined joined = TRY(fixed_part<PathJoined>(MessageType::path_joined, header, fixed));
    if (!is_reason(joined.reason) || joined.parameter_bytes != payload_bytes(header)) {
        return Error::eproto;
    }
    return joined;
}

Result<PathProof> parse_path_proof(ByteSpan payload) {
    PathProof proof{};
    if (payload.size() != sizeof(proof)) {
        return Error::eproto;
    }
    std::memcpy(&proof, payload.data(), sizeof(proof));
    return proof;
}

Result<PathRecover> parse_path_recover(const MessageHeader& header, ByteSpan fixed) {
    const PathRecover recover =
        TRY(fixed_part<PathRecover>(MessageType::path_recover, header, fixed));
    if (recover.session_id == 0 || (recover.flags & ~recover_flag::all) != 0 ||
        recover.outstanding_count > kMaxSlots ||
        payload_bytes(header) != recover.outstanding_count * sizeof(OutstandingEntry)) {
        return Error::eproto;
    }
    return recover;
}

Result<PathRecovered> parse_path_recovered(const MessageHeader& header, ByteSpan fixed) {
    const PathRecovered recovered =
        TRY(fixed_part<PathRecovered>(MessageType::path_recovered, header, fixed));
    if (!is_reason(recovered.reason) || recovered.outstanding_count > kMaxSlots ||
        payload_bytes(header) != recovered.outstanding_count) {
        return Error::eproto;
    }
    return recovered;
}

Result<uint8_t> parse_recovered_outcome(ByteSpan payload, size_t index) {
    TIFFIN_ASSERT(index < payload.size());
    constexpr uint8_t kPending = 0;
    constexpr uint8_t kNotExecuted = 2;
    const uint8_t outcome = payload[index];
    if (outcome != kPending && outcome != kNotExecuted) {
        return Error::eproto;
    }
    return outcome;
}

Result<ShmParameters> parse_shm_parameters(ByteSpan payload) {
    ShmParameters parameters{};
    if (payload.size() != sizeof(parameters)) {
        return Error::eproto;
    }
    std::memcpy(&parameters, payload.data(), sizeof(parameters));
    if (parameters.data_bytes == 0 || parameters.data_bytes > kMaxSpaceBytes ||
        parameters.control_bytes == 0 || parameters.control_bytes > kMaxSpaceBytes ||
        parameters.is_writable > 1) {
        return Error::eproto;
    }
    return parameters;
}

Result<LeaseRequest> parse_lease_request(const MessageHeader& header, ByteSpan fixed) {
    const LeaseRequest request =
        TRY(fixed_part<LeaseRequest>(MessageType::lease_request, header, fixed));
    if ((request.flags & ~open_flag::all) != 0) {
        return Error::eproto;
    }
    return request;
}

Result<LeaseReply> parse_lease_reply(const MessageHeader& header, ByteSpan fixed) {
    const LeaseReply reply = TRY(fixed_part<LeaseReply>(MessageType::lease_reply, header, fixed));
    if (!is_reason(reply.reason) || (reply.flags & ~lease_flag::all) != 0 ||
        !ends(reply.holder_text) || !is_counter(reply.epoch)) {
        return Error::eproto;
    }
    return reply;
}

Result<SessionClose> parse_session_close(const MessageHeader& header, ByteSpan fixed) {
    const auto type = static_cast<MessageType>(header.type);
    const SessionClose close = TRY(fixed_part<SessionClose>(
        type == MessageType::session_closed ? type : MessageType::session_close, header, fixed));
    if ((close.flags & ~close_flag::all) != 0) {
        return Error::eproto;
    }
    return close;
}

Result<Probe> parse_probe(const MessageHeader& header, ByteSpan fixed) {
    const auto type = static_cast<MessageType>(header.type);
    return fixed_part<Probe>(type == MessageType::probe_reply ? type : MessageType::probe, header,
                             fixed);
}

Result<Notice> parse_notice(const MessageHeader& header, ByteSpan fixed) {
    const Notice notice = TRY(fixed_part<Notice>(MessageType::notice, header, fixed));
    if (notice.reason == 0 || notice.reason > static_cast<uint8_t>(NoticeReason::deleted) ||
        notice.data_bytes > kMaxSpaceBytes || !is_counter(notice.epoch)) {
        return Error::eproto;
    }
    return notice;
}

Result<Request> parse_request(const MessageHeader& header, ByteSpan fixed) {
    const Request request = TRY(fixed_part<Request>(MessageType::request, header, fixed));
    if (!is_operation(request.operation) || request.space > 1 ||
        (request.flags & ~request_flag::all) != 0 || request.sequence == 0 ||
        !is_counter(request.sequence) || request.after >= request.sequence ||
        request.pending_since > request.sequence ||
        !is_range(request.offset_bytes, request.length_bytes) ||
        !is_request_shape(request, payload_bytes(header))) {
        return Error::eproto;
    }
    return request;
}

Result<Response> parse_response(const MessageHeader& header, ByteSpan fixed) {
    const Response response = TRY(fixed_part<Response>(MessageType::response, header, fixed));
    const bool executed = response.outcome == 1;
    if (!is_operation(response.operation) || response.outcome == 0 || response.outcome > 3 ||
        (response.flags & ~response_flag::all) != 0 || executed != (response.error == 0) ||
        response.payload_bytes != payload_bytes(header) ||
        (response.payload_bytes != 0 && (!executed || response.operation != 1))) {
        return Error::eproto;
    }
    return response;
}

Result<OutstandingEntry> parse_outstanding_entry(ByteSpan payload, size_t index,
                                                 uint64_t previous_sequence) {
    OutstandingEntry entry;
    TIFFIN_ASSERT((index + 1) * sizeof(entry) <= payload.size());
    std::memcpy(&entry, payload.data() + index * sizeof(entry), sizeof(entry));
    if (!is_operation(entry.operation) || entry.slot >= kMaxSlots ||
        entry.sequence <= previous_sequence || !is_counter(entry.sequence)) {
        return Error::eproto;
    }
    return entry;
}

Result<uint8_t> parse_outcome(ByteSpan payload, size_t index) {
    TIFFIN_ASSERT(index < payload.size());
    const uint8_t outcome = payload[index];
    if (outcome == 0 || outcome > 3) {
        return Error::eproto;
    }
    return outcome;
}

Result<FlushRange> parse_flush_range(ByteSpan payload, size_t index) {
    FlushRange range;
    TIFFIN_ASSERT((index + 1) * sizeof(range) <= payload.size());
    std::memcpy(&range, payload.data() + index * sizeof(range), sizeof(range));
    if (!is_range(range.offset_bytes, range.length_bytes)) {
        return Error::eproto;
    }
    return range;
}

bool is_repair(const SdrRepair& repair) {
    if (!is_erasure_code(static_cast<SdrScheme>(repair.scheme))) {
        return repair.scheme <= static_cast<uint8_t>(SdrScheme::erasure_mds) &&
               repair.data_chunks == 0 && repair.parity_chunks == 0;
    }
    return repair.data_chunks <= kMaxSdrDataChunks && repair.parity_chunks >= 1 &&
           repair.parity_chunks <= std::min(repair.data_chunks, kMaxSdrParityChunks);
}

namespace {

bool is_queue_pair(const QueuePairAddress& address) {
    constexpr uint32_t kLimit = 1U << 24;
    return address.queue_pair < kLimit && address.first_packet < kLimit && address.mtu >= 1 &&
           address.mtu <= 5 && address.read_depth >= 1;
}

bool is_window(const RcWindow& window, size_t index) {
    if (window.kind == static_cast<uint8_t>(WindowKind::none)) {
        return index == 2;  // the words, which a reader may not write
    }
    return window.kind == index + 1 && window.writes <= 1 && window.length_bytes > 0 &&
           is_range(window.offset_bytes, window.length_bytes) &&
           window.address <= ~uint64_t{0} - window.length_bytes;
}

}  // namespace

Result<RcPathOffer> parse_rc_path_offer(ByteSpan payload) {
    RcPathOffer offer;
    if (payload.size() != sizeof(offer)) {
        return Error::eproto;
    }
    std::memcpy(&offer, payload.data(), sizeof(offer));
    return is_queue_pair(offer.client) ? Result<RcPathOffer>(offer) : Error::eproto;
}

Result<RcPathAnswer> parse_rc_path_answer(ByteSpan payload) {
    RcPathAnswer answer;
    if (payload.size() != sizeof(answer)) {
        return Error::eproto;
    }
    std::memcpy(&answer, payload.data(), sizeof(answer));
    bool is_good = is_queue_pair(answer.server);
    for (size_t i = 0; i < kRcWindowCount; i++) {
        is_good = is_good && is_window(answer.windows[i], i);
    }
    return is_good ? Result<RcPathAnswer>(answer) : Error::eproto;
}

Result<DatagramPathEnd> parse_datagram_path_end(ByteSpan payload) {
    DatagramPathEnd end;
    if (payload.size() != sizeof(end)) {
        return Error::eproto;
    }
    std::memcpy(&end, payload.data(), sizeof(end));
    const bool is_good =
        end.port != 0 && is_power_of_two(end.message_count) &&
        end.message_count <= kMaxDatagramMessages && end.packet_bytes >= kMinDatagramPayloadBytes &&
        end.packet_bytes <= kMaxDatagramPayloadBytes &&
        end.message_bytes >= kDatagramMessageBytes && end.receive_buffer_bytes != 0 &&
        end.landing_slots != 0 && end.landing_slots <= end.message_count && is_repair(end.repair);
    return is_good ? Result<DatagramPathEnd>(end) : Error::eproto;
}

Result<UcPathEnd> parse_uc_path_end(ByteSpan payload) {
    UcPathEnd end;
    if (payload.size() != sizeof(end)) {
        return Error::eproto;
    }
    std::memcpy(&end, payload.data(), sizeof(end));
    const bool is_good =
        is_power_of_two(end.packet_bytes) && end.packet_bytes >= kMinUcPacketBytes &&
        end.packet_bytes <= kMaxUcPacketBytes &&
        (end.message_bytes == kUcPathMessageBytes ||
         end.message_bytes == kSealedPathMessageBytes) &&
        end.receive_depth >= kMinUcPathReceives && end.receive_depth <= kMaxUcPathReceives &&
        is_power_of_two(end.message_count) && end.message_count <= kMaxUcPathMessages &&
        end.landing_slots != 0 && end.landing_slots <= end.message_count && is_repair(end.repair) &&
        is_queue_pair(end.data) && is_queue_pair(end.control);
    return is_good ? Result<UcPathEnd>(end) : Error::eproto;
}

}  // namespace tiffin::rdma_blk::wire
