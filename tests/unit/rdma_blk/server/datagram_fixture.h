// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A client of a server that speaks the protocol of paths of datagrams by hand, and so may do what it should not.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rdma_blk/sdr/tunables.h"
#include "rdma_blk/transport/mapped_address.h"
#include "rdma_blk/transport/sdr/message_path.h"
#include "rdma_blk/transport/sdr/message_use.h"
#include "rdma_blk/wire/parse.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {

inline constexpr uint64_t kDatagramPatienceNs = 60'000'000'000;

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
        options.set_keys(client_->keys, true);
        return options;
    }
    void ask_to_join(const wire::DatagramPathEnd& end) {
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
    }
    // The reason; 0: joined.
    uint8_t take_joined() {
        const TestClient::Message answer = MUST(client_->receive());
        const ByteSpan fixed(answer.fixed.data(), answer.fixed.size());
        const wire::PathJoined joined = MUST(wire::parse_path_joined(answer.header, fixed));
        if (joined.reason == 0) {
            agreed_ = MUST(wire::parse_datagram_path_end(
                ByteSpan(answer.payload.data(), answer.payload.size())));
        }
        return joined.reason;
    }
    void start_path() {
        sockaddr_in6 peer = MUST(mapped_address(client_->socket(), getpeername));
        peer.sin6_port = htons(agreed_.port);
        ASSERT_TRUE(path_->start(agreed_, peer).ok());
    }
    void open_path() {
        path_ = MUST(MessagePath::create(path_options()));
        ask_to_join(path_->end());
        ASSERT_EQ(take_joined(), 0);
        start_path();
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
        const uint64_t end_ns = host::monotonic_ns() + kDatagramPatienceNs;
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
        const uint64_t end_ns = host::monotonic_ns() + kDatagramPatienceNs;
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
        const uint64_t end_ns = host::monotonic_ns() + kDatagramPatienceNs;
        while (!condition() && host::monotonic_ns() < end_ns) {
            usleep(200);
        }
        return condition();
    }

    std::unique_ptr<TestClient> client_;
    wire::DatagramPathEnd agreed_{};
    std::unique_ptr<MessagePath> path_;
};

}  // namespace tiffin::rdma_blk
