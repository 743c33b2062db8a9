// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a sender learns of bursts: a connection on a simulated link that loses neighbours.
#include <gtest/gtest.h>

#include <memory>

#include "rdma_blk/sdr/reliable_connection.h"
#include "rdma_blk/sdr/simulated/network.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint32_t kPacketBytes = 4096;
constexpr uint64_t kMessageBytes = 8 << 20;

// One direction is lossy. Messages have a size and no bytes.
class BurstTest : public testing::Test {
  protected:
    void connect(const SchemeChoice& scheme, double loss, double mean_burst, uint64_t seed) {
        sender_.reset();  // of an earlier one, before its context
        receiver_.reset();
        network_ = std::make_unique<Network>(NetworkOptions{kPacketBytes, 0, 16});
        context_ = context_create().release_value();
        QueuePairAttributes queue_pair;
        queue_pair.packet_bytes = kPacketBytes;
        queue_pair.packets_per_chunk_log2 = 0;
        queue_pair.max_messages = 4;
        queue_pair.max_message_bytes = kMessageBytes;
        queue_pair.bytes_in_flight = 4 * kMessageBytes;
        ReliabilityAttributes reliability;
        reliability.scheme = scheme;
        reliability.initial_round_trip_us = 2000;
        reliability.without_bytes = true;
        sender_ = reliable_connection_create(*context_, queue_pair, reliability).release_value();
        receiver_ = reliable_connection_create(*context_, queue_pair, reliability).release_value();
        ASSERT_TRUE(sender_->connect(receiver_->info_get()).ok());
        ASSERT_TRUE(receiver_->connect(sender_->info_get()).ok());
        memory_ = context_->mr_reg(MutableByteSpan(nullptr, kMessageBytes)).release_value();
        simulation::LinkOptions link;
        link.bits_per_second = 100e9;
        link.delay_ns = 1'000'000;
        sending_node_ = network_->add(*sender_);
        receiving_node_ = network_->add(*receiver_);
        const auto backward = network_->add_link(link, seed + 1);
        if (mean_burst > 1) {
            link.loss = simulation::burst_loss(loss, mean_burst);
        } else {
            link.loss.good_rate = loss;
        }
        network_->connect(sending_node_, receiving_node_, network_->add_link(link, seed), backward);
    }
    void send(int messages) {
        for (int message = 0; message < messages; message++) {
            ASSERT_TRUE(receiver_->recv_post(network_->now_ns(), memory_).ok());
            network_->kick(receiving_node_);
            ASSERT_TRUE(sender_->send_post(network_->now_ns(), memory_, 0).ok());
            network_->kick(sending_node_);
            Completion completion;
            while (!sender_->next_completion(completion)) {
                ASSERT_TRUE(network_->step());
                ASSERT_LT(network_->steps(), 10'000'000U);
            }
            ASSERT_TRUE(completion.ok);
            ASSERT_TRUE(receiver_->next_completion(completion));
            ASSERT_TRUE(completion.ok);
        }
    }

    std::unique_ptr<Context> context_;
    std::unique_ptr<ReliableConnection> sender_;
    std::unique_ptr<ReliableConnection> receiver_;
    std::unique_ptr<Network> network_;
    RegisteredMemory memory_;
    Network::Node sending_node_ = 0;
    Network::Node receiving_node_ = 0;
};

constexpr SchemeChoice kNack{SchemeKind::selective_repeat_nack, 0, 0};
constexpr SchemeChoice kCode{SchemeKind::erasure_mds, 32, 8};

TEST_F(BurstTest, ASenderLearnsHowLongBurstsAre) {
    for (const SchemeChoice& scheme : {kNack, kCode}) {
        for (const double mean_burst : {1.0, 4.0, 16.0}) {
            for (const uint64_t seed : {1U, 2U, 3U}) {
                connect(scheme, 0.01, mean_burst, seed * 10);
                send(40);
                const double measured = sender_->reliability_statistics().mean_loss_run;
                // Of 800 chunks that were lost. A code counts a burst that goes on in the next group as two, and of
                // one that reaches into its parity what lies before that.
                const double least = scheme.is_erasure() ? 0.6 : 0.75;
                EXPECT_GT(measured, least * mean_burst) << mean_burst << ", seed " << seed;
                EXPECT_LT(measured, 1.3 * mean_burst) << mean_burst << ", seed " << seed;
                if (mean_burst == 1) {
                    EXPECT_LT(measured, 1.05);
                }
            }
        }
    }
}

TEST_F(BurstTest, WithoutLossEachWouldBeAlone) {
    connect(kNack, 0, 1, 1);
    send(3);
    EXPECT_EQ(sender_->reliability_statistics().mean_loss_run, 1);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
