// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What becomes of immediates and descriptions, in any order and with any content.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "rdma_blk/sdr/reliable_connection.h"
#include "rdma_blk/transport/uc/uc_receiver.h"
#include "tests/support/fake_network.h"

namespace tiffin::rdma_blk {
namespace {

using sdr::DataRun;
using sdr::PacketKind;

constexpr uint32_t kPacketBytes = 64;
constexpr uint64_t kMessageBytes = uint64_t{40} * kPacketBytes;
constexpr uint16_t kMaxMessages = 4;

// Writes down what it is given, and reads all bytes of it; passes it on if there is somebody.
class Recorder final : public sdr::Endpoint {
  public:
    void on_data(uint64_t now_ns, const DataRun& run) override {
        runs.push_back(run);
        for (uint64_t index = 0; run.payload != nullptr && index < run.payload_bytes; index++) {
            sum += run.payload[index];
        }
        if (next != nullptr) {
            next->on_data(now_ns, run);
        }
    }
    void on_control(uint64_t, ByteSpan) override {}
    bool next_transmit(uint64_t, uint32_t, sdr::Transmit&) override { return false; }
    uint64_t next_timer_ns() const override { return sdr::kNoTimer; }
    void on_timer(uint64_t) override {}

    std::vector<DataRun> runs;
    uint64_t sum = 0;
    sdr::Endpoint* next = nullptr;
};

class UcReceiverTest : public ::testing::Test {
  protected:
    void SetUp() override {
        const uint8_t address[16] = {};
        std::string problem;
        device_ = network_.open(address, problem).release_value();
        pair_ = device_->create_unreliable_queue_pair(16, 16).release_value();
        layout_ =
            sdr::landing_layout(attributes(), {sdr::SchemeKind::erasure_mds, 8, 2}).release_value();
        receiver_ = std::make_unique<UcReceiver>(*device_, layout_);
        ASSERT_TRUE(receiver_->open().ok());
    }
    static sdr::QueuePairAttributes attributes() {
        sdr::QueuePairAttributes attributes;
        attributes.packet_bytes = kPacketBytes;
        attributes.max_messages = kMaxMessages;
        attributes.max_message_bytes = kMessageBytes;
        return attributes;
    }
    // Until all windows are open that `posted` receives need.
    void post(uint64_t posted) {
        while (receiver_->open_windows(posted, *pair_).release_value()) {
            verbs::Completion completion;
            ASSERT_EQ(pair_->poll(&completion, 1), 1U);
            ASSERT_EQ(completion.id, UcReceiver::kBindId);
            receiver_->on_bound();
        }
    }
    void describe(uint64_t message_number, uint32_t first_packet, uint16_t packets,
                  uint64_t packet_number, uint64_t message_bytes = kMessageBytes,
                  uint8_t flags = 0) {
        sdr::UcHeader header{};
        header.kind = static_cast<uint8_t>(PacketKind::data);
        header.packet_count = packets;
        header.packet_number = packet_number;
        sdr::DataHeader data{};
        data.message_number = message_number;
        data.message_bytes = message_bytes;
        data.packet_index = first_packet;
        data.user_immediate = 77;
        data.flags = flags;
        data.scheme = static_cast<uint8_t>(sdr::SchemeKind::selective_repeat);
        unsigned char bytes[sizeof(data)];
        std::memcpy(bytes, &data, sizeof(data));
        receiver_->on_description(now_ns_, header, ByteSpan(bytes, sizeof(bytes)), recorder_);
    }
    void arrive(uint64_t message_number, uint32_t packet, bool acknowledge_now = false,
                bool is_parity = false) {
        sdr::UcImmediate immediate;
        immediate.message_id = layout_.message_id(message_number);
        immediate.packet = packet;
        immediate.generation = static_cast<uint8_t>(layout_.generation(message_number) % 4);
        immediate.acknowledge_now = acknowledge_now;
        immediate.is_parity = is_parity;
        receiver_->on_immediate(now_ns_, sdr::encode_immediate(immediate), recorder_);
    }
    void flush() { receiver_->flush(now_ns_, recorder_); }
    UcStatistics statistics() {
        UcStatistics sum;
        receiver_->add_statistics(sum);
        return sum;
    }

    test::FakeNetwork network_;
    std::unique_ptr<verbs::Device> device_;
    std::unique_ptr<verbs::QueuePair> pair_;
    sdr::LandingLayout layout_;
    std::unique_ptr<UcReceiver> receiver_;
    Recorder recorder_;
    uint64_t now_ns_ = 1'000'000;
};

TEST_F(UcReceiverTest, ConsecutivePacketsAreOneRun) {
    post(1);
    describe(0, 0, 40, 0);
    for (uint32_t packet = 0; packet < 40; packet++) {
        if (packet != 20) {
            arrive(0, packet);
        }
    }
    flush();
    ASSERT_EQ(recorder_.runs.size(), 2U);
    EXPECT_EQ(recorder_.runs[0].first_packet, 0U);
    EXPECT_EQ(recorder_.runs[0].packet_count, 20U);
    EXPECT_EQ(recorder_.runs[0].user_immediate, 77U);
    EXPECT_EQ(recorder_.runs[0].payload_bytes, 20 * kPacketBytes);
    EXPECT_EQ(recorder_.runs[1].first_packet, 21U);
    EXPECT_EQ(recorder_.runs[1].packet_count, 19U);
    // 41 numbers, of which one is missing.
    const sdr::FeedbackHeader feedback = receiver_->take_feedback(now_ns_);
    EXPECT_EQ(feedback.highest_packet_number, 40U);
    EXPECT_EQ(feedback.packets_received, 40U);
}

TEST_F(UcReceiverTest, TheLastPacketIsAsLongAsItsMessage) {
    post(1);
    describe(0, 0, 2, 0, kPacketBytes + 5);
    arrive(0, 0);
    arrive(0, 1, true);
    arrive(0, 2);  // none of this message
    flush();
    ASSERT_EQ(recorder_.runs.size(), 1U);
    EXPECT_EQ(recorder_.runs[0].payload_bytes, kPacketBytes + 5);
    EXPECT_EQ(recorder_.runs[0].flags, sdr::data_flag::acknowledge_now);
    EXPECT_EQ(statistics().packets_stray, 1U);
}

TEST_F(UcReceiverTest, PacketsWaitForTheDescriptionOfTheirMessage) {
    post(2);
    arrive(1, 3);
    arrive(0, 7);
    arrive(1, 4);
    flush();
    EXPECT_TRUE(recorder_.runs.empty());
    describe(1, 3, 2, 5);
    flush();
    ASSERT_EQ(recorder_.runs.size(), 1U);
    EXPECT_EQ(recorder_.runs[0].message_number, 1U);
    EXPECT_EQ(recorder_.runs[0].first_packet, 3U);
    EXPECT_EQ(recorder_.runs[0].packet_count, 2U);
    EXPECT_EQ(statistics().packets_held, 3U);
    describe(0, 0, 40, 10);
    flush();
    EXPECT_EQ(recorder_.runs.back().first_packet, 7U);
}

// As many as are held, and no more; the end of their generation ends that, too.
TEST_F(UcReceiverTest, WhatIsHeldIsBounded) {
    post(1);
    for (uint32_t index = 0; index < UcReceiver::kHeldImmediates + 10; index++) {
        arrive(0, index % 40);
    }
    EXPECT_EQ(statistics().packets_dropped, 10U);
    post(2 * kMaxMessages + 1);
    EXPECT_EQ(statistics().packets_dropped, UcReceiver::kHeldImmediates + 10);
    describe(2 * kMaxMessages, 0, 1, 0);
    flush();
    EXPECT_TRUE(recorder_.runs.empty());
}

// With its own packets, not with those of which the description was lost.
TEST_F(UcReceiverTest, WhatADescriptionTellsItTellsOnce) {
    constexpr uint8_t kTells = sdr::data_flag::tells_delivered | sdr::data_flag::tells_posted;
    post(1);
    describe(0, 10, 10, 0, kMessageBytes, kTells);
    for (const uint32_t packet : {30U, 10U, 12U, 31U}) {
        arrive(0, packet);
    }
    describe(0, 0, 2, 20, kMessageBytes, kTells);
    arrive(0, 0);
    flush();
    ASSERT_EQ(recorder_.runs.size(), 5U);
    const uint8_t told[] = {0, kTells, 0, 0, kTells};
    for (size_t index = 0; index < 5; index++) {
        EXPECT_EQ(recorder_.runs[index].flags, told[index]) << index;
    }
}

TEST_F(UcReceiverTest, AnOvertakenDescriptionIsNotTaken) {
    post(1);
    describe(0, 10, 5, 100);
    describe(0, 0, 5, 50);
    arrive(0, 12);
    flush();
    EXPECT_EQ(receiver_->take_feedback(now_ns_).highest_packet_number, 103U);
    EXPECT_EQ(recorder_.runs.size(), 1U);
}

// Two generations are open, each with a key of its own; of older ones only descriptions are heard, without bytes.
TEST_F(UcReceiverTest, GenerationsTakeTurns) {
    std::vector<uint32_t> keys;
    for (uint64_t generation = 0; generation < 6; generation++) {
        post(generation * kMaxMessages + 1);
        const sdr::UcWindow& window = receiver_->windows()[generation % 2];
        EXPECT_EQ(window.generation, generation);
        for (const uint32_t key : keys) {
            EXPECT_NE(window.key, key);
        }
        keys.push_back(window.key);
        EXPECT_EQ(network_.window_count(), generation == 0 ? 1U : 2U);
    }
    EXPECT_EQ(statistics().windows_opened, 6U);
    describe(3 * kMaxMessages, 0, 2, 0);
    ASSERT_EQ(recorder_.runs.size(), 1U);
    EXPECT_EQ(recorder_.runs[0].message_number, 3 * kMaxMessages);
    EXPECT_EQ(recorder_.runs[0].payload, nullptr);
    arrive(3 * kMaxMessages, 0);  // completed before its window was closed
    flush();
    EXPECT_EQ(recorder_.runs.size(), 1U);
    EXPECT_EQ(statistics().packets_stray, 1U);
    EXPECT_EQ(statistics().runs_late, 1U);
}

TEST_F(UcReceiverTest, SkippedGenerationsAreNotOpened) {
    post(1);
    post(5 * kMaxMessages + 1);
    EXPECT_EQ(receiver_->windows()[0].generation, 4U);
    EXPECT_EQ(receiver_->windows()[1].generation, 5U);
    EXPECT_EQ(statistics().windows_opened, 3U);
}

// They would be told of receives before anybody can have heard of them.
TEST_F(UcReceiverTest, DescriptionsOfGenerationsToComeAreRefused) {
    describe(0, 0, 1, 0);
    post(1);
    describe(kMaxMessages, 0, 1, 0);
    ASSERT_TRUE(receiver_->open_windows(kMaxMessages + 1, *pair_).release_value());
    describe(kMaxMessages, 0, 1, 0);  // its window is not open yet
    EXPECT_TRUE(recorder_.runs.empty());
    EXPECT_EQ(statistics().datagrams_refused, 3U);
    EXPECT_EQ(statistics().runs_late, 0U);
}

// The description says that there is none; one immediate came before it, and one after.
TEST_F(UcReceiverTest, ParityOfAMessageWithoutACodeIsStray) {
    post(1);
    arrive(0, 3, false, true);
    describe(0, 0, 40, 0);
    arrive(0, 0, false, true);
    flush();
    EXPECT_TRUE(recorder_.runs.empty());
    EXPECT_EQ(statistics().packets_stray, 2U);
}

// ---- What a peer makes up ----------------------------------------------------------------------------------

class UcReceiverLiesTest : public UcReceiverTest {
  protected:
    // Of messages around `first`, mostly; or of any.
    void say_something(uint64_t first) {
        if (random_() % 4 != 0) {
            immediates_++;
            sdr::UcImmediate immediate = sdr::decode_immediate(static_cast<uint32_t>(random_()));
            if (random_() % 2 == 0) {
                // A cell that is there.
                const uint64_t number = first + random_() % (2 * kMaxMessages);
                immediate.message_id = layout_.message_id(number);
                immediate.generation = static_cast<uint8_t>(layout_.generation(number) % 4);
                immediate.packet %= random_() % 2 == 0 ? 64 : 4;
            }
            receiver_->on_immediate(now_ns_, sdr::encode_immediate(immediate), recorder_);
            return;
        }
        now_ns_ += 1000;
        packet_number_++;
        sdr::UcHeader header{};
        header.kind = static_cast<uint8_t>(1 + random_() % 2);
        header.packet_count = static_cast<uint16_t>(random_());
        header.packet_number = random_() % 2 == 0 ? random_() : packet_number_;
        sdr::DataHeader data{};
        data.message_number = random_() % 8 == 0 ? random_() : first + random_() % 12;
        data.message_bytes = random_() % 8 == 0 ? random_() : random_() % (2 * kMessageBytes);
        data.scheme = static_cast<uint8_t>(random_() % 6);
        if (random_() % 2 == 0) {
            // What does not contradict what was said of this message before.
            data.message_bytes = (1 + data.message_number % 3) * kPacketBytes;
            data.scheme = static_cast<uint8_t>(1 + data.message_number % 4);
        }
        data.packet_index = static_cast<uint32_t>(random_() % 8 == 0 ? random_() : random_() % 50);
        data.data_chunks = data.scheme >= 3 ? 8 : 0;
        data.parity_chunks = data.scheme >= 3 ? 2 : 0;
        unsigned char bytes[sizeof(data)];
        std::memcpy(bytes, &data, sizeof(data));
        const size_t size_bytes = random_() % 16 == 0 ? random_() % sizeof(data) : sizeof(data);
        receiver_->on_description(now_ns_, header, ByteSpan(bytes, size_bytes), recorder_);
    }
    void check_runs() const {
        for (const DataRun& run : recorder_.runs) {
            if (run.payload != nullptr) {
                EXPECT_TRUE(layout_.has_cells(run.kind == PacketKind::parity, run.first_packet,
                                              run.packet_count));
                EXPECT_LE(run.payload_bytes, uint64_t{run.packet_count} * kPacketBytes);
                EXPECT_TRUE(run.kind == PacketKind::data || run.scheme.is_erasure());
            }
        }
        EXPECT_EQ(recorder_.sum, 0U);  // nobody has written anything there
    }

    static constexpr int kRounds = 20'000;
    std::mt19937_64 random_{3};
    uint64_t immediates_ = 0;
    uint64_t packet_number_ = 0;
};

// Nothing outside of the arenas is touched.
TEST_F(UcReceiverLiesTest, AnyImmediateAndAnyDescription) {
    post(kMaxMessages + 1);
    for (int round = 0; round < kRounds; round++) {
        say_something(0);
    }
    flush();
    EXPECT_EQ(statistics().packets_received, immediates_);
    check_runs();
}

// A connection that has receives posted takes what it is given, and goes on; messages even arrive.
TEST_F(UcReceiverLiesTest, AConnectionBearsThem) {
    unsigned char target[kMessageBytes];
    auto context = sdr::context_create().release_value();
    const auto memory = context->mr_reg(MutableByteSpan(target, sizeof(target))).release_value();
    auto connection = reliable_connection_create(*context, attributes(), {}).release_value();
    ASSERT_TRUE(connection->connect(connection->info_get()).ok());
    recorder_.next = connection.get();
    uint64_t received = 0;
    for (int round = 0; round < kRounds; round++) {
        sdr::Completion completion;
        while (connection->next_completion(completion)) {
            received += completion.ok ? 1 : 0;
        }
        if (round % 64 == 63) {
            // One of which nonsense was believed would never be complete. It may be complete already.
            (void)connection->recv_discard(connection->receives_posted() - kMaxMessages);
        }
        while (connection->recv_post(now_ns_, memory).ok()) {
        }
        post(connection->receives_posted());
        const uint64_t posted = connection->receives_posted();
        say_something(posted - std::min<uint64_t>(posted, 2 * kMaxMessages));
        if (round % 8 == 0) {
            flush();
            connection->on_timer(now_ns_);
            sdr::Transmit out;
            while (connection->next_transmit(now_ns_, 64, out)) {
            }
        }
    }
    EXPECT_FALSE(connection->has_failed());
    EXPECT_GT(received, uint64_t{10} * kMaxMessages);
    check_runs();
}

}  // namespace
}  // namespace tiffin::rdma_blk
