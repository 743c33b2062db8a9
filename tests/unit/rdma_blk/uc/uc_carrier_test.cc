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

TEST_F(UcSetUpTest, MessagesInPiecesArrive) {
    network_.unreliable_loss_ppm = 20'000;
    UcEnds ends(UcCase{"", {SchemeKind::selective_repeat_nack, 0, 0}, 2, 0});
    ends.start(*left_, *right_);
    for (const size_t piece_count : {1, 2, 65, 5000}) {
        SCOPED_TRACE(piece_count);
        ends.send_in_pieces(piece_count);
    }
    EXPECT_EQ(ends.left().carrier->statistics().packets_homeless, 0U);
}

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

// Woken by each change; a condition that does not come true within a minute is a failure.
template <typename IsTrue>
void wait_until(UcCarrier& carrier, IsTrue is_true) {
    const uint64_t end_ns = host::monotonic_ns() + 60'000'000'000;
    for (uint64_t seen = 0; !is_true(carrier.statistics());) {
        const uint64_t now_seen = carrier.wait(seen, 60'000'000);
        ASSERT_TRUE(now_seen != seen || host::monotonic_ns() < end_ns);
        seen = now_seen;
    }
}

void wait_for_failure(UcCarrier& carrier) {
    wait_until(carrier, [](const UcStatistics& now) { return now.has_failed; });
}

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
    wait_for_failure(*ends.left().carrier);  // of what was posted last nothing may be known yet
}

// It waits for nobody, so only the carrier can say it. What fails is the opening of the receive's window, when the thread
// looks around by itself: nothing else is a change that would end a wait.
TEST_F(UcSetUpTest, ADeviceThatFailsIsNoticedByWhoOnlyReceives) {
    UcEnds ends(kImpatient);
    ends.start(*left_, *right_);
    network_.break_pairs();
    ends.post_receive(ends.left());
    wait_for_failure(*ends.left().carrier);
    EXPECT_EQ(ends.left().carrier->statistics().windows_opened, 0U);
}

// By a peer that is no carrier: its immediate names a packet, but its bytes are not there.
TEST_F(UcSetUpTest, AWriteOfNothingIsNoPacket) {
    unsigned char datagram[sdr::kMaxUcDatagramBytes] = {};
    UcEnds ends(kImpatient);
    UcCarrier& carrier = ends.start_alone(*left_);
    auto memory = right_->register_memory(datagram, sizeof(datagram), false).release_value();
    auto data = right_->create_unreliable_queue_pair(4, 4).release_value();
    auto control = right_->create_unreliable_queue_pair(4, 4).release_value();
    const UcInfo own = carrier.info_get();
    UcInfo peer = own;
    peer.data = data->address();
    peer.control = control->address();
    ASSERT_TRUE(data->connect(own.data).ok());
    ASSERT_TRUE(control->connect(own.control).ok());
    verbs::Receive receive;
    receive.piece = {datagram, sizeof(datagram), memory->local_key()};
    ASSERT_TRUE(control->post_receives(&receive, 1).ok());
    ASSERT_TRUE(carrier.start(peer).ok());
    ends.post_receive(ends.left());
    carrier.kick();
    // What tells of the receive has the key.
    wait_until(carrier, [](const UcStatistics& now) { return now.datagrams_sent > 0; });
    verbs::Completion completion;
    ASSERT_EQ(control->poll(&completion, 1), 1U);
    sdr::UcHeader header;
    std::memcpy(&header, datagram, sizeof(header));
    ASSERT_NE(header.windows[0].key, 0U);
    verbs::WorkRequest work;
    work.kind = verbs::WorkKind::write_immediate;
    work.remote_address = own.arenas[0];
    work.remote_key = header.windows[0].key;
    work.immediate = sdr::encode_immediate({});
    ASSERT_TRUE(data->post(&work, 1).ok());
    wait_until(carrier, [](const UcStatistics& now) { return now.packets_received == 1; });
    EXPECT_EQ(carrier.statistics().packets_stray, 1U);
    EXPECT_EQ(carrier.statistics().packets_held, 0U);
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
    options.queue_pair.max_messages = 3;
    EXPECT_EQ(UcCarrier::create(*connection, *left_, options).error(), Error::einval);
    options.queue_pair.max_messages = 4;
    options.queue_pair.packets_per_chunk_log2 = 32;
    EXPECT_EQ(UcCarrier::create(*connection, *left_, options).error(), Error::einval);
    options.queue_pair.packets_per_chunk_log2 = 0;
    // In 32 bits its packets would be one.
    options.queue_pair.max_message_bytes = (uint64_t{1024} << 32) + 1;
    EXPECT_EQ(UcCarrier::create(*connection, *left_, options).error(), Error::einval);
    options.queue_pair.max_message_bytes = 1 << 20;
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
    peer.receive_depth = 65537;  // more than any carrier has
    EXPECT_EQ(carrier->start(peer).error(), Error::einval);
    peer = carrier->info_get();
    peer.data.mtu = 2;  // 512 bytes
    EXPECT_EQ(carrier->start(peer).error(), Error::e2big);
}

}  // namespace
}  // namespace tiffin::rdma_blk
