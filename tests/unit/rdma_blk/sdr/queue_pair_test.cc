// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The SDK without any scheme on top, by crafted packets.
#include "rdma_blk/sdr/queue_pair.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/unit/rdma_blk/sdr/bytes.h"

namespace tiffin::rdma_blk::sdr {
namespace {

class QueuePairTest : public testing::Test {
  protected:
    static constexpr uint32_t kPacketBytes = 64;

    void SetUp() override {
        attributes_.packet_bytes = kPacketBytes;
        attributes_.max_messages = 4;
        attributes_.max_message_bytes = 64 * 300;
        attributes_.bytes_in_flight = 64 * 600;
        make();
    }

    void make() {
        context_ = context_create().release_value();
        sender_ = context_->qp_create(attributes_).release_value();
        receiver_ = context_->qp_create(attributes_).release_value();
        ASSERT_TRUE(sender_->qp_connect(receiver_->qp_info_get()).ok());
        ASSERT_TRUE(receiver_->qp_connect(sender_->qp_info_get()).ok());
    }

    RegisteredMemory memory(std::vector<unsigned char>& bytes) {
        return context_->mr_reg(MutableByteSpan(bytes.data(), bytes.size())).release_value();
    }

    // Takes all that `from` wants to send; control messages are delivered, runs are returned.
    std::vector<DataRun> drain(QueuePair& from, QueuePair& to, uint32_t max_packets = 1) {
        std::vector<DataRun> runs;
        Transmit out;
        while (from.next_transmit(now_ns_, max_packets, out)) {
            if (out.is_control) {
                to.on_control(now_ns_, ByteSpan(out.control, out.control_bytes));
            } else {
                runs.push_back(out.run);
            }
        }
        return runs;
    }
    // The packets of message 0 of this size, which both ends have agreed on.
    std::vector<DataRun> one_message(std::vector<unsigned char>& from,
                                     std::vector<unsigned char>& to, uint32_t max_packets = 1) {
        EXPECT_TRUE(receiver_->recv_post(memory(to)).ok());
        EXPECT_TRUE(sender_->send_post(memory(from), 0xabcd1234).ok());
        drain(*receiver_, *sender_);
        return drain(*sender_, *receiver_, max_packets);
    }

    QueuePairAttributes attributes_;
    std::unique_ptr<Context> context_;
    std::unique_ptr<QueuePair> sender_;
    std::unique_ptr<QueuePair> receiver_;
    uint64_t now_ns_ = 1'000'000;
};

// A part of a message whose receive is not posted does not hold up the repetition of one whose receive is.
TEST_F(QueuePairTest, RepetitionsPassWhatIsNotClearToSend) {
    std::vector<unsigned char> from = some_bytes(64 * 4, 1);
    std::vector<unsigned char> to(64 * 4, 0);
    ASSERT_TRUE(receiver_->recv_post(memory(to)).ok());
    drain(*receiver_, *sender_);
    for (uint64_t number = 0; number < 2; number++) {
        ASSERT_TRUE(sender_->send_stream_start(from.size(), 1).ok());
        ASSERT_TRUE(sender_->send_stream_continue(number, 0, memory(from)).ok());
    }
    EXPECT_EQ(drain(*sender_, *receiver_).size(), 4U);
    ASSERT_TRUE(sender_->send_stream_continue(0, 64, memory(from).slice(64, 64)).ok());
    const std::vector<DataRun> again = drain(*sender_, *receiver_);
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0].message_number, 0U);
    EXPECT_EQ(again[0].first_packet, 1U);
    // And what waits keeps its order.
    ASSERT_TRUE(receiver_->recv_complete(0).ok());
    ASSERT_TRUE(receiver_->recv_post(memory(to)).ok());
    drain(*receiver_, *sender_);
    EXPECT_EQ(drain(*sender_, *receiver_).size(), 4U);
}

TEST_F(QueuePairTest, DeliversAMessageInAnyOrder) {
    std::vector<unsigned char> from = some_bytes(64 * 9 + 5, 1);
    std::vector<unsigned char> to(64 * 12, 0);
    std::vector<DataRun> runs = one_message(from, to);
    ASSERT_EQ(runs.size(), 10U);
    EXPECT_EQ(receiver_->recv_imm_get(0).error(), Error::eagain);
    for (size_t index = runs.size(); index-- > 0;) {
        EXPECT_FALSE(receiver_->recv_bitmap_get(0)->is_complete());
        receiver_->on_data(now_ns_, runs[index]);
        EXPECT_TRUE(receiver_->recv_bitmap_get(0)->has(static_cast<uint32_t>(index)));
    }
    EXPECT_TRUE(receiver_->recv_bitmap_get(0)->is_complete());
    EXPECT_EQ(receiver_->recv_bitmap_get(0)->message_bytes, from.size());
    EXPECT_EQ(receiver_->recv_imm_get(0).value(), 0xabcd1234U);
    EXPECT_EQ(std::memcmp(from.data(), to.data(), from.size()), 0);
    EXPECT_TRUE(sender_->send_poll(0).ok());
    EXPECT_EQ(sender_->send_poll(0).error(), Error::einval);
    EXPECT_TRUE(receiver_->recv_complete(0).ok());
    EXPECT_EQ(receiver_->recv_complete(0).error(), Error::einval);
}

TEST_F(QueuePairTest, NothingIsSentBeforeTheReceiveIsPosted) {
    std::vector<unsigned char> from = some_bytes(100, 1);
    std::vector<unsigned char> to(100);
    ASSERT_TRUE(sender_->send_post(memory(from), 0).ok());
    EXPECT_TRUE(drain(*sender_, *receiver_).empty());
    EXPECT_EQ(sender_->send_poll(0).error(), Error::eagain);
    ASSERT_TRUE(receiver_->recv_post(memory(to)).ok());
    Transmit lost;
    ASSERT_TRUE(receiver_->next_transmit(now_ns_, 1, lost));  // the announcement gets lost
    EXPECT_FALSE(receiver_->next_transmit(now_ns_, 1, lost));
    EXPECT_EQ(receiver_->next_timer_ns(), kNoTimer);
    ASSERT_NE(sender_->next_timer_ns(), kNoTimer);
    now_ns_ = sender_->next_timer_ns();
    sender_->on_timer(now_ns_);
    EXPECT_TRUE(drain(*sender_, *receiver_).empty());  // the request
    EXPECT_EQ(sender_->statistics().clear_to_send_requests, 1U);
    drain(*receiver_, *sender_);
    EXPECT_EQ(drain(*sender_, *receiver_).size(), 2U);
    EXPECT_EQ(sender_->next_timer_ns(), kNoTimer);
}

TEST_F(QueuePairTest, RequestsBecomeRarer) {
    std::vector<unsigned char> from = some_bytes(100, 1);
    ASSERT_TRUE(sender_->send_post(memory(from), 0).ok());
    for (int second = 0; second < 100; second++) {
        now_ns_ += 10'000'000;
        drain(*sender_, *receiver_);
    }
    EXPECT_GE(sender_->statistics().clear_to_send_requests, 7U);
    EXPECT_LE(sender_->statistics().clear_to_send_requests, 12U);
}

TEST_F(QueuePairTest, LatePacketsChangeNothing) {
    std::vector<unsigned char> from = some_bytes(64 * 4, 1);
    std::vector<unsigned char> to(64 * 4, 0);
    const std::vector<DataRun> runs = one_message(from, to);
    receiver_->on_data(now_ns_, runs[0]);
    ASSERT_TRUE(receiver_->recv_complete(0).ok());
    const std::vector<unsigned char> before = to;
    for (const DataRun& run : runs) {
        EXPECT_EQ(receiver_->place(run).kind, Arrival::Kind::late);
    }
    // The same memory is posted again, and gets the same slot after a while.
    for (int again = 0; again < 4; again++) {
        ASSERT_TRUE(receiver_->recv_post(memory(to)).ok());
    }
    for (const DataRun& run : runs) {
        EXPECT_EQ(receiver_->place(run).kind, Arrival::Kind::late);
    }
    EXPECT_EQ(to, before);
    EXPECT_EQ(receiver_->recv_bitmap_get(4)->chunks_received, 0U);
    EXPECT_EQ(receiver_->statistics().packets_late, 8U);
}

TEST_F(QueuePairTest, RepeatedPacketsDoNotWriteAgain) {
    std::vector<unsigned char> from = some_bytes(64 * 4, 1);
    std::vector<unsigned char> to(64 * 4, 0);
    const std::vector<DataRun> runs = one_message(from, to);
    receiver_->on_data(now_ns_, runs[1]);
    to[64] ^= 1;  // the application uses the chunk already
    const unsigned char used = to[64];
    EXPECT_EQ(receiver_->place(runs[1]).kind, Arrival::Kind::repeated);
    EXPECT_EQ(to[64], used);
    // A run that overlaps it fills in what is around.
    DataRun whole = runs[0];
    whole.packet_count = 4;
    whole.payload = from.data();
    whole.payload_bytes = from.size();
    EXPECT_EQ(receiver_->place(whole).new_packets, 3U);
    EXPECT_EQ(to[64], used);
    to[64] ^= 1;
    EXPECT_EQ(to, from);
}

TEST_F(QueuePairTest, ContradictionsAreRefused) {
    std::vector<unsigned char> from = some_bytes(64 * 4 - 3, 1);
    std::vector<unsigned char> to(64 * 4, 0x55);
    const std::vector<DataRun> runs = one_message(from, to);
    const auto refused = [&](auto change) {
        DataRun run = runs[1];
        change(run);
        return receiver_->place(run).kind == Arrival::Kind::malformed;
    };
    EXPECT_TRUE(refused([](DataRun& run) { run.message_bytes = 64 * 5; }));  // does not fit
    EXPECT_TRUE(refused([](DataRun& run) { run.message_bytes = 0; }));
    EXPECT_TRUE(refused([](DataRun& run) { run.first_packet = 4; }));
    EXPECT_TRUE(refused([](DataRun& run) { run.first_packet = 3; }));  // the last one is shorter
    EXPECT_TRUE(refused([](DataRun& run) { run.payload_bytes = 63; }));
    EXPECT_TRUE(refused([](DataRun& run) { run.packet_count = 0; }));
    EXPECT_TRUE(refused([](DataRun& run) { run.packet_count = 2; }));
    EXPECT_EQ(receiver_->recv_imm_get(0).error(), Error::eagain);  // nothing was learnt from them
    receiver_->on_data(now_ns_, runs[0]);
    EXPECT_TRUE(refused([](DataRun& run) { run.message_bytes--; }));
    EXPECT_TRUE(refused([](DataRun& run) { run.user_immediate++; }));
    EXPECT_TRUE(refused([](DataRun& run) { run.scheme.kind = SchemeKind::selective_repeat; }));
    DataRun beyond = runs[1];
    beyond.message_number = 1;
    EXPECT_EQ(receiver_->place(beyond).kind, Arrival::Kind::not_posted);
    EXPECT_EQ(to[64], 0x55);
}

TEST_F(QueuePairTest, ChunksAreThereWhenAllTheirPacketsAre) {
    attributes_.packets_per_chunk_log2 = 2;
    make();
    std::vector<unsigned char> from = some_bytes(64 * 10 - 1, 1);
    std::vector<unsigned char> to(from.size());
    const std::vector<DataRun> runs = one_message(from, to, 4);
    ASSERT_EQ(runs.size(), 3U);  // never cut within a chunk
    EXPECT_EQ(runs[2].packet_count, 2U);
    for (uint32_t packet = 0; packet < 10; packet++) {
        DataRun single = runs[packet / 4];
        single.payload += uint64_t{packet % 4} * kPacketBytes;
        single.first_packet = packet;
        single.packet_count = 1;
        single.payload_bytes = packet == 9 ? 63 : 64;
        receiver_->on_data(now_ns_, single);
        const BitmapView view = receiver_->recv_bitmap_get(0).release_value();
        EXPECT_EQ(view.chunk_count, 3U);
        EXPECT_EQ(view.chunks_received, packet == 9 ? 3 : (packet + 1) / 4);
    }
    EXPECT_EQ(from, to);
    ASSERT_TRUE(receiver_->recv_complete(0).ok());
}

TEST_F(QueuePairTest, RunsEndAtChunks) {
    attributes_.packets_per_chunk_log2 = 3;
    make();
    std::vector<unsigned char> from = some_bytes(64 * 60, 1);
    std::vector<unsigned char> to(from.size());
    for (const uint32_t most : {1U, 7U, 8U, 9U, 17U, 64U}) {
        make();
        const std::vector<DataRun> runs = one_message(from, to, most);
        uint32_t next = 0;
        for (const DataRun& run : runs) {
            EXPECT_EQ(run.first_packet, next);
            next += run.packet_count;
            EXPECT_TRUE(next % 8 == 0 || next == 60);
            EXPECT_LE(run.packet_count, std::max(most, 8U));
        }
        EXPECT_EQ(next, 60U);
    }
}

TEST_F(QueuePairTest, StreamsMaySendAnyPartAgain) {
    std::vector<unsigned char> from = some_bytes(64 * 4 + 1, 1);
    std::vector<unsigned char> to(from.size());
    ASSERT_TRUE(receiver_->recv_post(memory(to)).ok());
    drain(*receiver_, *sender_);
    const uint64_t number = sender_->send_stream_start(from.size(), 7).release_value();
    const RegisteredMemory all = memory(from);
    const auto send = [&](uint64_t offset, uint64_t size) {
        return sender_->send_stream_continue(number, offset, all.slice(offset, size));
    };
    EXPECT_EQ(send(32, 64).error(), Error::einval);
    EXPECT_EQ(send(64, 32).error(), Error::einval);
    EXPECT_EQ(sender_->send_stream_continue(number, 256, all.slice(0, 2)).error(), Error::einval);
    EXPECT_EQ(sender_->send_stream_continue(number, 320, all.slice(0, 1)).error(), Error::einval);
    ASSERT_TRUE(send(128, 64).ok());
    ASSERT_TRUE(send(128, 64).ok());
    ASSERT_TRUE(send(192, 65).ok());
    ASSERT_TRUE(send(0, 128).ok());
    EXPECT_EQ(sender_->send_poll(number).error(), Error::eagain);
    ASSERT_TRUE(sender_->send_stream_end(number).ok());
    EXPECT_EQ(send(0, 64).error(), Error::einval);
    for (const DataRun& run : drain(*sender_, *receiver_, 100)) {
        receiver_->on_data(now_ns_, run);
    }
    EXPECT_TRUE(sender_->send_poll(number).ok());
    EXPECT_EQ(from, to);
    EXPECT_EQ(receiver_->statistics().packets_repeated, 1U);
}

TEST_F(QueuePairTest, AMessageThatDoesNotFitIsNotSent) {
    std::vector<unsigned char> from = some_bytes(101, 1);
    std::vector<unsigned char> to(100);
    EXPECT_TRUE(one_message(from, to).empty());
    EXPECT_EQ(sender_->send_poll(0).error(), Error::e2big);
    EXPECT_EQ(sender_->statistics().packets_sent, 0U);
}

TEST_F(QueuePairTest, ResourcesAreBounded) {
    std::vector<unsigned char> bytes(64 * 300);
    const RegisteredMemory all = memory(bytes);
    ASSERT_TRUE(receiver_->recv_post(all).ok());
    ASSERT_TRUE(receiver_->recv_post(all).ok());
    EXPECT_EQ(receiver_->recv_post(all.slice(0, 64)).error(), Error::eagain);  // bytes in flight
    ASSERT_TRUE(receiver_->recv_complete(1).ok());
    ASSERT_TRUE(receiver_->recv_post(all.slice(0, 64)).ok());
    ASSERT_TRUE(receiver_->recv_post(all.slice(0, 64)).ok());
    EXPECT_EQ(receiver_->recv_post(all.slice(0, 64)).error(), Error::eagain);  // slots
    for (int count = 0; count < 4; count++) {
        ASSERT_TRUE(sender_->send_post(all, 0).ok());
    }
    EXPECT_EQ(sender_->send_post(all, 0).error(), Error::eagain);
    std::vector<unsigned char> large(64 * 300 + 1);
    EXPECT_EQ(sender_->send_post(memory(large), 0).error(), Error::einval);
    EXPECT_EQ(receiver_->recv_post(memory(large)).error(), Error::einval);
}

TEST_F(QueuePairTest, TheSendQueueIsBounded) {
    std::vector<unsigned char> bytes(64);
    const RegisteredMemory all = memory(bytes);
    const uint64_t number = sender_->send_stream_start(64, 0).release_value();
    for (uint32_t count = 0; count < kSendQueueRanges; count++) {
        ASSERT_TRUE(sender_->send_stream_continue(number, 0, all).ok());
    }
    EXPECT_EQ(sender_->send_stream_continue(number, 0, all).error(), Error::eagain);
    sender_->send_abort(number);
    ASSERT_TRUE(receiver_->recv_post(all).ok());
    drain(*receiver_, *sender_);
    EXPECT_TRUE(drain(*sender_, *receiver_).empty());
    EXPECT_TRUE(sender_->send_post(all, 0).ok());
}

TEST_F(QueuePairTest, UserControlMessagesPass) {
    const unsigned char message[3] = {1, 2, 3};
    unsigned char out[kMaxUserControlBytes];
    EXPECT_EQ(receiver_->control_poll(out).error(), Error::eagain);
    for (uint32_t count = 0; count < kMaxUserControls; count++) {
        ASSERT_TRUE(sender_->control_send(message).ok());
    }
    EXPECT_EQ(sender_->control_send(message).error(), Error::eagain);
    drain(*sender_, *receiver_);
    EXPECT_EQ(receiver_->control_poll(MutableByteSpan(out, 2)).error(), Error::einval);
    for (uint32_t count = 0; count < kMaxUserControls; count++) {
        ASSERT_EQ(receiver_->control_poll(out).value(), 3U);
    }
    EXPECT_EQ(std::memcmp(out, message, 3), 0);
    EXPECT_EQ(receiver_->control_poll(out).error(), Error::eagain);
}

TEST_F(QueuePairTest, MessagesWithoutMemoryCost) {
    attributes_.packet_bytes = 65536;
    attributes_.max_message_bytes = uint64_t{8} << 30;
    attributes_.bytes_in_flight = attributes_.max_message_bytes;
    make();
    const RegisteredMemory none =
        context_->mr_reg(MutableByteSpan(nullptr, uint64_t{8} << 30)).release_value();
    ASSERT_TRUE(receiver_->recv_post(none).ok());
    ASSERT_TRUE(sender_->send_post(none, 0).ok());
    drain(*receiver_, *sender_);
    const std::vector<DataRun> runs = drain(*sender_, *receiver_, 1U << 30);
    ASSERT_EQ(runs.size(), 1U);
    EXPECT_EQ(runs[0].packet_count, 131072U);
    receiver_->on_data(now_ns_, runs[0]);
    EXPECT_TRUE(receiver_->recv_bitmap_get(0)->is_complete());
}

TEST_F(QueuePairTest, AttributesAreChecked) {
    const auto refused = [&](auto change) {
        QueuePairAttributes attributes;
        change(attributes);
        return context_->qp_create(attributes).ok() == false;
    };
    EXPECT_FALSE(refused([](QueuePairAttributes&) {}));
    EXPECT_TRUE(refused([](QueuePairAttributes& a) { a.packet_bytes = 63; }));
    EXPECT_TRUE(refused([](QueuePairAttributes& a) { a.packet_bytes = 65537; }));
    EXPECT_TRUE(refused([](QueuePairAttributes& a) { a.packets_per_chunk_log2 = 7; }));
    EXPECT_TRUE(refused([](QueuePairAttributes& a) { a.max_messages = 3; }));
    EXPECT_TRUE(refused([](QueuePairAttributes& a) { a.max_messages = 2048; }));
    EXPECT_TRUE(refused([](QueuePairAttributes& a) { a.max_message_bytes = 0; }));
    EXPECT_TRUE(refused([](QueuePairAttributes& a) { a.max_message_bytes = ~uint64_t{0}; }));
    QueuePairAttributes other = attributes_;
    other.packet_bytes = 128;
    auto stranger = context_->qp_create(other).release_value();
    EXPECT_EQ(stranger->qp_connect(sender_->qp_info_get()).error(), Error::einval);
    EXPECT_EQ(stranger->recv_post({}).error(), Error::einval);
    EXPECT_EQ(sender_->qp_connect(receiver_->qp_info_get()).error(), Error::eexist);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
