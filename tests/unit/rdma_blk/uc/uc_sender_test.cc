// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the sending half of a UC carrier tells its peer.
#include <gtest/gtest.h>

#include <cstring>

#include "rdma_blk/transport/uc/uc_sender.h"
#include "tests/support/fake_network.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint32_t kPacketBytes = 64;
constexpr uint32_t kReceives = 8;

class UcSenderTest : public ::testing::Test {
  protected:
    void SetUp() override {
        const uint8_t address[16] = {};
        std::string problem;
        device_ = network_.open(address, problem).release_value();
        data_ = device_->create_unreliable_queue_pair(UcSender::kDataDepth, 16).release_value();
        control_ =
            device_->create_unreliable_queue_pair(UcSender::kDatagramCells, 16).release_value();
        peer_ = device_->create_unreliable_queue_pair(16, kReceives).release_value();
        ASSERT_TRUE(control_->connect(peer_->address()).ok());
        ASSERT_TRUE(peer_->connect(control_->address()).ok());
        memory_ = device_->register_memory(datagrams_, sizeof(datagrams_), false).release_value();
        for (uint32_t index = 0; index < kReceives; index++) {
            verbs::Receive receive;
            receive.id = index;
            receive.piece = {datagrams_[index], sdr::kMaxUcDatagramBytes, memory_->local_key()};
            ASSERT_TRUE(peer_->post_receives(&receive, 1).ok());
        }
        options_.queue_pair.packet_bytes = kPacketBytes;
        options_.queue_pair.max_messages = 4;
        options_.queue_pair.max_message_bytes = uint64_t{40} * kPacketBytes;
        layout_ = sdr::landing_layout(options_.queue_pair, {}).release_value();  // no parity
        sender_ = std::make_unique<UcSender>(options_, layout_, *data_, *control_);
        ASSERT_TRUE(sender_->open(*device_).ok());
        UcInfo peer;
        peer.receive_depth = 64;
        peer.layout = layout_;
        ASSERT_TRUE(sender_->connect(peer).ok());
    }
    // The description of a run of three packets, as the peer gets it.
    sdr::UcHeader describe(sdr::PacketKind kind) {
        sdr::Transmit out;
        out.run.kind = kind;
        out.run.scheme = {sdr::SchemeKind::erasure_mds, 8, 4};
        out.run.message_bytes = uint64_t{40} * kPacketBytes;
        out.run.packet_count = 3;
        out.run.payload = payload_;
        out.run.payload_bytes = sizeof(payload_);
        const sdr::UcWindow windows[sdr::kUcArenas] = {};
        EXPECT_TRUE(sender_->send(1'000'000, out, windows).ok());
        sdr::UcHeader header{};
        verbs::Completion completion;
        EXPECT_EQ(peer_->poll(&completion, 1), 1U);
        EXPECT_EQ(completion.size_bytes, sizeof(header) + sizeof(sdr::DataHeader));
        std::memcpy(&header, datagrams_[completion.id], sizeof(header));
        return header;
    }

    test::FakeNetwork network_;
    std::unique_ptr<verbs::Device> device_;
    unsigned char datagrams_[kReceives][sdr::kMaxUcDatagramBytes];
    unsigned char payload_[3 * kPacketBytes] = {};
    std::unique_ptr<verbs::Memory> memory_;
    std::unique_ptr<verbs::QueuePair> data_;
    std::unique_ptr<verbs::QueuePair> control_;
    std::unique_ptr<verbs::QueuePair> peer_;
    UcOptions options_;
    sdr::LandingLayout layout_;
    std::unique_ptr<UcSender> sender_;
};

// Numbers that nobody sends would be missed by the peer, and taken for losses.
TEST_F(UcSenderTest, OnlyPacketsThatAreWrittenHaveNumbers) {
    EXPECT_EQ(describe(sdr::PacketKind::data).packet_number, 0U);  // no window is known
    const sdr::UcWindow peers[sdr::kUcArenas] = {{0, 5}, {}};
    sender_->on_windows(peers);
    EXPECT_EQ(describe(sdr::PacketKind::parity).packet_number, 1U);  // no cell is there
    const sdr::UcHeader written = describe(sdr::PacketKind::data);
    EXPECT_EQ(written.packet_number, 2U);
    EXPECT_EQ(written.packet_count, 3U);
    EXPECT_EQ(describe(sdr::PacketKind::data).packet_number, 6U);
    UcStatistics statistics;
    sender_->add_statistics(statistics);
    EXPECT_EQ(statistics.packets_homeless, 6U);
    EXPECT_EQ(statistics.packets_written, 6U);
}

}  // namespace
}  // namespace tiffin::rdma_blk
