// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A path of datagrams whose client does what it should not: what is malformed ends the connection and is counted, and
// nothing of it takes effect.
#include <functional>

#include "rdma_blk/sdr/tunables.h"
#include "rdma_blk/transport/mapped_address.h"
#include "rdma_blk/transport/sdr/message_path.h"
#include "rdma_blk/transport/sdr/message_use.h"
#include "rdma_blk/wire/parse.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kPatienceNs = 60'000'000'000;

class DatagramPathTest : public ServerFixture {
  protected:
    void SetUp() override {
        ServerFixture::SetUp();
        configuration_.sdr_port = 0;
        start(backing());
        client_ = open();
        client_->set_patience(60);
    }

    virtual std::string backing() const { return ""; }

    MessagePathOptions path_options() {
        MessagePathOptions options;
        options.local = MUST(mapped_address(client_->socket(), getsockname));
        options.local.sin6_port = 0;
        options.packet_bytes = 1408;
        std::memcpy(options.send_key, client_->keys.tag_to_server.bytes, sizeof(options.send_key));
        std::memcpy(options.receive_key, client_->keys.tag_to_client.bytes,
                    sizeof(options.receive_key));
        return options;
    }
    // The reason; 0: joined.
    uint8_t join(const wire::DatagramPathEnd& end) {
        wire::PathJoin join{};
        join.session_id = client_->opened().session_id;
        join.incarnation = client_->opened().incarnation;
        join.path_id = 1;
        join.transport = static_cast<uint8_t>(wire::PathTransport::udp);
        join.parameter_bytes = sizeof(end);
        const auto* bytes = reinterpret_cast<const unsigned char*>(&end);
        EXPECT_TRUE(client_
                        ->send(wire::MessageType::path_join, join,
                               std::vector<unsigned char>(bytes, bytes + sizeof(end)))
                        .ok());
        const TestClient::Message answer = MUST(client_->receive());
        const ByteSpan fixed(answer.fixed.data(), answer.fixed.size());
        const wire::PathJoined joined = MUST(wire::parse_path_joined(answer.header, fixed));
        if (joined.reason == 0) {
            agreed_ = MUST(wire::parse_datagram_path_end(
                ByteSpan(answer.payload.data(), answer.payload.size())));
        }
        return joined.reason;
    }
    void open_path() {
        path_ = MUST(MessagePath::create(path_options()));
        ASSERT_EQ(join(path_->end()), 0);
        sockaddr_in6 peer = MUST(mapped_address(client_->socket(), getpeername));
        peer.sin6_port = htons(agreed_.port);
        ASSERT_TRUE(path_->start(agreed_, peer).ok());
    }
    void send(const void* bytes, size_t size, uint32_t use) {
        ASSERT_TRUE(path_->has_room());
        std::memcpy(path_->begin_message(), bytes, size);
        ASSERT_TRUE(path_->send_message(host::monotonic_ns(), size, use).ok());
    }
    void send_request(const wire::Request& request, const std::string& payload) {
        std::vector<unsigned char> message(256 + payload.size());
        const size_t head =
            wire::encode(wire::MessageType::request, 0, request, payload.size(), message.data());
        std::memcpy(message.data() + head, payload.data(), payload.size());
        send(message.data(), head + payload.size(), static_cast<uint32_t>(MessageUse::wire));
    }
    void turn() {
        const uint64_t now_ns = host::monotonic_ns();
        (void)path_->take(now_ns);
        path_->transmit(now_ns);
        usleep(200);
    }
    bool receive(MessagePath::Message& message) {
        const uint64_t end_ns = host::monotonic_ns() + kPatienceNs;
        while (host::monotonic_ns() < end_ns) {
            turn();
            if (path_->next_message(message)) {
                return true;
            }
        }
        return false;
    }
    // The server has ended the connection, and counted why.
    void expect_end(uint64_t malformed_before) {
        const uint64_t end_ns = host::monotonic_ns() + kPatienceNs;
        while (server_->counters().sdr_paths.load() != 0 && host::monotonic_ns() < end_ns) {
            turn();
        }
        EXPECT_EQ(server_->counters().sdr_paths.load(), 0U);
        const auto after = client_->receive();
        ASSERT_FALSE(after.ok());
        EXPECT_NE(after.error(), Error::etimedout);
        EXPECT_EQ(server_->counters().malformed_messages.load(), malformed_before + 1);
    }

    // The client's end gives up, by a clock that runs ahead, and tells the server so.
    void give_up() {
        send("", 1, static_cast<uint32_t>(MessageUse::hello));
        uint64_t now_ns = host::monotonic_ns();
        for (int turn = 0; turn < 10 && !path_->has_failed(); turn++) {
            now_ns += 2 * path_options().give_up_ns;
            (void)path_->take(now_ns);
        }
        ASSERT_TRUE(path_->has_failed());
        path_->transmit(now_ns);
    }
    bool comes_true(const std::function<bool()>& condition) {
        const uint64_t end_ns = host::monotonic_ns() + kPatienceNs;
        while (!condition() && host::monotonic_ns() < end_ns) {
            usleep(200);
        }
        return condition();
    }

    std::unique_ptr<TestClient> client_;
    wire::DatagramPathEnd agreed_{};
    std::unique_ptr<MessagePath> path_;
};

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
    wire::PathJoin join{};
    join.session_id = client_->opened().session_id;
    join.incarnation = client_->opened().incarnation;
    join.path_id = 1;
    join.transport = static_cast<uint8_t>(wire::PathTransport::udp);
    join.parameter_bytes = sizeof(end);
    const auto* bytes = reinterpret_cast<const unsigned char*>(&end);
    ASSERT_TRUE(client_
                    ->send(wire::MessageType::path_join, join,
                           std::vector<unsigned char>(bytes, bytes + sizeof(end)))
                    .ok());
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
    const uint64_t end_ns = host::monotonic_ns() + kPatienceNs;
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
    auto type = wire::MessageType::response;  // of a flush that was fast
    while (type == wire::MessageType::response) {
        const auto answer = client_->receive();
        ASSERT_TRUE(answer.ok());
        type = answer.value().type;
    }
    EXPECT_EQ(type, wire::MessageType::session_closed);
}

}  // namespace
}  // namespace tiffin::rdma_blk
