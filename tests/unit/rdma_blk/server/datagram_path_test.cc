// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A path of datagrams whose client does what it should not: what is malformed ends the connection and is counted, and
// nothing of it takes effect.
#include "tests/unit/rdma_blk/server/datagram_fixture.h"

namespace tiffin::rdma_blk {
namespace {

class FileDatagramPathTest : public DatagramPathTest {
  protected:
    std::string backing() const override { return folder_ + "/backing"; }
};

TEST_F(DatagramPathTest, RequestsAreAnswered) {
    open_path();
    EXPECT_LE(agreed_.packet_bytes, 1408U);
    send("", 1, static_cast<uint32_t>(MessageUse::hello));
    MessagePath::Message message;
    ASSERT_TRUE(receive(message));
    EXPECT_EQ(message.use, static_cast<uint32_t>(MessageUse::hello));
    send_request(client_->make_request(OperationKind::write, 100, 5), "bytes");
    ASSERT_TRUE(receive(message));
    const auto header = MUST(wire::parse_header(message.bytes));
    const auto response =
        MUST(wire::parse_response(header, message.bytes.subspan(sizeof(wire::MessageHeader))));
    EXPECT_EQ(response.outcome, static_cast<uint8_t>(Outcome::executed));
    EXPECT_EQ(std::memcmp(memory() + 100, "bytes", 5), 0);
    // The same request on the stream is answered from its slot.
    wire::Request again = client_->make_request(OperationKind::fetch_add, 64, 8, 1);
    again.operand = 3;
    send_request(again, "");
    ASSERT_TRUE(receive(message));
    EXPECT_EQ(client_->call(again).value, 0U);
    EXPECT_EQ(memory()[64], 3);
}

TEST_F(DatagramPathTest, WhatIsNoMessageEndsTheConnection) {
    open_path();
    const uint64_t before = server_->counters().malformed_messages.load();
    const std::string garbage(500, 'x');
    send(garbage.data(), garbage.size(), static_cast<uint32_t>(MessageUse::wire));
    expect_end(before);
}

TEST_F(DatagramPathTest, AMessageOfAnotherLengthEndsTheConnection) {
    open_path();
    const uint64_t before = server_->counters().malformed_messages.load();
    unsigned char message[256] = {};
    const wire::Request request = client_->make_request(OperationKind::write, 100, 50);
    const size_t head = wire::encode(wire::MessageType::request, 0, request, 50, message);
    send(message, head + 49, static_cast<uint32_t>(MessageUse::wire));
    expect_end(before);
    EXPECT_EQ(memory()[100], 0);
}

TEST_F(DatagramPathTest, ADamagedPayloadEndsTheConnection) {
    open_path();
    const uint64_t before = server_->counters().malformed_messages.load();
    wire::Request request = client_->make_request(OperationKind::write, 100, 5);
    request.flags |= wire::request_flag::has_checksum;
    request.payload_checksum = 1;
    send_request(request, "bytes");
    expect_end(before);
    EXPECT_EQ(memory()[100], 0);
}

TEST_F(DatagramPathTest, AnUnknownUseIsRefused) {
    open_path();
    const uint64_t before = server_->counters().malformed_messages.load();
    send("x", 1, 77);
    expect_end(before);
}

TEST_F(DatagramPathTest, ImpossibleParametersEndTheConnection) {
    path_ = MUST(MessagePath::create(path_options()));
    wire::DatagramPathEnd end = path_->end();
    end.message_count = 48;  // no power of two
    const uint64_t before = server_->counters().malformed_messages.load();
    ask_to_join(end);
    EXPECT_FALSE(client_->receive().ok());
    EXPECT_EQ(server_->counters().malformed_messages.load(), before + 1);
}

// With nothing that comes from the client: only the time can tell the server to send again.
TEST_F(DatagramPathTest, AnswersAreRepeatedToAClientThatSaysNothing) {
    open_path();
    send("", 1, static_cast<uint32_t>(MessageUse::hello));
    MessagePath::Message message;
    ASSERT_TRUE(receive(message));
    path_->release(host::monotonic_ns(), message);
    turn();
    // The first window, feedback, and some of what comes when that is given up.
    const auto& sent = server_->counters().sdr_datagrams_sent;
    const uint64_t most = sent.load() + sdr::kInitialWindowPackets + 12;
    for (int request = 0; request < 4; request++) {
        send_request(client_->make_request(OperationKind::read, 0, 200'000), "");
    }
    path_->transmit(host::monotonic_ns());
    const uint64_t end_ns = host::monotonic_ns() + kDatagramPatienceNs;
    while (sent.load() <= most && host::monotonic_ns() < end_ns) {
        usleep(1000);
    }
    EXPECT_GT(sent.load(), most);
}

TEST_F(DatagramPathTest, APathThatTookNoRequestEndsWithoutTheConnection) {
    open_path();
    give_up();
    EXPECT_TRUE(comes_true([&] { return server_->counters().sdr_paths.load() == 0; }));
    EXPECT_EQ(client_->call(client_->make_request(OperationKind::fetch_add, 64, 8)).outcome,
              static_cast<uint8_t>(Outcome::executed));
    // And it may have another one.
    open_path();
    send("", 1, static_cast<uint32_t>(MessageUse::hello));
    MessagePath::Message message;
    EXPECT_TRUE(receive(message));
}

TEST_F(DatagramPathTest, APathThatTookRequestsEndsWithTheConnection) {
    open_path();
    send_request(client_->make_request(OperationKind::write, 100, 5), "bytes");
    MessagePath::Message message;
    ASSERT_TRUE(receive(message));
    give_up();
    EXPECT_TRUE(comes_true([&] { return server_->counters().sdr_paths.load() == 0; }));
    EXPECT_FALSE(client_->receive().ok());
}

// An answer of the largest size could not be sent, not on this connection nor on the next.
TEST_F(DatagramPathTest, AnEncryptedPathWithoutRoomForTagsIsRefused) {
    client_ = open(2, wire::SessionMode::read, false, true);
    path_ = MUST(MessagePath::create(path_options()));
    wire::DatagramPathEnd end = path_->end();
    EXPECT_EQ(end.message_bytes, wire::kSealedPathMessageBytes);
    end.message_bytes = wire::kDatagramMessageBytes;
    ask_to_join(end);
    EXPECT_EQ(take_joined(), static_cast<uint8_t>(wire::RefusalReason::no_transport));
    ask_to_join(path_->end());
    EXPECT_EQ(take_joined(), 0);
}

TEST_F(DatagramPathTest, ASecondPathTakesThePlaceOfTheFirst) {
    open_path();
    const std::unique_ptr<MessagePath> first = std::move(path_);
    open_path();
    EXPECT_EQ(server_->counters().sdr_paths.load(), 1U);
    send("", 1, static_cast<uint32_t>(MessageUse::hello));
    MessagePath::Message message;
    EXPECT_TRUE(receive(message));
}

// The end of the path, with the session's, is not that of the connection, which has to wait for the flush.
TEST_F(FileDatagramPathTest, AGoodbyeWaitsForAFlush) {
    open_path();
    const std::string bytes(size_t{1} << 20, 'x');
    send_request(client_->make_request(OperationKind::write, 0, bytes.size()), bytes);
    MessagePath::Message message;
    ASSERT_TRUE(receive(message));
    // Both arrive before the disk is done.
    ASSERT_TRUE(client_->send_request(client_->make_request(OperationKind::flush, 0, 0)).ok());
    const wire::SessionClose close{client_->opened().session_id, 1, 0};
    ASSERT_TRUE(client_->send(wire::MessageType::session_close, close).ok());
    // Before it, of a flush that was fast, and of a probe on a machine that is slow.
    auto type = wire::MessageType::response;
    while (type == wire::MessageType::response || type == wire::MessageType::probe_reply) {
        const auto answer = client_->receive();
        ASSERT_TRUE(answer.ok());
        type = answer.value().type;
    }
    EXPECT_EQ(type, wire::MessageType::session_closed);
}

}  // namespace
}  // namespace tiffin::rdma_blk
