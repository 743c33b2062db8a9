// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Messages over queue pairs of devices that are made up: sizes, losses, ends that differ, and what is forged.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/sdr/message_path.h"
#include "rdma_blk/wire/parse.h"
#include "tests/support/fake_network.h"

namespace tiffin::rdma_blk::test {
namespace {

constexpr uint64_t kPatienceNs = 60'000'000'000;

class UcMessageTest : public ::testing::Test {
  protected:
    static MessagePathOptions options(unsigned char send_key, unsigned char receive_key) {
        MessagePathOptions options;
        options.packet_bytes = 1024;
        options.message_count = 8;
        options.send_key[0] = send_key;
        options.receive_key[0] = receive_key;
        return options;
    }
    std::unique_ptr<MessagePath> make(const MessagePathOptions& options) {
        const uint8_t address[16] = {};
        std::string problem;
        auto device = MUST(network_.open(address, problem));
        return MUST(MessagePath::create_uc(options, std::move(device)));
    }
    void start(const MessagePathOptions& client, const MessagePathOptions& server) {
        client_ = make(client);
        server_ = make(server);
        ASSERT_TRUE(server_->start_uc(agreed(client_->uc_end())).ok());
        ASSERT_TRUE(client_->start_uc(agreed(server_->uc_end())).ok());
    }
    void start() { ASSERT_NO_FATAL_FAILURE(start(options(1, 2), options(2, 1))); }
    // With the numbers of the server, which are the smaller ones, through what is sent of it.
    wire::UcPathEnd agreed(wire::UcPathEnd end) const {
        const wire::UcPathEnd smaller = server_->uc_end();
        end.packet_bytes = smaller.packet_bytes;
        end.message_count = smaller.message_count;
        end.landing_slots = std::min(end.landing_slots, end.message_count);
        return MUST(wire::parse_uc_path_end(
            ByteSpan(reinterpret_cast<const unsigned char*>(&end), sizeof(end))));
    }
    // Sleeps until there is something to do for either end, and does it.
    void turn() {
        uint64_t now_ns = host::monotonic_ns();
        const uint64_t next_ns =
            std::min(client_->next_time_ns(now_ns), server_->next_time_ns(now_ns));
        pollfd ready[2] = {{client_->descriptor(), POLLIN, 0}, {server_->descriptor(), POLLIN, 0}};
        const uint64_t wait_ns =
            std::min<uint64_t>(next_ns - std::min(next_ns, now_ns), 100'000'000);
        const timespec sleep{0, static_cast<long>(wait_ns)};
        (void)ppoll(ready, 2, &sleep, nullptr);
        now_ns = host::monotonic_ns();
        for (MessagePath* path : {client_.get(), server_.get()}) {
            (void)path->take(now_ns);
            path->transmit(now_ns);
        }
    }
    template <typename Condition>
    bool comes_true(Condition condition) {
        const uint64_t end_ns = host::monotonic_ns() + kPatienceNs;
        while (!condition() && host::monotonic_ns() < end_ns) {
            turn();
        }
        return condition();
    }
    static unsigned char content(size_t number, size_t offset) {
        return static_cast<unsigned char>(number * 31 + offset * 7 + offset / 1024);
    }
    void send(MessagePath& path, size_t number, size_t size) {
        unsigned char* const begin = path.begin_message();
        for (size_t offset = 0; offset < size; offset++) {
            begin[offset] = content(number, offset);
        }
        ASSERT_TRUE(
            path.send_message(host::monotonic_ns(), size, static_cast<uint32_t>(number)).ok());
    }
    static size_t size_of(size_t number) {
        constexpr size_t kSizes[] = {1, 100, 1016, 1017, 5000, 70000, wire::kDatagramMessageBytes};
        return kSizes[number % std::size(kSizes)];
    }
    // Both ends send so many, as fast as there is room.
    void exchange(size_t count) {
        struct Side {
            MessagePath* path = nullptr;
            size_t sent = 0;
            std::vector<bool> came;
            size_t came_count = 0;
        };
        Side sides[2];
        sides[0].path = client_.get();
        sides[1].path = server_.get();
        sides[0].came.resize(count);
        sides[1].came.resize(count);
        EXPECT_TRUE(comes_true([&] {
            for (Side& side : sides) {
                while (side.sent < count && side.path->has_room()) {
                    send(*side.path, side.sent, size_of(side.sent));
                    side.sent++;
                }
                MessagePath::Message message;
                while (side.path->next_message(message)) {
                    check(message, side.came);
                    side.came_count++;
                    side.path->release(host::monotonic_ns(), message);
                }
            }
            return sides[0].came_count >= count && sides[1].came_count >= count;
        }));
        EXPECT_EQ(sides[0].came_count, count);
        EXPECT_EQ(sides[1].came_count, count);
        EXPECT_FALSE(client_->has_failed());
        EXPECT_FALSE(server_->has_failed());
    }
    static void check(const MessagePath::Message& message, std::vector<bool>& came) {
        ASSERT_LT(message.use, came.size());
        EXPECT_FALSE(came[message.use]);
        came[message.use] = true;
        ASSERT_EQ(message.bytes.size(), size_of(message.use));
        for (size_t offset = 0; offset < message.bytes.size(); offset++) {
            ASSERT_EQ(message.bytes.data()[offset], content(message.use, offset))
                << "message " << message.use << ", byte " << offset;
        }
    }

    FakeNetwork network_;
    std::unique_ptr<MessagePath> client_;
    std::unique_ptr<MessagePath> server_;
};

TEST_F(UcMessageTest, MessagesOfAllSizesArriveInBothDirections) {
    ASSERT_NO_FATAL_FAILURE(start());
    exchange(30);
    EXPECT_EQ(client_->statistics().datagrams_refused, 0U);
    EXPECT_GT(client_->statistics().datagrams_sent, 30U);
    EXPECT_GT(client_->statistics().datagrams_received, 30U);
}

TEST_F(UcMessageTest, WhatIsLostOrLateIsRepaired) {
    network_.unreliable_loss_ppm = 20'000;
    network_.unreliable_delay_ppm = 10'000;
    ASSERT_NO_FATAL_FAILURE(start());
    exchange(30);
    EXPECT_GT(network_.counts().unreliable_losses, 0U);
    EXPECT_GT(client_->statistics().chunks_repeated + server_->statistics().chunks_repeated, 0U);
}

class UcCodeTest : public UcMessageTest, public ::testing::WithParamInterface<wire::SdrRepair> {};

// The default, and one whose parity takes more room than that of any other code.
INSTANTIATE_TEST_SUITE_P(Codes, UcCodeTest,
                         ::testing::Values(wire::SdrRepair{4, 32, 8}, wire::SdrRepair{4, 16, 16},
                                           wire::SdrRepair{3, 10, 5}));

TEST_P(UcCodeTest, AnErasureCodesParityHasItsPlace) {
    MessagePathOptions client = options(1, 2);
    MessagePathOptions server = options(2, 1);
    client.set_repair(GetParam());
    server.set_repair(GetParam());
    client.drop_ppm = server.drop_ppm = 20'000;
    ASSERT_NO_FATAL_FAILURE(start(client, server));
    exchange(21);
    EXPECT_GT(client_->statistics().blocks_decoded + server_->statistics().blocks_decoded, 0U);
}

// The arenas are of the larger numbers, what is in them of the smaller ones.
TEST_F(UcMessageTest, TheSmallerNumbersOfBothHold) {
    MessagePathOptions client = options(1, 2);
    client.packet_bytes = 4096;
    client.message_count = 16;
    MessagePathOptions server = options(2, 1);
    server.packet_bytes = 512;
    server.message_count = 4;
    ASSERT_NO_FATAL_FAILURE(start(client, server));
    exchange(14);
}

TEST_F(UcMessageTest, WhatTheOtherWayRoundDoesNotFitIsRefused) {
    client_ = make(options(1, 2));
    wire::UcPathEnd other = client_->uc_end();
    other.packet_bytes = 2048;
    EXPECT_EQ(client_->start_uc(other).error(), Error::einval);
    other = client_->uc_end();
    other.message_count = 16;
    EXPECT_EQ(client_->start_uc(other).error(), Error::einval);
    MessagePathOptions wrong = options(1, 2);
    wrong.packet_bytes = 1000;
    const uint8_t address[16] = {};
    std::string problem;
    EXPECT_EQ(MessagePath::create_uc(wrong, MUST(network_.open(address, problem))).error(),
              Error::einval);
}

// No packet has a tag, so somebody with a window's key could have written it.
TEST_F(UcMessageTest, AForgedPacketEndsThePath) {
    ASSERT_NO_FATAL_FAILURE(start());
    exchange(7);
    network_.changes_next_immediate = true;
    ASSERT_NO_FATAL_FAILURE(send(*client_, 4, size_of(4)));
    MessagePath::Message message;
    EXPECT_TRUE(
        comes_true([&] { return server_->has_failed() || server_->next_message(message); }));
    EXPECT_TRUE(server_->has_failed());
    EXPECT_EQ(server_->statistics().datagrams_refused, 1U);
    EXPECT_FALSE(server_->next_message(message));
    EXPECT_EQ(server_->next_time_ns(host::monotonic_ns()), 0U);  // its owner is to look at once
}

// Without the keys nothing is believed: not even what the other end has room for.
TEST_F(UcMessageTest, WithoutTheKeysNothingIsBelieved) {
    ASSERT_NO_FATAL_FAILURE(start(options(1, 2), options(3, 1)));
    ASSERT_NO_FATAL_FAILURE(send(*client_, 1, size_of(1)));
    EXPECT_TRUE(comes_true([&] { return client_->statistics().datagrams_refused > 3; }));
    EXPECT_EQ(client_->statistics().datagrams_received, 0U);
    MessagePath::Message message;
    EXPECT_FALSE(server_->next_message(message));
}

TEST_F(UcMessageTest, ADeviceThatFailsIsNoticed) {
    ASSERT_NO_FATAL_FAILURE(start());
    exchange(7);
    network_.break_pairs();
    ASSERT_NO_FATAL_FAILURE(send(*client_, 1, size_of(1)));
    EXPECT_TRUE(comes_true([&] { return client_->has_failed(); }));
}

// What arrives late after the end of a path finds no window: the memory may be anybody's by then.
TEST_F(UcMessageTest, NothingArrivesAfterTheEnd) {
    ASSERT_NO_FATAL_FAILURE(start());
    network_.copies_immediates = true;
    exchange(7);
    network_.copies_immediates = false;
    server_.reset();
    client_.reset();
    EXPECT_EQ(network_.window_count(), 0U);
    EXPECT_EQ(network_.queue_pair_count(), 0U);
    EXPECT_GT(network_.deliver_copies(0xee), 0U);  // AddressSanitizer would see where
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
