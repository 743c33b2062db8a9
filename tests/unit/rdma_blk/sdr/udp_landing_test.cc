// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Payloads are received straight to where they probably belong, and the kernel puts there whatever comes, also from somebody
// who has no key. None of it is there any more when a message is, and nothing is ever written beside a receive.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/reliable_connection.h"
#include "rdma_blk/sdr/udp/udp_channel.h"
#include "tests/unit/rdma_blk/sdr/bytes.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint32_t kPacketBytes = 1024;
constexpr size_t kGuardBytes = 4096;
constexpr unsigned char kGuard = 0xa5;
constexpr unsigned char kForged = 0xee;
constexpr size_t kMessageBytes = size_t{200} * kPacketBytes + 77;

sockaddr_in6 loopback() {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr), 1);
    return address;
}

// Two channels and their connections, in a time of the test's own, and a socket of somebody else.
class UdpLandingTest : public ::testing::Test {
  protected:
    struct End {
        std::unique_ptr<ReliableConnection> connection;
        std::unique_ptr<UdpChannel> channel;
        uint32_t id = 0;
        UdpInfo info() const {
            UdpInfo info;
            info.connection_id = id;
            info.channel_count = 1;
            info.receive_buffer_bytes = channel->receive_buffer_bytes();
            info.addresses[0] = channel->address();
            return info;
        }
    };

    void SetUp() override {
        context_ = context_create().release_value();
        make(left_, 1);
        make(right_, 2);
        ASSERT_TRUE(left_.connection->connect(right_.connection->info_get()).ok());
        ASSERT_TRUE(right_.connection->connect(left_.connection->info_get()).ok());
        ASSERT_TRUE(left_.channel->connect(right_.info()).ok());
        ASSERT_TRUE(right_.channel->connect(left_.info()).ok());
        forger_ = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ASSERT_GE(forger_, 0);
        const sockaddr_in6 target = right_.channel->address();
        ASSERT_EQ(connect(forger_, reinterpret_cast<const sockaddr*>(&target), sizeof(target)), 0);
    }
    void TearDown() override { close(forger_); }

    void make(End& end, unsigned char side) {
        QueuePairAttributes queue_attributes;
        queue_attributes.packet_bytes = kPacketBytes;
        queue_attributes.max_message_bytes = 1 << 20;
        queue_attributes.max_messages = 4;
        ReliabilityAttributes attributes;
        attributes.scheme = {SchemeKind::selective_repeat_nack, 0, 0};
        end.connection =
            reliable_connection_create(*context_, queue_attributes, attributes).release_value();
        UdpOptions options;
        options.local = loopback();
        options.packet_bytes = kPacketBytes;
        options.send_key[0] = side;
        options.receive_key[0] = static_cast<unsigned char>(3 - side);
        end.id = 1000U + side;
        end.channel = std::make_unique<UdpChannel>(options, uint16_t{0}, end.id);
        ASSERT_TRUE(end.channel->open().ok());
    }

    // As a datagram of the left end's that belongs exactly where the right end expects one, or `ahead` packets behind that,
    // but for its tag. Nobody with the keys has sent this number yet.
    void forge(const ExpectedPlace& place, uint32_t ahead) {
        struct {
            DatagramHeader datagram;
            DataHeader data;
            unsigned char payload[kPacketBytes];
        } forged{};
        forged.datagram.connection_id = right_.id;
        forged.datagram.version = kPacketVersion;
        forged.datagram.kind = static_cast<uint8_t>(PacketKind::data);
        forged.datagram.packet_number = 1'000'000 + forged_;
        forged.datagram.tag = 0x0123456789abcdef;
        forged.data.message_number = place.message_number;
        forged.data.message_bytes = kMessageBytes;
        forged.data.packet_index = place.first_packet + ahead;
        forged.data.scheme = static_cast<uint8_t>(SchemeKind::selective_repeat_nack);
        std::fill(std::begin(forged.payload), std::end(forged.payload), kForged);
        ASSERT_EQ(send(forger_, &forged, sizeof(forged), 0), static_cast<ssize_t>(sizeof(forged)));
        forged_++;
    }
    // The right end takes what there is; before each look somebody sends something, and then it comes alone.
    void take_right(bool is_attacked) {
        for (bool has_any = true; has_any;) {
            const ExpectedPlace place = right_.connection->expected_place();
            has_any = right_.channel->take(now_ns_, place).has_any;
            landed_ += place.bytes != nullptr && place.size_bytes > kPacketBytes &&
                               std::all_of(place.bytes, place.bytes + kPacketBytes,
                                           [](unsigned char byte) { return byte == kForged; })
                           ? 1
                           : 0;
            right_.channel->deliver(now_ns_, *right_.connection);
            if (is_attacked && has_any) {
                forge(right_.connection->expected_place(), forged_ % 3);
            }
        }
    }
    void step(bool is_attacked) {
        now_ns_ += 50'000;
        // A refused datagram counts as nothing: what came behind it is taken by the second look.
        take_right(is_attacked);
        take_right(false);
        while (left_.channel->take(now_ns_, {}).has_any) {
            left_.channel->deliver(now_ns_, *left_.connection);
        }
        for (End* end : {&left_, &right_}) {
            if (end->connection->next_timer_ns() <= now_ns_) {
                end->connection->on_timer(now_ns_);
            }
            while (end->channel->transmit(now_ns_, *end->connection)) {
            }
        }
    }
    RegisteredMemory registered(std::vector<unsigned char>& bytes, size_t offset, size_t size) {
        return context_->mr_reg(MutableByteSpan(bytes.data() + offset, size)).release_value();
    }
    Completion next_completion(End& end, bool is_attacked) {
        Completion completion;
        while (
            !end.connection->next_completion(completion)) {  // the test's own timeout ends a hang
            step(is_attacked);
        }
        return completion;
    }

    std::unique_ptr<Context> context_;
    End left_;
    End right_;
    int forger_ = -1;
    uint64_t now_ns_ = host::monotonic_ns();
    uint32_t forged_ = 0;
    uint32_t landed_ = 0;  // looks after which forged bytes lay where a packet was expected
};

TEST_F(UdpLandingTest, ForgedDatagramsLeaveNothingInAMessage) {
    std::vector<unsigned char> source = some_bytes(kMessageBytes, 5);
    const RegisteredMemory sent = registered(source, 0, source.size());
    for (uint32_t message = 0; message < 12; message++) {
        std::vector<unsigned char> target(kMessageBytes + 2 * kGuardBytes, kGuard);
        const RegisteredMemory memory = registered(target, kGuardBytes, kMessageBytes);
        ASSERT_TRUE(right_.connection->recv_post(now_ns_, memory).ok());
        ASSERT_TRUE(left_.connection->send_post(now_ns_, sent, message).ok());
        const Completion received = next_completion(right_, true);
        ASSERT_TRUE(received.ok);
        ASSERT_EQ(received.message_bytes, kMessageBytes);
        EXPECT_EQ(std::memcmp(target.data() + kGuardBytes, source.data(), kMessageBytes), 0);
        // What is forged from now on finds the receive ended.
        for (int round = 0; round < 10; round++) {
            forge({nullptr, 0, message, 3}, 0);
            step(false);
        }
        EXPECT_EQ(std::memcmp(target.data() + kGuardBytes, source.data(), kMessageBytes), 0);
        const auto is_guard = [](unsigned char byte) { return byte == kGuard; };
        EXPECT_TRUE(std::all_of(target.begin(), target.begin() + kGuardBytes, is_guard));
        EXPECT_TRUE(std::all_of(target.end() - kGuardBytes, target.end(), is_guard));
        EXPECT_TRUE(next_completion(left_, false).ok);
    }
    step(false);
    EXPECT_GT(landed_, 0U);  // otherwise this shows nothing
    EXPECT_EQ(right_.channel->statistics().packets_refused, forged_);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
