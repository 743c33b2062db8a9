// SPDX-License-Identifier: MIT OR GPL-2.0-only
// UC carriers on devices of this process, which lose and delay what they are told to.
#include <gtest/gtest.h>

#include "tests/support/fake_network.h"
#include "tests/unit/rdma_blk/uc/uc_ends.h"

namespace tiffin::rdma_blk {
namespace {

using sdr::SchemeKind;

class UcSetUpTest : public ::testing::Test {
  protected:
    void SetUp() override {
        const uint8_t address[16] = {};
        std::string problem;
        left_ = network_.open(address, problem).release_value();
        right_ = network_.open(address, problem).release_value();
    }

    test::FakeNetwork network_;
    std::unique_ptr<verbs::Device> left_;
    std::unique_ptr<verbs::Device> right_;
};

class UcCarrierTest : public UcSetUpTest, public ::testing::WithParamInterface<UcCase> {};

constexpr uint32_t kMessages = 24;

TEST_P(UcCarrierTest, MessagesArriveInBothDirections) {
    UcEnds ends(GetParam());
    ends.start(*left_, *right_);
    ends.exchange(kMessages, 3);
    const UcStatistics statistics = ends.left().carrier->statistics();
    EXPECT_FALSE(statistics.has_failed);
    EXPECT_EQ(statistics.windows_opened, kMessages / 4);  // generations have 4 messages
    EXPECT_EQ(statistics.datagrams_refused, 0U);
    EXPECT_LE(network_.window_count(), 4U);
    if (GetParam().drop_ppm > 0) {
        EXPECT_GT(statistics.packets_dropped, 0U);
    }
}

// What is delayed comes after the messages that it is of, and after their generations.
TEST_P(UcCarrierTest, LateAndLostPacketsDoNoHarm) {
    network_.unreliable_loss_ppm = 20'000;
    network_.unreliable_delay_ppm = 20'000;
    UcEnds ends(GetParam());
    ends.start(*left_, *right_);
    ends.exchange(kMessages, 3);
    const test::FakeNetwork::Counts counts = network_.counts();
    EXPECT_GT(counts.unreliable_losses, 0U);
    EXPECT_GT(counts.unreliable_delays, 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Schemes, UcCarrierTest,
    ::testing::Values(UcCase{"repeat", {SchemeKind::selective_repeat, 0, 0}, 0, 0},
                      UcCase{"repeat_lossy", {SchemeKind::selective_repeat, 0, 0}, 0, 20'000},
                      UcCase{"nack_chunks", {SchemeKind::selective_repeat_nack, 0, 0}, 2, 20'000},
                      UcCase{"xor_lossy", {SchemeKind::erasure_xor, 16, 4}, 0, 20'000},
                      UcCase{"mds_lossy", {SchemeKind::erasure_mds, 16, 4}, 1, 20'000}),
    [](const auto& tested) { return tested.param.name; });

// Every packet comes once more when all is over, with other bytes. Those of the two last generations find their windows
// open; of them the endpoint knows that their messages are over. All others are written nowhere, and nobody hears of them.
TEST_F(UcSetUpTest, PacketsOfOldGenerationsLandNowhere) {
    UcEnds ends(UcCase{"", {SchemeKind::selective_repeat_nack, 0, 0}, 0, 0});
    ends.start(*left_, *right_);
    network_.copies_immediates = true;
    ends.exchange(16, 2);  // 4 generations
    const uint64_t written_before = ends.left().carrier->statistics().packets_written +
                                    ends.right().carrier->statistics().packets_written;
    ends.exchange(8, 2);  // 2 more
    network_.copies_immediates = false;
    const uint64_t refusals = network_.counts().refusals;
    EXPECT_GE(network_.deliver_copies(0xee), written_before);
    EXPECT_GE(network_.counts().refusals - refusals, written_before);
    ends.exchange(16, 2);
    EXPECT_FALSE(ends.left().carrier->statistics().has_failed);
}

constexpr UcCase kImpatient{"", {SchemeKind::selective_repeat_nack, 0, 0}, 0, 0, 200'000'000};

TEST_F(UcSetUpTest, APeerThatIsGoneIsNoticed) {
    UcEnds ends(kImpatient);
    ends.start(*left_, *right_);
    ends.right().carrier.reset();
    const sdr::Completion completion = ends.send_in_vain(ends.left());
    EXPECT_FALSE(completion.ok);
    EXPECT_EQ(completion.error, Error::etimedout);
    EXPECT_FALSE(ends.left().carrier->statistics().has_failed);  // its own device has not
}

TEST_F(UcSetUpTest, ADeviceThatFailsIsNoticed) {
    UcEnds ends(kImpatient);
    ends.start(*left_, *right_);
    network_.break_pairs();
    const sdr::Completion completion = ends.send_in_vain(ends.left());
    EXPECT_FALSE(completion.ok);
    EXPECT_EQ(completion.error, Error::etimedout);
    EXPECT_TRUE(ends.left().carrier->statistics().has_failed);
}

TEST_F(UcSetUpTest, OptionsThatCannotBeAreRefused) {
    auto context = sdr::context_create().release_value();
    sdr::QueuePairAttributes attributes;
    attributes.packet_bytes = 1024;
    auto connection = reliable_connection_create(*context, attributes, {}).release_value();
    UcOptions options;
    options.queue_pair = attributes;
    EXPECT_EQ(UcCarrier::create(*connection, *left_, options).error(), Error::e2big);  // memory
    options.queue_pair.max_messages = 4;
    options.receive_depth = 63;
    EXPECT_EQ(UcCarrier::create(*connection, *left_, options).error(), Error::einval);
    options.receive_depth = 64;
    options.queue_pair.packet_bytes = 512;  // not the endpoint's
    EXPECT_EQ(UcCarrier::create(*connection, *left_, options).error(), Error::einval);
    options.queue_pair.packet_bytes = 1024;
    network_.max_registration_bytes = 4096;
    EXPECT_EQ(UcCarrier::create(*connection, *left_, options).error(), Error::eio);
    network_.max_registration_bytes = ~uint64_t{0};
    network_.has_windows = false;
    std::string problem;
    const uint8_t address[16] = {};
    auto plain = network_.open(address, problem).release_value();
    EXPECT_EQ(UcCarrier::create(*connection, *plain, options).error(), Error::eopnotsupp);
}

TEST_F(UcSetUpTest, PeersThatDoNotFitAreRefused) {
    auto context = sdr::context_create().release_value();
    sdr::QueuePairAttributes attributes;
    attributes.packet_bytes = 1024;
    attributes.max_messages = 4;
    auto connection = reliable_connection_create(*context, attributes, {}).release_value();
    UcOptions options;
    options.queue_pair = attributes;
    options.queue_pair.max_message_bytes = 1 << 20;
    auto carrier = UcCarrier::create(*connection, *left_, options).release_value();
    UcInfo peer = carrier->info_get();
    peer.layout.max_messages = 8;
    EXPECT_EQ(carrier->start(peer).error(), Error::einval);
    peer = carrier->info_get();
    peer.data.mtu = 2;  // 512 bytes
    EXPECT_EQ(carrier->start(peer).error(), Error::e2big);
}

}  // namespace
}  // namespace tiffin::rdma_blk
