// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/rdma_blk/server/test_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/session/key_schedule.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {

TestClient::TestClient(uint16_t port, unsigned char number) {
    uuid[0] = number;
    uuid[15] = 1;
    socket_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
        socket_.reset();
    }
    const int on = 1;
    (void)setsockopt(socket_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    reader_ = MUST(MessageReader::create());    // memory
    writer_ = MUST(MessageWriter::create(64));  // memory
    set_patience(60);
}

void TestClient::set_patience(int seconds) {
    const timeval timeout{seconds, 0};
    (void)setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
}

Result<void> TestClient::handshake(const Secret<kVolumeKeyBytes>& key, const char* volume_name,
                                   bool encrypt, uint8_t highest) {
    const int flags =
        (encrypt ? wire::hello_flag::encrypt : 0) | (has_reader_key ? wire::hello_flag::reader : 0);
    HandshakeClient client(key.bytes, volume_name, uuid, static_cast<uint16_t>(flags), highest);
    TRY(send(wire::MessageType::client_hello, client.hello()));
    Message message = TRY(receive());
    const wire::HelloRetry retry =
        TRY(wire::parse_hello_retry(message.header, ByteSpan(message.fixed.data(), 32)));
    TRY(client.read_retry(retry));
    TRY(send(wire::MessageType::client_hello, client.hello()));
    Message hello = TRY(receive());
    const wire::ServerHello server = TRY(
        wire::parse_server_hello(hello.header, ByteSpan(hello.fixed.data(), hello.fixed.size())));
    const wire::ClientProof proof = TRY(client.read_server_hello(server));
    return finish_handshake(client, proof);
}

Result<void> TestClient::finish_handshake(const HandshakeClient& client,
                                          const wire::ClientProof& proof) {
    TRY(send(wire::MessageType::client_proof, proof));
    const bool seals = (client.flags() & wire::hello_flag::encrypt) != 0;
    keys = client.keys();
    version = client.version();
    send_seal_ = std::make_unique<Seal>(client.keys().seal_to_server);
    receive_seal_ = std::make_unique<Seal>(client.keys().seal_to_client);
    reader_->set_seal(receive_seal_.get(), seals);
    return writer_->set_seal(send_seal_.get(), seals);
}

Result<TestClient::Message> TestClient::receive() {
    Message message;
    while (true) {
        switch (TRY(reader_->next())) {
            case MessageReader::Event::need_bytes: {
                const Result<size_t> received = reader_->receive(socket_.get(), 0);
                if (!received.ok()) {
                    return received.error() == Error::eagain ? Error::etimedout : received.error();
                }
                continue;
            }
            case MessageReader::Event::message:
                message.type = reader_->type();
                message.header = reader_->header();
                message.fixed.assign(reader_->fixed_part().begin(), reader_->fixed_part().end());
                message.payload.resize(reader_->payload_bytes());
                if (!message.payload.empty()) {
                    reader_->place_payload(
                        MutableByteSpan(message.payload.data(), message.payload.size()));
                    continue;
                }
                break;
            case MessageReader::Event::payload:
                break;
        }
        const ByteSpan fixed(message.fixed.data(), message.fixed.size());
        if (message.type == wire::MessageType::probe && answers_probes) {
            const wire::Probe probe = TRY(wire::parse_probe(message.header, fixed));
            TRY(send(wire::MessageType::probe_reply, probe));
            continue;
        }
        if (message.type == wire::MessageType::notice) {
            last_notice_ = TRY(wire::parse_notice(message.header, fixed)).reason;
            continue;
        }
        return message;
    }
}

bool TestClient::take_open_answer() {
    const Result<Message> answer = receive();
    if (!answer.ok()) {
        return false;
    }
    const Message& message = answer.value();
    const ByteSpan fixed(message.fixed.data(), message.fixed.size());
    if (message.type == wire::MessageType::session_refused) {
        refused_ = MUST(wire::parse_session_refused(message.header, fixed));  // from our own server
        return false;
    }
    const auto opened = wire::parse_session_opened(message.header, fixed);
    EXPECT_TRUE(opened.ok());
    opened_ = opened.value();
    outcomes_ = message.payload;
    return true;
}

bool TestClient::open(wire::SessionMode mode, bool force) {
    wire::SessionOpen open{};
    std::memcpy(open.client_uuid, uuid, 16);
    open.next_sequence = 1;
    open.incarnation = 1;
    open.slot_count = 64;
    open.mode = static_cast<uint8_t>(mode);
    open.flags = force ? wire::open_flag::force : 0;
    std::snprintf(open.holder_text, sizeof(open.holder_text), "client %d", uuid[0]);
    return send(wire::MessageType::session_open, open).ok() && take_open_answer();
}

bool TestClient::resume(const TestClient& earlier,
                        const std::vector<wire::OutstandingEntry>& entries) {
    next_sequence = earlier.next_sequence;
    wire::SessionOpen open{};
    std::memcpy(open.client_uuid, uuid, 16);
    open.session_id = earlier.opened_.session_id;
    open.epoch = earlier.opened_.epoch;
    open.next_sequence = next_sequence;
    open.incarnation = earlier.opened_.incarnation + 1;
    open.slot_count = earlier.opened_.slot_count;
    open.outstanding_count = static_cast<uint16_t>(entries.size());
    open.mode =
        static_cast<uint8_t>(has_reader_key ? wire::SessionMode::read : wire::SessionMode::write);
    const auto* bytes = reinterpret_cast<const unsigned char*>(entries.data());
    const std::vector<unsigned char> payload(
        bytes, bytes + entries.size() * sizeof(wire::OutstandingEntry));
    return send(wire::MessageType::session_open, open, payload).ok() && take_open_answer();
}

bool TestClient::join(const TestClient& first, uint16_t path_id, const TestClient* prover) {
    opened_ = first.opened_;
    wire::PathJoin join{};
    join.session_id = opened_.session_id;
    join.incarnation = opened_.incarnation;
    join.path_id = path_id;
    join.transport = static_cast<uint8_t>(wire::PathTransport::tcp);
    join.parameter_bytes = sizeof(wire::PathProof);
    std::vector<unsigned char> proof(sizeof(wire::PathProof));
    make_join_proof((prover != nullptr ? prover : &first)->keys.session_secret, keys.session_secret,
                    join, proof.data());
    if (!send(wire::MessageType::path_join, join, proof).ok()) {
        return false;
    }
    const Result<Message> answer = receive();
    if (!answer.ok() || answer.value().type != wire::MessageType::path_joined) {
        return false;
    }
    const Message& message = answer.value();
    const auto joined = wire::parse_path_joined(
        message.header, ByteSpan(message.fixed.data(), message.fixed.size()));
    return joined.ok() && joined.value().reason == 0;
}

bool TestClient::recover(uint16_t path_id, uint8_t flags,
                         const std::vector<wire::OutstandingEntry>& entries) {
    wire::PathRecover question{};
    question.session_id = opened_.session_id;
    question.incarnation = opened_.incarnation;
    question.path_id = path_id;
    question.flags = flags;
    question.number = 7;
    question.outstanding_count = static_cast<uint16_t>(entries.size());
    const auto* bytes = reinterpret_cast<const unsigned char*>(entries.data());
    const std::vector<unsigned char> payload(
        bytes, bytes + entries.size() * sizeof(wire::OutstandingEntry));
    if (!send(wire::MessageType::path_recover, question, payload).ok()) {
        return false;
    }
    recovered_responses.clear();
    while (true) {
        const Result<Message> answer = receive();
        if (!answer.ok()) {
            return false;
        }
        const Message& message = answer.value();
        const ByteSpan fixed(message.fixed.data(), message.fixed.size());
        if (message.type == wire::MessageType::response) {
            recovered_responses.push_back(MUST(wire::parse_response(message.header, fixed)));
            continue;
        }
        outcomes_ = message.payload;
        const auto recovered = wire::parse_path_recovered(message.header, fixed);
        return recovered.ok() && recovered.value().reason == 0 &&
               recovered.value().number == question.number;
    }
}

wire::Request TestClient::make_request(OperationKind kind, uint64_t offset_bytes,
                                       uint32_t length_bytes, uint16_t slot) {
    wire::Request request{};
    request.session_id = opened_.session_id;
    request.epoch = opened_.epoch;
    request.incarnation = opened_.incarnation;
    request.sequence = next_sequence++;
    request.operation = static_cast<uint8_t>(kind);
    request.offset_bytes = offset_bytes;
    request.length_bytes = length_bytes;
    request.slot = slot;
    return request;
}

Result<void> TestClient::send_request(const wire::Request& request, const std::string& payload) {
    wire::Request sent = request;
    sent.flags |= wire::request_flag::has_checksum;
    sent.payload_checksum = host::crc32c(0, payload.data(), payload.size());
    return send(wire::MessageType::request, sent,
                std::vector<unsigned char>(payload.begin(), payload.end()));
}

bool TestClient::send_bytes(const void* bytes, size_t size) {
    return ::send(socket_.get(), bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

Result<wire::Response> TestClient::response(std::string* data) {
    Message message = TRY(receive());
    const wire::Response response = TRY(
        wire::parse_response(message.header, ByteSpan(message.fixed.data(), message.fixed.size())));
    EXPECT_EQ(response.payload_bytes, message.payload.size());
    if (!message.payload.empty()) {
        EXPECT_EQ(response.payload_checksum,
                  host::crc32c(0, message.payload.data(), message.payload.size()));
    }
    if (data != nullptr) {
        data->assign(message.payload.begin(), message.payload.end());
    }
    return response;
}

wire::Response TestClient::call(const wire::Request& request, const std::string& payload,
                                std::string* data) {
    EXPECT_TRUE(send_request(request, payload).ok());
    const Result<wire::Response> answer = response(data);
    EXPECT_TRUE(answer.ok());
    return answer.ok() ? answer.value() : wire::Response{};
}

wire::Response TestClient::write(uint64_t offset_bytes, const std::string& text, uint16_t slot) {
    return call(
        make_request(OperationKind::write, offset_bytes, static_cast<uint32_t>(text.size()), slot),
        text);
}

std::string TestClient::read(uint64_t offset_bytes, uint32_t length_bytes, uint16_t slot) {
    std::string data;
    call(make_request(OperationKind::read, offset_bytes, length_bytes, slot), "", &data);
    return data;
}

}  // namespace tiffin::rdma_blk
