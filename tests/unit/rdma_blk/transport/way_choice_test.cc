// SPDX-License-Identifier: MIT OR GPL-2.0-only
// When the two ways are tried against each other, and what follows from it.
#include "rdma_blk/transport/way_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace tiffin::rdma_blk {
namespace {

using Way = WayChoice::Way;

constexpr uint64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMinuteNs = 60 * kSecondNs;

class WayChoiceTest : public ::testing::Test {
  protected:
    static constexpr uint32_t kTrialRequests = 6 * 64;

    void SetUp() override {
        buffer_.size_bytes = 4096;
        operation_.kind = OperationKind::read;
        operation_.buffers = &buffer_;
        operation_.buffer_count = 1;
    }
    // The stream loses so many of a thousand packets, and is looked at.
    void lose(uint64_t packets) {
        counts_.packets += 1000;
        counts_.lost += packets;
        now_ns_ += kSecondNs;
        choice_.look(now_ns_, counts_);
    }
    // A request that takes so long on each way.
    void request(uint64_t stream_ns, uint64_t datagrams_ns) {
        const Way way = choice_.way();
        const uint64_t took_ns = way == Way::stream ? stream_ns : datagrams_ns;
        const uint32_t mark = choice_.sent(WayChoice::load_of(operation_));
        requests_on_[static_cast<size_t>(way)]++;
        now_ns_ += took_ns;
        choice_.done(now_ns_, mark, operation_, took_ns);
    }
    void finish_trial(uint64_t stream_ns, uint64_t datagrams_ns) {
        for (uint32_t i = 0; i < kTrialRequests; i++) {
            ASSERT_TRUE(choice_.is_trying());
            request(stream_ns, datagrams_ns);
        }
        ASSERT_FALSE(choice_.is_trying());
    }
    // Datagrams have become the way.
    void choose_datagrams() {
        lose(20);
        choice_.datagrams_begin();
        finish_trial(5000, 1000);
        ASSERT_EQ(choice_.settled(), Way::datagrams);
    }

    WayChoice choice_{WayChoice::Options()};
    WayChoice::StreamCounts counts_;
    uint64_t now_ns_ = 1000 * kSecondNs;
    uint64_t requests_on_[2] = {0, 0};
    vfs::IoVector buffer_{};
    Operation operation_;
};

TEST_F(WayChoiceTest, AStreamThatLosesNothingIsLeftAlone) {
    for (int i = 0; i < 100; i++) {
        lose(0);
        EXPECT_FALSE(choice_.wants_datagrams());
        EXPECT_EQ(choice_.way(), Way::stream);
        EXPECT_EQ(choice_.sent(WayChoice::Load::small_read), 0U);
    }
}

TEST_F(WayChoiceTest, AFewLossesAreNoReason) {
    lose(7);
    EXPECT_FALSE(choice_.wants_datagrams());
    for (int i = 0; i < 100; i++) {
        lose(0);
    }
    lose(1);  // eight of more than a hundred thousand
    EXPECT_FALSE(choice_.wants_datagrams());
    lose(100);
    EXPECT_TRUE(choice_.wants_datagrams());
}

TEST_F(WayChoiceTest, BothTakeTheSameNumberInTurns) {
    lose(20);
    EXPECT_EQ(choice_.way(), Way::stream);  // there are no datagrams yet
    choice_.datagrams_begin();
    finish_trial(1000, 1000);
    EXPECT_EQ(requests_on_[0], kTrialRequests / 2);
    EXPECT_EQ(requests_on_[1], kTrialRequests / 2);
    EXPECT_EQ(choice_.settled(), Way::stream);
    EXPECT_EQ(choice_.stream_ns(), kTrialRequests * 1000U);
}

TEST_F(WayChoiceTest, TheFasterWayIsTaken) {
    choose_datagrams();
    EXPECT_EQ(choice_.way(), Way::datagrams);
    EXPECT_EQ(choice_.stream_ns(), kTrialRequests * 5000U);
    EXPECT_EQ(choice_.datagrams_ns(), kTrialRequests * 1000U);
}

// Most are answered at once, and one after a long time: the mean counts, and who is slow is waited for.
TEST_F(WayChoiceTest, ASlowRequestIsNotForgotten) {
    lose(20);
    choice_.datagrams_begin();
    const uint32_t slow = choice_.sent(WayChoice::Load::small_read);
    for (uint32_t i = 1; i < kTrialRequests; i++) {
        request(1000, 1500);
    }
    EXPECT_TRUE(choice_.is_trying());
    EXPECT_EQ(choice_.sent(WayChoice::Load::small_read), 0U);  // it has had its requests
    EXPECT_EQ(choice_.way(), Way::stream);
    choice_.done(now_ns_, slow, operation_, 200'000'000);
    EXPECT_FALSE(choice_.is_trying());
    EXPECT_EQ(choice_.settled(), Way::datagrams);
}

// Large requests on one way and small ones on the other are no trial.
TEST_F(WayChoiceTest, LikeIsComparedWithLike) {
    lose(20);
    choice_.datagrams_begin();
    for (uint32_t i = 0; i < kTrialRequests; i++) {
        buffer_.size_bytes = choice_.way() == Way::stream ? 1 << 20 : 4096;
        request(50000, 1000);
    }
    EXPECT_FALSE(choice_.is_trying());
    EXPECT_EQ(choice_.settled(), Way::stream);
    EXPECT_EQ(choice_.stream_ns(), 0U);
}

// By the byte: the larger ones went by datagrams, and took less for what they carry.
TEST_F(WayChoiceTest, LargeRequestsCountByTheirBytes) {
    lose(20);
    choice_.datagrams_begin();
    for (uint32_t i = 0; i < kTrialRequests; i++) {
        buffer_.size_bytes = choice_.way() == Way::stream ? 1 << 17 : 1 << 20;
        request(50000, 100000);
    }
    EXPECT_EQ(choice_.settled(), Way::datagrams);
}

TEST_F(WayChoiceTest, FlushesAndAtomicsAreNotMeasured) {
    lose(20);
    choice_.datagrams_begin();
    operation_.kind = OperationKind::flush;
    EXPECT_EQ(choice_.sent(WayChoice::load_of(operation_)), 0U);
    operation_.kind = OperationKind::fetch_add;
    EXPECT_EQ(choice_.sent(WayChoice::load_of(operation_)), 0U);
    operation_.kind = OperationKind::write;
    EXPECT_NE(choice_.sent(WayChoice::load_of(operation_)), 0U);
}

TEST_F(WayChoiceTest, WhatWasFoundIsTriedAgainLaterEachTime) {
    choose_datagrams();
    std::vector<uint64_t> pauses;
    for (int trial = 0; trial < 7; trial++) {
        const uint64_t begin = now_ns_;
        while (!choice_.is_trying()) {
            lose(0);  // the stream carries nothing, and so loses nothing
        }
        pauses.push_back((now_ns_ - begin + kSecondNs / 2) / kSecondNs);
        finish_trial(5000, 1000);
    }
    EXPECT_EQ(pauses, (std::vector<uint64_t>{60, 120, 240, 480, 960, 960, 960}));
    // The network has become better.
    while (!choice_.is_trying()) {
        lose(0);
    }
    finish_trial(800, 1000);
    EXPECT_EQ(choice_.settled(), Way::stream);
    for (int i = 0; i < 100; i++) {
        lose(0);
        EXPECT_FALSE(choice_.wants_datagrams());
    }
}

TEST_F(WayChoiceTest, LossesSoonAfterATrialAreNoReasonForAnother) {
    lose(20);
    choice_.datagrams_begin();
    finish_trial(1000, 2000);
    const uint64_t begin = now_ns_;
    while (!choice_.wants_datagrams()) {
        lose(20);
    }
    EXPECT_GE(now_ns_ - begin, kMinuteNs);
}

TEST_F(WayChoiceTest, ATrialThatIsCutOffBeginsAgain) {
    lose(20);
    choice_.datagrams_begin();
    const uint32_t old = choice_.sent(WayChoice::Load::small_read);
    choice_.datagrams_end();
    EXPECT_FALSE(choice_.is_trying());
    EXPECT_EQ(choice_.way(), Way::stream);
    EXPECT_TRUE(choice_.wants_datagrams());
    choice_.datagrams_begin();
    choice_.done(now_ns_, old, operation_, 1'000'000'000);  // says nothing any more
    finish_trial(5000, 1000);
    EXPECT_EQ(choice_.stream_ns(), kTrialRequests * 5000U);
}

TEST_F(WayChoiceTest, WhatDoesNotComeThroughIsLeftForAWhile) {
    choose_datagrams();
    choice_.datagrams_failed(now_ns_);
    EXPECT_EQ(choice_.way(), Way::stream);
    EXPECT_FALSE(choice_.wants_datagrams());
    counts_ = {};  // another connection
    const uint64_t begin = now_ns_;
    while (!choice_.wants_datagrams()) {
        lose(20);
    }
    EXPECT_GE(now_ns_ - begin, kMinuteNs);
    choice_.datagrams_failed(now_ns_);
    const uint64_t again = now_ns_;
    while (!choice_.wants_datagrams()) {
        lose(20);
    }
    EXPECT_GE(now_ns_ - again, 2 * kMinuteNs);
}

}  // namespace
}  // namespace tiffin::rdma_blk
