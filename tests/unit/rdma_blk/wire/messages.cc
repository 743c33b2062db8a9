// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/rdma_blk/wire/messages.h"

#include <gtest/gtest.h>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk::wire {
namespace {

template <typename T>
Sample sample(const char* name, MessageType type, const T& fixed, size_t payload_size_bytes) {
    Sample made{name, std::vector<unsigned char>(sizeof(MessageHeader) + sizeof(T))};
    encode(type, 0, fixed, payload_size_bytes, made.bytes.data());
    made.bytes.resize(made.bytes.size() + payload_size_bytes);
    return made;
}

template <typename T>
void put(Sample& message, size_t payload_offset, const T& value) {
    const size_t payload_begin =
        sizeof(MessageHeader) +
        fixed_part_bytes(
            parse_header(ByteSpan(message.bytes.data(), message.bytes.size())).value());
    std::memcpy(message.bytes.data() + payload_begin + payload_offset, &value, sizeof(value));
}

Sample open_sample() {
    SessionOpen open{};
    open.session_id = 7;
    open.epoch = 3;
    open.next_sequence = 20;
    open.incarnation = 2;
    open.slot_count = 4;
    open.outstanding_count = 2;
    open.mode = 1;
    std::memcpy(open.holder_text, "host, process 1", 16);
    Sample made = sample("session_open", MessageType::session_open, open, 32);
    put(made, 0, OutstandingEntry{17, 0, 2, {}});
    put(made, 16, OutstandingEntry{19, 3, 4, {}});
    return made;
}

Sample opened_sample() {
    SessionOpened opened{};
    opened.session_id = 7;
    opened.epoch = 3;
    opened.content_incarnation = 2;
    opened.empty_since_incarnation = 1;
    opened.data_bytes = 1 << 20;
    opened.control_bytes = 1 << 16;
    opened.incarnation = 2;
    opened.transfer_bytes = kMaxTransferBytes;
    opened.eager_bytes = kEagerBytes;
    opened.write_unit_bytes = 64;
    opened.slot_count = 4;
    opened.outstanding_count = 2;
    opened.flags = session_flag::resumed;
    Sample made = sample("session_opened", MessageType::session_opened, opened, 2);
    put(made, 0, uint8_t{1});
    put(made, 1, uint8_t{2});
    return made;
}

QueuePairAddress queue_pair_address() {
    QueuePairAddress address{};
    address.mtu = 3;
    address.read_depth = 1;
    return address;
}

template <typename T>
Sample join_sample(const char* name, PathTransport transport, const T& parameters) {
    PathJoin join{};
    join.session_id = 7;
    join.incarnation = 2;
    join.path_id = 1;
    join.transport = static_cast<uint8_t>(transport);
    join.parameter_bytes = sizeof(parameters);
    Sample made = sample(name, MessageType::path_join, join, sizeof(parameters));
    put(made, 0, parameters);
    return made;
}

template <typename T>
Sample joined_sample(const char* name, const T& parameters) {
    PathJoined joined{};
    joined.session_id = 7;
    joined.path_id = 1;
    joined.parameter_bytes = sizeof(parameters);
    Sample made = sample(name, MessageType::path_joined, joined, sizeof(parameters));
    put(made, 0, parameters);
    return made;
}

void add_paths(std::vector<Sample>& samples) {
    samples.push_back(sample("path_join shm", MessageType::path_join,
                             PathJoin{7, 2, 1, static_cast<uint8_t>(PathTransport::shm), 0, 0, {}},
                             0));
    samples.push_back(join_sample("path_join tcp", PathTransport::tcp, PathProof{{1}}));
    Sample recover = sample("path_recover", MessageType::path_recover,
                            PathRecover{7, 2, 1, 2, 5, recover_flag::revoke, {}}, 32);
    put(recover, 0, OutstandingEntry{17, 0, 2, {}});
    put(recover, 16, OutstandingEntry{19, 3, 4, {}});
    samples.push_back(recover);
    Sample recovered =
        sample("path_recovered", MessageType::path_recovered, PathRecovered{7, 5, 2, 0, 0}, 2);
    put(recovered, 0, uint8_t{0});
    put(recovered, 1, uint8_t{2});
    samples.push_back(recovered);
    samples.push_back(
        join_sample("path_join rc", PathTransport::rc, RcPathOffer{queue_pair_address()}));
    samples.push_back(join_sample("path_join udp", PathTransport::udp, datagram_end()));
    samples.push_back(join_sample("path_join uc", PathTransport::uc, uc_end()));
    ShmParameters shm{};
    shm.data_bytes = 1 << 20;
    shm.control_bytes = 1 << 16;
    samples.push_back(joined_sample("path_joined shm", shm));
    samples.push_back(joined_sample("path_joined rc", rc_answer()));
    samples.push_back(joined_sample("path_joined udp", datagram_end()));
    samples.push_back(joined_sample("path_joined uc", uc_end()));
}

Request request_of(uint8_t operation, uint32_t length_bytes) {
    Request request{};
    request.session_id = 7;
    request.epoch = 3;
    request.sequence = 20;
    request.after = 19;
    request.offset_bytes = 4096;
    request.incarnation = 2;
    request.length_bytes = length_bytes;
    request.slot = 1;
    request.operation = operation;
    return request;
}

void add_requests(std::vector<Sample>& samples) {
    samples.push_back(sample("read", MessageType::request, request_of(1, 65536), 0));
    samples.push_back(sample("write", MessageType::request, request_of(2, 100), 100));
    samples.push_back(sample("compare_swap", MessageType::request, request_of(3, 8), 0));
    samples.push_back(sample("fetch_add", MessageType::request, request_of(4, 8), 0));
    Sample flush = sample("flush", MessageType::request, request_of(5, 32), 32);
    put(flush, 0, FlushRange{0, 4096});
    put(flush, 16, FlushRange{8192, 64});
    samples.push_back(flush);
    Response response{};
    response.sequence = 20;
    response.operation = 1;
    response.outcome = 1;
    response.payload_bytes = 512;
    samples.push_back(sample("response", MessageType::response, response, 512));
    response.outcome = 2;
    response.error = 5;
    response.payload_bytes = 0;
    samples.push_back(sample("refused", MessageType::response, response, 0));
}

void check_request(const MessageHeader& header, const Request& request, ByteSpan payload) {
    EXPECT_LE(request.length_bytes, kMaxTransferBytes);
    EXPECT_LE(request.offset_bytes + request.length_bytes, kMaxSpaceBytes);
    EXPECT_LT(request.after, request.sequence);
    EXPECT_TRUE(payload.empty() || payload.size() == request.length_bytes);
    EXPECT_LE(payload_bytes(header), kMaxTransferBytes);
}

template <typename T, typename Function>
bool all_entries(ByteSpan payload, Function parse) {
    for (size_t index = 0; index < payload.size() / sizeof(T); index++) {
        if (!parse(index)) {
            return false;
        }
    }
    return true;
}

// What describes a path, as its transport reads it at that end.
bool parse_parameters(uint8_t transport, bool is_answer, ByteSpan payload) {
    switch (static_cast<PathTransport>(transport)) {
        case PathTransport::tcp:
            return is_answer ? payload.empty() : parse_path_proof(payload).ok();
        case PathTransport::shm: {
            // The answer's; the question has none.
            const auto parameters = parse_shm_parameters(payload);
            return !is_answer || parameters.ok();
        }
        case PathTransport::rc:
            return is_answer ? parse_rc_path_answer(payload).ok()
                             : parse_rc_path_offer(payload).ok();
        case PathTransport::udp: {
            auto end = parse_datagram_path_end(payload);
            EXPECT_TRUE(!end.ok() || (end->port != 0 && end->landing_slots != 0));
            return end.ok();
        }
        case PathTransport::uc: {
            auto end = parse_uc_path_end(payload);
            EXPECT_TRUE(!end.ok() || end->packet_bytes != 0);
            return end.ok();
        }
    }
    return false;
}

// Which transport a path_joined belongs to, only the client knows: as any of them.
bool parse_joined_parameters(ByteSpan payload) {
    bool is_any = payload.empty();
    for (uint8_t transport = 1; transport <= static_cast<uint8_t>(PathTransport::uc); transport++) {
        is_any = parse_parameters(transport, true, payload) || is_any;
    }
    return is_any;
}

bool parse_parts(const MessageHeader& header, ByteSpan fixed, ByteSpan payload) {
    switch (static_cast<MessageType>(header.type)) {
        case MessageType::client_hello:
            return parse_client_hello(header, fixed).ok();
        case MessageType::hello_retry:
            return parse_hello_retry(header, fixed).ok();
        case MessageType::server_hello:
            return parse_server_hello(header, fixed).ok();
        case MessageType::client_proof:
            return parse_client_proof(header, fixed).ok();
        case MessageType::session_open: {
            uint64_t previous = 0;
            return parse_session_open(header, fixed).ok() &&
                   all_entries<OutstandingEntry>(payload, [&](size_t index) {
                       auto entry = parse_outstanding_entry(payload, index, previous);
                       EXPECT_TRUE(!entry.ok() || entry->sequence > previous);
                       previous = entry.ok() ? entry->sequence : previous;
                       return entry.ok();
                   });
        }
        case MessageType::session_opened:
            return parse_session_opened(header, fixed).ok() &&
                   all_entries<uint8_t>(
                       payload, [&](size_t index) { return parse_outcome(payload, index).ok(); });
        case MessageType::session_refused:
            return parse_session_refused(header, fixed).ok();
        case MessageType::path_join: {
            auto join = parse_path_join(header, fixed);
            return join.ok() && parse_parameters(join->transport, false, payload);
        }
        case MessageType::path_joined:
            return parse_path_joined(header, fixed).ok() && parse_joined_parameters(payload);
        case MessageType::path_recover: {
            uint64_t previous = 0;
            return parse_path_recover(header, fixed).ok() &&
                   all_entries<OutstandingEntry>(payload, [&](size_t index) {
                       auto entry = parse_outstanding_entry(payload, index, previous);
                       previous = entry.ok() ? entry->sequence : previous;
                       return entry.ok();
                   });
        }
        case MessageType::path_recovered:
            return parse_path_recovered(header, fixed).ok() &&
                   all_entries<uint8_t>(payload, [&](size_t index) {
                       return parse_recovered_outcome(payload, index).ok();
                   });
        case MessageType::lease_request:
            return parse_lease_request(header, fixed).ok();
        case MessageType::lease_reply:
            return parse_lease_reply(header, fixed).ok();
        case MessageType::session_close:
        case MessageType::session_closed:
            return parse_session_close(header, fixed).ok();
        case MessageType::probe:
        case MessageType::probe_reply:
            return parse_probe(header, fixed).ok();
        case MessageType::notice:
            return parse_notice(header, fixed).ok();
        case MessageType::request: {
            auto request = parse_request(header, fixed);
            if (!request.ok()) {
                return false;
            }
            check_request(header, *request, payload);
            return request->operation != 5 || all_entries<FlushRange>(payload, [&](size_t index) {
                       return parse_flush_range(payload, index).ok();
                   });
        }
        case MessageType::response:
            return parse_response(header, fixed).ok();
    }
    ADD_FAILURE() << "a header of an unknown type was accepted";
    return false;
}

}  // namespace

RcPathAnswer rc_answer() {
    RcPathAnswer answer{};
    answer.server = queue_pair_address();
    for (size_t i = 0; i < kRcWindowCount; i++) {
        answer.windows[i].length_bytes = 4096;
        answer.windows[i].kind = static_cast<uint8_t>(i + 1);
    }
    return answer;
}

DatagramPathEnd datagram_end() {
    DatagramPathEnd end{};
    end.port = 1;
    end.message_count = 64;
    end.packet_bytes = 1408;
    end.message_bytes = kDatagramMessageBytes;
    end.receive_buffer_bytes = 65536;
    end.landing_slots = 64;
    return end;
}

UcPathEnd uc_end() {
    UcPathEnd end{};
    end.packet_bytes = 1024;
    end.message_bytes = kUcPathMessageBytes;
    end.receive_depth = 4096;
    end.message_count = 16;
    end.landing_slots = 16;
    end.data = end.control = queue_pair_address();
    return end;
}

std::vector<Sample> sample_messages() {
    std::vector<Sample> samples;
    ClientHello hello{};
    hello.lowest_version = 1;
    hello.highest_version = 2;
    std::memcpy(hello.volume_name, "volume", 6);
    samples.push_back(sample("client_hello", MessageType::client_hello, hello, 0));
    samples.push_back(sample("hello_retry", MessageType::hello_retry, HelloRetry{}, 0));
    samples.push_back(sample("server_hello", MessageType::server_hello, ServerHello{}, 0));
    samples.push_back(sample("client_proof", MessageType::client_proof, ClientProof{}, 0));
    samples.push_back(open_sample());
    samples.push_back(opened_sample());
    SessionRefused refused{};
    refused.reason = 1;
    samples.push_back(sample("session_refused", MessageType::session_refused, refused, 0));
    add_paths(samples);
    samples.push_back(
        sample("lease_request", MessageType::lease_request, LeaseRequest{7, 2, 1, {}}, 0));
    samples.push_back(sample("lease_reply", MessageType::lease_reply, LeaseReply{}, 0));
    samples.push_back(sample("session_close", MessageType::session_close, SessionClose{}, 0));
    samples.push_back(sample("session_closed", MessageType::session_closed, SessionClose{}, 0));
    samples.push_back(sample("probe", MessageType::probe, Probe{}, 0));
    samples.push_back(sample("probe_reply", MessageType::probe_reply, Probe{}, 0));
    samples.push_back(sample("notice", MessageType::notice, Notice{4, 1 << 20, 2, {}}, 0));
    add_requests(samples);
    return samples;
}

bool parse_like_a_receiver(const std::vector<unsigned char>& bytes) {
    const ByteSpan all(bytes.data(), bytes.size());
    auto header = parse_header(all);
    if (!header.ok()) {
        return false;
    }
    const ByteSpan body = all.subspan(sizeof(MessageHeader));
    const size_t fixed_bytes = fixed_part_bytes(*header);
    EXPECT_LE(fixed_bytes, kMaxFixedPartBytes);
    if (body.size() < fixed_bytes + payload_bytes(*header)) {
        return false;  // a receiver would wait for more
    }
    return parse_parts(*header, body.first(fixed_bytes),
                       body.subspan(fixed_bytes, payload_bytes(*header)));
}

void repair_checksum(std::vector<unsigned char>& bytes) {
    auto header = parse_header(ByteSpan(bytes.data(), bytes.size()));
    if (!header.ok() || bytes.size() < sizeof(MessageHeader) + fixed_part_bytes(*header)) {
        return;
    }
    std::memset(bytes.data() + offsetof(MessageHeader, checksum), 0, 4);
    const size_t fixed_bytes = is_sealed(*header) ? 0 : fixed_part_bytes(*header);
    const uint32_t checksum = host::crc32c(0, bytes.data(), sizeof(MessageHeader) + fixed_bytes);
    std::memcpy(bytes.data() + offsetof(MessageHeader, checksum), &checksum, sizeof(checksum));
}

}  // namespace tiffin::rdma_blk::wire
