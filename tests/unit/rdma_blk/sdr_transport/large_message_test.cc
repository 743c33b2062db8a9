// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Whole messages between two paths of this process, over sockets of the loopback and in a time of the test's own.
#include "rdma_blk/transport/sdr/message_path.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk::test {
namespace {

using Bytes = std::vector<unsigned char>;

constexpr unsigned char kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
constexpr size_t kLarge = (size_t{1} << 20) - 5;

sockaddr_in6 loopback() {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    std::memcpy(&address.sin6_addr, kLoopback, sizeof(kLoopback));
    return address;
}

Bytes some_bytes(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    Bytes bytes(count);
    for (auto& byte : bytes) {
        byte = static_cast<unsigned char>(random());
    }
    return bytes;
}

// `count` of `bytes`, of different sizes.
std::vector<vfs::IoVector> pieces_of(Bytes& bytes, size_t count) {
    std::vector<vfs::IoVector> pieces;
    size_t offset = 0;
    for (size_t index = 0; index < count; index++) {
        const size_t left = bytes.size() - offset;
        const size_t size = index + 1 == count ? left : left / (count - index) / (1 + index % 3);
        pieces.push_back({bytes.data() + offset, size});
        offset += size;
    }
    return pieces;
}

class LargeMessageTest : public ::testing::Test {
  protected:
    std::unique_ptr<MessagePath> create(uint32_t drop_ppm) {
        MessagePathOptions options;
        options.local = loopback();
        options.packet_bytes = datagram_packet_bytes(loopback()).value();
        options.drop_ppm = drop_ppm;
        options.automatic_scheme = false;
        options.scheme = scheme_;
        auto made = MessagePath::create(options);
        EXPECT_TRUE(made.ok());
        return made.release_value();
    }
    void open(uint32_t left_drop_ppm, uint32_t right_drop_ppm) {
        left_ = create(left_drop_ppm);
        right_ = create(right_drop_ppm);
        sockaddr_in6 left = loopback();
        left.sin6_port = htons(left_->end().port);
        sockaddr_in6 right = loopback();
        right.sin6_port = htons(right_->end().port);
        ASSERT_TRUE(left_->start(right_->end(), right).ok());
        ASSERT_TRUE(right_->start(left_->end(), left).ok());
    }
    // Both ends live on for a moment in which nothing takes any time.
    void step() {
        now_ns_ += 50'000;
        for (MessagePath* path : {right_.get(), left_.get()}) {
            while (path->take(now_ns_)) {
                path->transmit(now_ns_);
            }
            path->transmit(now_ns_);
        }
    }
    // Until the right end has a message; the test's own timeout ends a hang.
    MessagePath::Message receive() {
        MessagePath::Message message;
        while (!right_->next_message(message)) {
            step();
        }
        return message;
    }
    uint64_t send(ByteSpan head, const std::vector<vfs::IoVector>& pieces) {
        while (!left_->has_room()) {
            step();
        }
        std::copy(head.begin(), head.end(), left_->begin_message());
        const auto sent =
            left_->send_gathered(now_ns_, head.size(), pieces.data(), pieces.size(), 7);
        EXPECT_TRUE(sent.ok()) << errno_value(sent.error());
        return sent.value();
    }
    // `count` messages of a head and pieces arrive as they were sent.
    void exchange(unsigned count, size_t piece_count) {
        Bytes head = some_bytes(99, 1);
        for (unsigned index = 0; index < count; index++) {
            Bytes bytes = some_bytes(kLarge - index, index);
            const std::vector<vfs::IoVector> pieces = pieces_of(bytes, piece_count);
            const uint64_t number = send(ByteSpan(head.data(), head.size()), pieces);
            const MessagePath::Message message = receive();
            EXPECT_EQ(message.use, 7U);
            ASSERT_EQ(message.bytes.size(), head.size() + bytes.size());
            EXPECT_EQ(std::memcmp(message.bytes.data(), head.data(), head.size()), 0);
            EXPECT_EQ(std::memcmp(message.bytes.data() + head.size(), bytes.data(), bytes.size()),
                      0);
            if (number != MessagePath::kNoMessage) {
                left_->give_back(number);
            }
            right_->release(now_ns_, message);
        }
    }

    sdr::SchemeChoice scheme_{sdr::SchemeKind::selective_repeat_nack, 0, 0};
    std::unique_ptr<MessagePath> left_;
    std::unique_ptr<MessagePath> right_;
    uint64_t now_ns_ = host::monotonic_ns();
};

TEST_F(LargeMessageTest, LargeMessagesAreNotCopied) {
    open(0, 0);
    exchange(16, 9);
    EXPECT_EQ(left_->statistics().bytes_copied, 0U);
    // Nobody expects the first packets of the first one. What a full socket drops is repeated, and what follows it is copied.
    EXPECT_LT(right_->statistics().bytes_copied, 16 * kLarge / 4);
    EXPECT_EQ(right_->statistics().datagrams_refused, 0U);
}

TEST_F(LargeMessageTest, ManySmallPiecesArrive) {
    open(0, 0);
    exchange(4, 5000);
    EXPECT_EQ(left_->statistics().bytes_copied, 0U);
}

TEST_F(LargeMessageTest, LossesLeaveNothingInTheWrongPlace) {
    open(50'000, 50'000);
    exchange(24, 30);
    EXPECT_GT(left_->statistics().chunks_repeated, 0U);
    EXPECT_EQ(right_->statistics().datagrams_refused, 0U);
}

TEST_F(LargeMessageTest, AnErasureCodeTakesACopy) {
    scheme_ = {sdr::SchemeKind::erasure_mds, sdr::kDefaultDataChunks, sdr::kDefaultParityChunks};
    open(50'000, 50'000);
    exchange(16, 30);
    EXPECT_GT(left_->statistics().bytes_copied, 15 * kLarge);
    EXPECT_GT(right_->statistics().blocks_decoded, 0U);
}

TEST_F(LargeMessageTest, WhatWasGivenBackIsNotRead) {
    open(1'000'000, 0);  // nothing of the left end's arrives, so everything is repeated
    for (int i = 0; i < 10; i++) {
        step();  // it learns that it may send
    }
    void* const memory =
        mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const std::vector<vfs::IoVector> pieces{{memory, kLarge}};
    const size_t room = left_->free_messages();
    const uint64_t number = send(ByteSpan(), pieces);
    ASSERT_NE(number, MessagePath::kNoMessage);
    EXPECT_EQ(left_->free_messages(), room - 1);
    for (int i = 0; i < 1000; i++) {
        now_ns_ += 2'000'000;
        step();
    }
    EXPECT_GT(left_->statistics().chunks_repeated, 0U);
    left_->give_back(number);
    EXPECT_EQ(left_->free_messages(), room);
    ASSERT_EQ(munmap(memory, kLarge), 0);
    for (int i = 0; i < 1000; i++) {
        now_ns_ += 5'000'000;
        step();
    }
    left_->give_back(number);  // once more: nothing
}

// An operation was answered over another link: its buffers go back, and the message arrives whole all the same.
TEST_F(LargeMessageTest, WhatIsKeptIsSentFromACopy) {
    open(300'000, 0);
    for (const int steps : {0, 1, 3, 10}) {
        void* const memory =
            mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(memory, MAP_FAILED);
        const Bytes head = some_bytes(99, 1);
        const Bytes bytes = some_bytes(kLarge, static_cast<unsigned>(steps));
        std::memcpy(memory, bytes.data(), kLarge);
        const std::vector<vfs::IoVector> pieces{
            {memory, 10'000}, {static_cast<char*>(memory) + 10'000, kLarge - 10'000}};
        const uint64_t number = send(ByteSpan(head.data(), head.size()), pieces);
        ASSERT_NE(number, MessagePath::kNoMessage);
        for (int step_number = 0; step_number < steps; step_number++) {
            step();
        }
        ASSERT_TRUE(left_->is_sending(number));
        left_->keep(number);
        ASSERT_EQ(munmap(memory, kLarge), 0);
        const MessagePath::Message message = receive();
        ASSERT_EQ(message.bytes.size(), head.size() + bytes.size());
        EXPECT_EQ(std::memcmp(message.bytes.data(), head.data(), head.size()), 0);
        EXPECT_EQ(std::memcmp(message.bytes.data() + head.size(), bytes.data(), kLarge), 0);
        right_->release(now_ns_, message);
    }
    EXPECT_GT(left_->statistics().chunks_repeated, 0U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
