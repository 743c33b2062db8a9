// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Reliable connections in situations that random networks hardly make: senders that wait for a window, receivers that
// are ahead, ends that have failed.
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "rdma_blk/sdr/reliable_connection.h"
#include "tests/unit/rdma_blk/sdr/bytes.h"
#include "tests/unit/rdma_blk/sdr/unruly_network.h"

namespace tiffin::rdma_blk::sdr {
namespace {

class ConnectionTest : public testing::Test {
  protected:
    static constexpr uint64_t kSecondNs = 1'000'000'000;

    ConnectionTest() : context_(context_create().release_value()) {
        queue_attributes_.packet_bytes = 1024;
        queue_attributes_.max_messages = 8;
        queue_attributes_.max_message_bytes = 4 << 20;
    }
    void make() {
        left_ = make_end();
        right_ = make_end();
        ASSERT_TRUE(left_->connect(right_->info_get()).ok());
        ASSERT_TRUE(right_->connect(left_->info_get()).ok());
    }
    std::unique_ptr<ReliableConnection> make_end() {
        return reliable_connection_create(*context_, queue_attributes_, attributes_)
            .release_value();
    }
    RegisteredMemory memory(std::vector<unsigned char>& bytes) {
        return context_->mr_reg(MutableByteSpan(bytes.data(), bytes.size())).release_value();
    }
    // Everything that `from` wants to send is lost, and counted.
    static int discard_output(Endpoint& from, uint64_t now_ns) {
        Transmit out;
        int count = 0;
        while (from.next_transmit(now_ns, 64, out)) {
            count++;
        }
        return count;
    }
    // All that `from` wants to send now arrives; returns how much that was.
    int deliver(Endpoint& from, Endpoint& to, uint32_t max_packets = 64) const {
        Transmit out;
        int count = 0;
        while (from.next_transmit(now_ns_, max_packets, out)) {
            count++;
            if (out.is_control) {
                to.on_control(now_ns_, ByteSpan(out.control, out.control_bytes));
            } else {
                to.on_data(now_ns_, out.run);
            }
        }
        return count;
    }

    // A message on its way from the left end, for which the right one has a receive.
    void start_message(size_t size_bytes) {
        from_ = some_bytes(size_bytes, 1);
        to_.assign(size_bytes, 0);
        ASSERT_TRUE(right_->recv_post(now_ns_, memory(to_)).ok());
        deliver(*right_, *left_);
        ASSERT_TRUE(left_->send_post(now_ns_, memory(from_), 7).ok());
    }
    // The right end has something to say, but not of that message.
    void hear_something_else() {
        Transmit out;
        make_control(ControlKind::clear_to_send, 0, 1, out);
        left_->on_control(now_ns_, ByteSpan(out.control, out.control_bytes));
    }
    void go_on(uint64_t time_ns) {
        now_ns_ += time_ns;
        for (ReliableConnection* end : {left_.get(), right_.get()}) {
            if (end->next_timer_ns() <= now_ns_) {
                end->on_timer(now_ns_);
            }
        }
    }

    Completion run_to_completion(UnrulyNetwork& network) {
        Completion completion;
        bool found = false;
        network.run(
            600 * kSecondNs, [] {},
            [&] { return found = found || left_->next_completion(completion); });
        return completion;
    }

    std::unique_ptr<Context> context_;
    QueuePairAttributes queue_attributes_;
    ReliabilityAttributes attributes_;
    std::unique_ptr<ReliableConnection> left_;
    std::unique_ptr<ReliableConnection> right_;
    std::vector<unsigned char> from_;
    std::vector<unsigned char> to_;
    uint64_t now_ns_ = kSecondNs;
};

// A window of fewer packets than the path holds: the receiver is silent for most of each round trip. It asks for what is
// behind, which was never sent or has just been.
TEST_F(ConnectionTest, WindowsThatAreSmallRepeatLittle) {
    for (const SchemeChoice& scheme : {SchemeChoice{SchemeKind::selective_repeat_nack, 0, 0},
                                       SchemeChoice{SchemeKind::erasure_mds, 32, 8}}) {
        attributes_.scheme = scheme;
        make();
        NetworkOptions options;
        options.delay_ns = 12'500'000;
        options.window_packets = 32;
        UnrulyNetwork network(options, queue_attributes_.packet_bytes, 1, *left_, *right_);
        std::vector<unsigned char> from = some_bytes(1 << 20, 1);
        std::vector<unsigned char> to(from.size());
        ASSERT_TRUE(right_->recv_post(network.now_ns(), memory(to)).ok());
        ASSERT_TRUE(left_->send_post(network.now_ns(), memory(from), 7).ok());
        const Completion completion = run_to_completion(network);
        EXPECT_TRUE(completion.ok);
        EXPECT_EQ(from, to);
        // Until the round trip is known, a window or two may go again; afterwards nothing does.
        EXPECT_LE(left_->reliability_statistics().chunks_repeated, 2 * options.window_packets);
        EXPECT_LT(left_->reliability_statistics().loss, 0.05);
        EXPECT_EQ(right_->reliability_statistics().chunks_asked_for, 0U);
        EXPECT_EQ(right_->reliability_statistics().groups_failed, 0U);
    }
}

// With losses, about what was lost is repeated, and the loss that is measured is that of the path.
TEST_F(ConnectionTest, LossIsMeasuredThroughAWindow) {
    attributes_.scheme = {SchemeKind::selective_repeat_nack, 0, 0};
    make();
    NetworkOptions options;
    options.delay_ns = 12'500'000;
    options.window_packets = 64;
    options.loss = 0.05;
    UnrulyNetwork network(options, queue_attributes_.packet_bytes, 1, *left_, *right_);
    std::vector<unsigned char> from = some_bytes(4 << 20, 1);
    std::vector<unsigned char> to(from.size());
    ASSERT_TRUE(right_->recv_post(network.now_ns(), memory(to)).ok());
    ASSERT_TRUE(left_->send_post(network.now_ns(), memory(from), 7).ok());
    EXPECT_TRUE(run_to_completion(network).ok);
    const ReliabilityStatistics& statistics = left_->reliability_statistics();
    EXPECT_LT(statistics.chunks_repeated, statistics.chunks_sent / 8);
    EXPECT_GT(statistics.loss, 0.02);
    EXPECT_LT(statistics.loss, 0.08);
}

// On a short path the second request for a chunk does not wait for as long as a sender's timeout.
TEST_F(ConnectionTest, WhatIsLostTwiceIsAskedForSoonAgain) {
    constexpr uint32_t kLost = 5;
    queue_attributes_.packets_per_chunk_log2 = 0;
    attributes_.scheme = {SchemeKind::selective_repeat_nack, 0, 0};
    attributes_.initial_round_trip_us = 50;
    make();
    std::vector<unsigned char> from = some_bytes(20 * queue_attributes_.packet_bytes, 1);
    std::vector<unsigned char> to(from.size());
    ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
    deliver(*right_, *left_);  // clear to send
    ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
    Transmit out;
    while (left_->next_transmit(now_ns_, 1, out)) {
        if (!out.is_control && out.run.first_packet != kLost) {
            right_->on_data(now_ns_, out.run);
        }
    }
    EXPECT_GT(deliver(*right_, *left_), 0);  // asks
    EXPECT_EQ(discard_output(*left_, now_ns_), 1);
    EXPECT_EQ(right_->reliability_statistics().chunks_asked_for, 1U);
    now_ns_ += kMinRepeatNackNs + 1000;
    right_->on_timer(now_ns_);
    deliver(*right_, *left_);
    EXPECT_EQ(right_->reliability_statistics().chunks_asked_for, 2U);
    EXPECT_EQ(deliver(*left_, *right_), 1);
    Completion completion;
    ASSERT_TRUE(right_->next_completion(completion));
    EXPECT_TRUE(completion.ok);
    EXPECT_EQ(from, to);
}

// What the channels have measured adds up, and counts where nothing was told.
TEST_F(ConnectionTest, TheRateOfThePathIsThatOfItsChannels) {
    constexpr uint64_t kBytes = 128 << 20;
    attributes_.automatic = true;
    attributes_.initial_loss = 1e-3;
    attributes_.initial_round_trip_us = 25'000;
    attributes_.link_rate_bytes_per_s = 0;
    queue_attributes_.packet_bytes = 4096;
    queue_attributes_.packets_per_chunk_log2 = 4;
    queue_attributes_.max_message_bytes = kBytes;
    make();
    left_->on_path_rate(0, 5'000'000);
    left_->on_path_rate(3, 5'000'000);
    left_->on_path_rate(kMaxChannels, 5'000'000'000);  // there is no such channel
    EXPECT_EQ(left_->reliability_statistics().path_rate_bytes_per_s, 10'000'000U);
    EXPECT_FALSE(left_->scheme_now(kBytes).is_erasure());
    left_->on_path_rate(0, 50'000'000'000);
    EXPECT_EQ(left_->reliability_statistics().path_rate_bytes_per_s, 50'005'000'000U);
    EXPECT_TRUE(left_->scheme_now(kBytes).is_erasure());
}

// Parity of XOR covers each eighth chunk of a group: of two neighbours of one class none can be restored.
TEST_F(ConnectionTest, WhatACodeCannotRestoreIsCountedAndRepeated) {
    queue_attributes_.packets_per_chunk_log2 = 0;
    attributes_.scheme = {SchemeKind::erasure_xor, 32, 8};
    for (const bool is_same_class : {false, true}) {
        make();
        std::vector<unsigned char> from = some_bytes(256 * 1024, 1);
        std::vector<unsigned char> to(from.size());
        ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
        ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
        std::set<uint32_t> to_lose = {40, is_same_class ? 48U : 49U};  // once
        Completion completion;
        bool is_done = false;
        for (int turn = 0; turn < 5000 && !is_done; turn++) {
            Transmit out;
            while (left_->next_transmit(now_ns_, 1, out)) {
                if (out.is_control) {
                    right_->on_control(now_ns_, ByteSpan(out.control, out.control_bytes));
                } else if (out.run.kind != PacketKind::data ||
                           to_lose.erase(out.run.first_packet) == 0) {
                    right_->on_data(now_ns_, out.run);
                }
            }
            deliver(*right_, *left_);
            now_ns_ += 1'000'000;
            for (ReliableConnection* end : {left_.get(), right_.get()}) {
                if (end->next_timer_ns() <= now_ns_) {
                    end->on_timer(now_ns_);
                }
            }
            is_done = left_->next_completion(completion);
        }
        EXPECT_TRUE(is_done && completion.ok);
        EXPECT_EQ(from, to);
        const ReliabilityStatistics& received = right_->reliability_statistics();
        // Of two classes each is restored by itself.
        EXPECT_TRUE(is_same_class || received.groups_decoded == 2);
        EXPECT_EQ(received.groups_failed, is_same_class ? 1U : 0U);
        EXPECT_EQ(left_->reliability_statistics().chunks_repeated, is_same_class ? 2U : 0U);
    }
}

// The rest of a message's parity is in the queue when the message is acknowledged: the next message is sent at once.
TEST_F(ConnectionTest, AMessageThatEndsEarlyDoesNotHoldUpTheNext) {
    queue_attributes_.packets_per_chunk_log2 = 3;
    attributes_.scheme = {SchemeKind::erasure_mds, 16, 16};
    make();
    std::vector<unsigned char> from = some_bytes(16 * 8 * 1024, 1);
    std::vector<unsigned char> to(from.size());
    for (int count = 0; count < 2; count++) {
        ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
        ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
    }
    deliver(*right_, *left_);  // clear to send
    Transmit out;
    // All data, and a chunk of the parity; each goes on its way at once.
    for (int chunk = 0; chunk < 17; chunk++) {
        ASSERT_TRUE(left_->next_transmit(now_ns_, 8, out));
        ASSERT_FALSE(out.is_control);
        right_->on_data(now_ns_, out.run);
    }
    EXPECT_EQ(out.run.kind, PacketKind::parity);
    deliver(*right_, *left_);
    Completion completion;
    ASSERT_TRUE(left_->next_completion(completion));
    EXPECT_TRUE(completion.ok);
    ASSERT_TRUE(left_->next_transmit(now_ns_, 8, out));
    EXPECT_EQ(out.run.message_number, 1U);
    EXPECT_EQ(out.run.kind, PacketKind::data);
}

// A receiver that has given up more receives than its sender's windows know: the sender hears of each.
TEST_F(ConnectionTest, AReceiverMayBeFarAhead) {
    for (const bool hears_first_grant : {false, true}) {
        for (const uint16_t max_messages : {uint16_t{1}, uint16_t{4}}) {
            SCOPED_TRACE(testing::Message() << hears_first_grant << " " << max_messages);
            queue_attributes_.max_messages = max_messages;
            make();
            std::vector<unsigned char> from = some_bytes(5000, 1);
            std::vector<unsigned char> to(from.size());
            constexpr int kDiscarded = 21;
            for (uint64_t number = 0; number < kDiscarded; number++) {
                ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
                if (number == 0 && hears_first_grant) {
                    deliver(*right_, *left_);
                }
                discard_output(*right_, now_ns_);
                ASSERT_TRUE(right_->recv_discard(number).ok());
            }
            ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
            discard_output(*right_, now_ns_);
            UnrulyNetwork network({}, queue_attributes_.packet_bytes, 1, *left_, *right_);
            int canceled = 0;
            bool delivered = false;
            uint64_t posted = 0;
            network.run(
                60 * kSecondNs,
                [&] {
                    Completion completion;
                    while (left_->next_completion(completion)) {
                        ASSERT_EQ(completion.ok, completion.message_number == kDiscarded);
                        EXPECT_TRUE(completion.ok || completion.error == Error::ecanceled);
                        canceled += completion.ok ? 0 : 1;
                        delivered = delivered || completion.ok;
                    }
                    while (posted <= kDiscarded &&
                           left_->send_post(network.now_ns(), memory(from), 7).ok()) {
                        posted++;
                    }
                },
                [&] { return delivered; });
            EXPECT_TRUE(delivered);
            EXPECT_EQ(canceled, kDiscarded);
            EXPECT_EQ(from, to);
        }
    }
}

// Data tell of what was delivered, and a receive that was given up before its message came is none of that.
TEST_F(ConnectionTest, DataDoNotTellOfDiscardedReceivesAsDelivered) {
    attributes_.hold_us = 1000;
    make();
    std::vector<unsigned char> from = some_bytes(500, 1);
    std::vector<unsigned char> to(from.size());
    std::vector<unsigned char> back(from.size());
    ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
    ASSERT_TRUE(left_->recv_post(now_ns_, memory(back)).ok());
    deliver(*right_, *left_);
    deliver(*left_, *right_);
    ASSERT_TRUE(right_->recv_discard(0).ok());
    deliver(*right_, *left_);  // who has sent nothing yet takes no note of it
    ASSERT_TRUE(right_->send_post(now_ns_, memory(from), 7).ok());
    Transmit late;
    ASSERT_TRUE(right_->next_transmit(now_ns_, 64, late));
    ASSERT_FALSE(late.is_control);
    ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
    EXPECT_GT(discard_output(*left_, now_ns_), 0);
    left_->on_data(now_ns_, late.run);
    Completion sent;
    sent.ok = true;
    const auto is_over = [&] {
        Completion completion;
        while (right_->next_completion(completion)) {
        }
        while (left_->next_completion(completion)) {
            sent = completion.is_send ? completion : sent;
        }
        return sent.is_send;
    };
    while (!is_over()) {
        deliver(*left_, *right_);
        deliver(*right_, *left_);
        go_on(1'000'000);
    }
    EXPECT_FALSE(sent.ok);
    EXPECT_EQ(sent.error, Error::ecanceled);
    // Later messages are told of again: the sender has used all numbers that it knew then.
    for (uint64_t number = 1; number <= 2 * uint64_t{queue_attributes_.max_messages}; number++) {
        ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
        deliver(*right_, *left_);
        ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
        for (sent.is_send = false; !is_over(); go_on(1'000'000)) {
            deliver(*left_, *right_);
            deliver(*right_, *left_);
        }
        EXPECT_TRUE(sent.ok) << number;
    }
    ASSERT_TRUE(left_->recv_post(now_ns_, memory(back)).ok());
    go_on(1'000'000);
    deliver(*left_, *right_);
    ASSERT_TRUE(right_->send_post(now_ns_, memory(from), 7).ok());
    ASSERT_TRUE(right_->next_transmit(now_ns_, 64, late));
    ASSERT_FALSE(late.is_control);
    EXPECT_EQ(late.run.delivered_until, 2 * queue_attributes_.max_messages + 1);
}

// The message that tells of a failure was lost: whatever the other end sends is answered with another.
TEST_F(ConnectionTest, AFailedEndSaysSoAgain) {
    make();
    std::vector<unsigned char> from = some_bytes(5000, 1);
    std::vector<unsigned char> to(from.size());
    ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
    deliver(*right_, *left_);
    right_->fail();
    EXPECT_EQ(discard_output(*right_, now_ns_), 1);
    ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
    deliver(*left_, *right_);
    EXPECT_EQ(deliver(*right_, *left_), 1);
    EXPECT_TRUE(left_->has_failed());
    // And that is all: failures are not answered.
    EXPECT_EQ(deliver(*left_, *right_) + deliver(*right_, *left_), 0);
}

// The peer is there, but never gets anywhere with one message: that is a failure, however much else is heard.
TEST_F(ConnectionTest, AMessageWithoutProgressIsAFailure) {
    for (const SchemeKind kind :
         {SchemeKind::selective_repeat, SchemeKind::selective_repeat_nack}) {
        attributes_.scheme = {kind, 0, 0};
        make();
        start_message(5000);
        const uint64_t begin_ns = now_ns_;
        while (!left_->has_failed() && now_ns_ < begin_ns + 20 * kDefaultGiveUpNs) {
            discard_output(*left_, now_ns_);
            hear_something_else();
            go_on(5'000'000);
        }
        EXPECT_TRUE(left_->has_failed());
        EXPECT_GE(now_ns_, begin_ns + kHopelessNs);
        Completion completion;
        ASSERT_TRUE(left_->next_completion(completion));
        EXPECT_EQ(completion.error, Error::etimedout);
    }
}

// Large packets vanish, small ones come: the window is at its least, and the first pass would take minutes.
TEST_F(ConnectionTest, AFirstPassOfWhichNothingComesIsNoProgress) {
    for (const SchemeChoice& scheme : {SchemeChoice{SchemeKind::selective_repeat, 0, 0},
                                       SchemeChoice{SchemeKind::selective_repeat_nack, 0, 0},
                                       SchemeChoice{SchemeKind::erasure_mds, 32, 8}}) {
        attributes_.scheme = scheme;
        make();
        start_message(1 << 20);
        const uint64_t begin_ns = now_ns_;
        while (!left_->has_failed() && now_ns_ < begin_ns + 2 * kDefaultGiveUpNs) {
            Transmit out;
            (void)left_->next_transmit(now_ns_, kMinWindowPackets, out);
            hear_something_else();
            go_on(100'000'000);
        }
        EXPECT_TRUE(left_->has_failed());
        EXPECT_GE(now_ns_, begin_ns + kHopelessNs);
        EXPECT_LE(now_ns_, begin_ns + kHopelessNs + 200'000'000);
    }
}

// ... and what is asked for again and again leaves no room for the rest of it: the receivers of both directions ask for the
// ends of what has begun to come.
TEST_F(ConnectionTest, RepeatsInBothDirectionsAreNoProgress) {
    attributes_.scheme = {SchemeKind::selective_repeat_nack, 0, 0};
    make();
    std::vector<unsigned char> from = some_bytes(256 << 10, 1);
    std::vector<unsigned char> to[2] = {from, from};
    ASSERT_TRUE(left_->recv_post(now_ns_, memory(to[0])).ok());
    ASSERT_TRUE(right_->recv_post(now_ns_, memory(to[1])).ok());
    deliver(*left_, *right_);
    deliver(*right_, *left_);
    ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
    ASSERT_TRUE(right_->send_post(now_ns_, memory(from), 7).ok());
    const uint64_t begin_ns = now_ns_;
    int data_left = 2;  // of each
    while ((!left_->has_failed() || !right_->has_failed()) &&
           now_ns_ < begin_ns + 4 * kDefaultGiveUpNs) {
        ReliableConnection* const ends[] = {left_.get(), right_.get()};
        for (int index = 0; index < 2; index++) {
            Transmit out;
            for (uint32_t sent = 0; sent < kMinWindowPackets;) {
                if (!ends[index]->next_transmit(now_ns_, kMinWindowPackets - sent, out)) {
                    break;
                }
                if (out.is_control) {
                    ends[1 - index]->on_control(now_ns_, ByteSpan(out.control, out.control_bytes));
                } else {
                    sent += out.run.packet_count;
                    if (data_left > 0) {
                        ends[1 - index]->on_data(now_ns_, out.run);
                    }
                }
            }
        }
        data_left--;
        go_on(5'000'000);
    }
    EXPECT_TRUE(left_->has_failed());
    EXPECT_TRUE(right_->has_failed());
    EXPECT_LE(now_ns_, begin_ns + kHopelessNs + kSecondNs);
}

// Words with silences between them are no reason to wait for ever.
TEST_F(ConnectionTest, AMessageWithoutProgressIsAFailureAlsoWhereLittleIsHeard) {
    make();
    start_message(64 << 10);
    const uint64_t begin_ns = now_ns_;
    uint64_t heard_ns = now_ns_;
    while (!left_->has_failed() && now_ns_ < begin_ns + 4 * kDefaultGiveUpNs) {
        discard_output(*left_, now_ns_);
        if (now_ns_ >= heard_ns + 3 * kSecondNs) {
            hear_something_else();
            heard_ns = now_ns_;
        }
        go_on(5'000'000);
    }
    EXPECT_TRUE(left_->has_failed());
    EXPECT_LE(now_ns_, begin_ns + 2 * kDefaultGiveUpNs + kSecondNs);
}

// After an outage a message has as much time as at first.
TEST_F(ConnectionTest, AnOutageIsNotTheFaultOfAMessage) {
    attributes_.scheme = {SchemeKind::selective_repeat_nack, 0, 0};
    make();
    start_message(64 << 10);
    const uint64_t end_ns = now_ns_ + kDefaultGiveUpNs - kSecondNs;
    while (now_ns_ < end_ns) {
        discard_output(*left_, now_ns_);
        go_on(5'000'000);
        ASSERT_FALSE(left_->has_failed());
    }
    // The first word is about something else, and there is a moment in which the timers are looked at.
    hear_something_else();
    left_->on_timer(now_ns_ + 1);
    ASSERT_FALSE(left_->has_failed());
    Completion completion;
    bool is_delivered = false;
    for (int turn = 0; turn < 400 && !is_delivered; turn++) {
        deliver(*left_, *right_);
        deliver(*right_, *left_);
        go_on(5'000'000);
        is_delivered = left_->next_completion(completion) && completion.ok;
    }
    EXPECT_TRUE(is_delivered);
    EXPECT_EQ(from_, to_);
}

// However little it is, and however long it takes.
TEST_F(ConnectionTest, AMessageOfWhichSomethingComesIsNoFailure) {
    for (const SchemeKind kind :
         {SchemeKind::selective_repeat, SchemeKind::selective_repeat_nack}) {
        attributes_.scheme = {kind, 0, 0};
        make();
        start_message(64 << 10);
        const uint64_t begin_ns = now_ns_;
        uint64_t taken_ns = 0;
        bool is_delivered = false;
        while (!is_delivered && !left_->has_failed() && now_ns_ < begin_ns + 1000 * kSecondNs) {
            Transmit out;
            // One packet gets through every two seconds.
            while (left_->next_transmit(now_ns_, 1, out)) {
                if (out.is_control) {
                    right_->on_control(now_ns_, ByteSpan(out.control, out.control_bytes));
                } else if (now_ns_ >= taken_ns + 2 * kSecondNs) {
                    right_->on_data(now_ns_, out.run);
                    taken_ns = now_ns_;
                }
            }
            deliver(*right_, *left_);
            go_on(20'000'000);
            Completion completion;
            is_delivered = left_->next_completion(completion) && completion.ok;
        }
        EXPECT_TRUE(is_delivered);
        EXPECT_EQ(from_, to_);
        EXPECT_GE(now_ns_, begin_ns + 20 * kSecondNs);
    }
}

// Threads ask the clock and come in another order: a time before the last one must not look like ages of silence.
TEST_F(ConnectionTest, AnOlderClockIsNoSilence) {
    make();
    std::vector<unsigned char> from = some_bytes(64 << 10, 1);
    std::vector<unsigned char> to(from.size());
    ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
    ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
    left_->on_timer(now_ns_ - 1);
    EXPECT_FALSE(left_->has_failed());
    deliver(*right_, *left_);
    discard_output(*left_, now_ns_);
    left_->on_timer(now_ns_ - 1);
    EXPECT_FALSE(left_->has_failed());
}

// Where its first packets were lost in a full queue, the repeat timer may run for seconds: the peer has been asked once.
TEST_F(ConnectionTest, OneUnansweredBurstIsNoSilence) {
    make();
    start_message(64 << 10);
    Transmit out;
    std::vector<uint64_t> told_ns;
    while (told_ns.size() < kToldForSilence) {
        EXPECT_EQ(left_->silence_ns(now_ns_), 0U) << told_ns.size();
        if (left_->next_transmit(now_ns_, 1, out) && !out.is_control &&
            (told_ns.empty() || now_ns_ >= told_ns.back() + kToldApartNs)) {
            told_ns.push_back(now_ns_);
        }
        go_on(1'000'000);
        ASSERT_FALSE(left_->has_failed());
    }
    EXPECT_EQ(left_->silence_ns(now_ns_), now_ns_ - told_ns.front());
    hear_something_else();
    EXPECT_EQ(left_->silence_ns(now_ns_ + kSecondNs), 0U);
}

// Several channels: a run that overtakes another is no loss; what is missing after a moment is.
TEST_F(ConnectionTest, ChannelsOvertakeEachOther) {
    queue_attributes_.channel_count = 2;
    for (const SchemeChoice& scheme : {SchemeChoice{SchemeKind::selective_repeat_nack, 0, 0},
                                       SchemeChoice{SchemeKind::erasure_mds, 8, 2}}) {
        attributes_.scheme = scheme;
        make();
        std::vector<unsigned char> from = some_bytes(200 << 10, 1);
        std::vector<unsigned char> to(from.size());
        ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
        ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
        deliver(*right_, *left_);
        Transmit out;
        std::vector<DataRun> runs;
        while (left_->next_transmit(now_ns_, 44, out)) {
            runs.push_back(out.run);
            if (out.run.kind == PacketKind::parity) {
                runs.pop_back();  // its bytes are only there until the next call
            }
        }
        ASSERT_GE(runs.size(), 4U);
        std::swap(runs[0], runs[1]);
        const DataRun lost = runs.back();
        runs.pop_back();
        for (const DataRun& run : runs) {
            right_->on_data(now_ns_, run);
            now_ns_ += 1000;
        }
        EXPECT_EQ(right_->reliability_statistics().chunks_asked_for, 0U);
        std::swap(runs[0], runs[1]);
        // Another message's first run is lost for good, and others follow.
        make();
        ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
        for (size_t index = 1; index < runs.size(); index++) {
            right_->on_data(now_ns_, runs[index]);
            now_ns_ += 700'000;
            if (right_->next_timer_ns() <= now_ns_) {
                right_->on_timer(now_ns_);
            }
            discard_output(*right_, now_ns_);
        }
        right_->on_data(now_ns_, lost);
        now_ns_ += 3'000'000;
        right_->on_timer(now_ns_);
        discard_output(*right_, now_ns_);
        EXPECT_EQ(right_->reliability_statistics().chunks_asked_for, runs[0].packet_count);
    }
}

// What needs no entry in a full log of transmissions is said all the same.
TEST_F(ConnectionTest, AFullLogHoldsUpDataOnly) {
    attributes_.scheme = {SchemeKind::selective_repeat, 0, 0};
    make();
    std::vector<unsigned char> from = some_bytes(3 << 20, 1);
    std::vector<unsigned char> to(from.size());
    ASSERT_TRUE(right_->recv_post(now_ns_, memory(to)).ok());
    deliver(*right_, *left_);
    ASSERT_TRUE(left_->send_post(now_ns_, memory(from), 7).ok());
    // At other times each, so that no two become one entry.
    Transmit out;
    while (left_->next_transmit(now_ns_, 1, out)) {
        now_ns_++;
    }
    ASSERT_TRUE(left_->recv_post(now_ns_, memory(to)).ok());
    ASSERT_TRUE(left_->next_transmit(now_ns_, 1, out));
    EXPECT_TRUE(out.is_control);
}

TEST_F(ConnectionTest, ATimeForEverIsNotAccepted) {
    attributes_.give_up_ns = ~uint64_t{0};
    EXPECT_EQ(reliable_connection_create(*context_, queue_attributes_, attributes_).error(),
              Error::einval);
    attributes_.give_up_ns = kMaxGiveUpNs;
    EXPECT_TRUE(reliable_connection_create(*context_, queue_attributes_, attributes_).ok());
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
