// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What answers about a suspect path change, and which of them change nothing. The server and the clock are played by the test.
#include "rdma_blk/session/sent_requests.h"

#include <gtest/gtest.h>

#include <vector>

namespace tiffin::rdma_blk {
namespace {

using Kind = SessionMachine::Action::Kind;

class SentRequestsTest : public ::testing::Test {
  protected:
    void SetUp() override {
        slots_->opened(2);
        machine_.opened(0, now_ns_, 1'000'000'000, 0);
        EXPECT_EQ(machine_.next(now_ns_).kind, Kind::connect);
        machine_.joined(1, now_ns_, 20'000);
        operation_.kind = OperationKind::write;
        slots_->submit(operation_);
        EXPECT_NE(slots_->take_next(request_), nullptr);
        sent_->sent(request_.slot, 0, 1, now_ns_);
    }
    void TearDown() override { slots_->fail_all(Error::enodev); }

    // Link 0 falls silent, and is asked about over link 1, on which probes have answers.
    wire::PathRecover suspect() {
        wire::PathRecover question{};
        for (int step = 0; step < 100; ++step) {
            const SessionMachine::Action action = machine_.next(now_ns_);
            if (action.kind == Kind::recover) {
                EXPECT_EQ(action.path, 0U);
                sent_->ask(action.path, question);
                return question;
            }
            if (action.kind == Kind::probe && action.path == 1) {
                machine_.heard(1, now_ns_);
            } else if (action.kind == Kind::none) {
                now_ns_ = std::max(now_ns_, machine_.next_time_ns());
            }
        }
        ADD_FAILURE() << "it is not suspected";
        return question;
    }
    Result<size_t> answer(const wire::PathRecover& question, Outcome outcome, size_t over = 1) {
        wire::PathRecovered answer{};
        answer.number = question.number;
        answer.outstanding_count = question.outstanding_count;
        const std::vector<unsigned char> outcomes(question.outstanding_count,
                                                  static_cast<unsigned char>(outcome));
        return sent_->take_answer(answer, ByteSpan(outcomes.data(), outcomes.size()), over,
                                  now_ns_);
    }

    uint64_t now_ns_ = 1'000'000'000;
    std::unique_ptr<RequestSlots> slots_ = RequestSlots::create(2).release_value();
    SessionMachine machine_{2};
    std::unique_ptr<SentRequests> sent_ = SentRequests::create(*slots_, machine_).release_value();
    Operation operation_;
    wire::Request request_{};
};

TEST_F(SentRequestsTest, AnAnswerNamesThePathThatWasAskedAbout) {
    const wire::PathRecover question = suspect();
    ASSERT_EQ(question.outstanding_count, 1U);
    EXPECT_EQ(MUST(answer(question, Outcome::not_executed)), 0U);
    EXPECT_EQ(MUST(answer(question, Outcome::not_executed)), SessionMachine::kNoPath) << "twice";
    wire::Request again{};
    ASSERT_NE(slots_->take_next(again), nullptr) << "it is sent again";
    EXPECT_EQ(again.sequence, request_.sequence);
}

// Taken for an answer about the suspect path, it would take away what that still sends and receives, and nothing would
// send it again.
TEST_F(SentRequestsTest, AnAnswerToAnEarlierQuestionChangesNothing) {
    const wire::PathRecover first = suspect();
    machine_.heard(0, now_ns_);
    EXPECT_EQ(MUST(answer(first, Outcome::not_executed)), SessionMachine::kNoPath) << "it lives";
    const wire::PathRecover second = suspect();
    EXPECT_NE(first.number, second.number);
    EXPECT_EQ(MUST(answer(first, Outcome::not_executed)), SessionMachine::kNoPath);
    EXPECT_EQ(MUST(answer(second, Outcome::pending, 0)), SessionMachine::kNoPath)
        << "over another path";
    wire::Request again{};
    EXPECT_EQ(slots_->take_next(again), nullptr);
    EXPECT_EQ(sent_->path_of(request_.slot), 0U);
    EXPECT_EQ(MUST(answer(second, Outcome::pending)), 0U);
    EXPECT_EQ(sent_->path_of(request_.slot), 1U);
}

// The server holds what a follower brings or its answer takes, and does not read on: not even what it follows, sent again.
TEST_F(SentRequestsTest, AFollowerThatIsLargeWaitsForWhatIsOnAnotherLink) {
    constexpr uint32_t kSecondLink = 2;
    const ByteRange range{0, 1};
    Operation follower;
    follower.after_earlier = true;
    follower.deadline_ns = now_ns_;
    follower.ranges = &range;
    for (const OperationKind kind :
         {OperationKind::write, OperationKind::read, OperationKind::flush}) {
        follower.kind = kind;
        follower.range_count = kind == OperationKind::flush ? 1 : 0;
        follower.finished = 0;
        slots_->submit(follower);
        EXPECT_FALSE(sent_->may_send_next(kSecondLink)) << static_cast<int>(kind);
        EXPECT_TRUE(sent_->may_send_next(1)) << static_cast<int>(kind);
        EXPECT_FALSE(slots_->expire(now_ns_));  // takes it out of the queue
    }
}

TEST_F(SentRequestsTest, AnAnswerToAQuestionOfTheFutureEndsTheIncarnation) {
    wire::PathRecover question = suspect();
    question.number++;
    EXPECT_EQ(answer(question, Outcome::pending).error(), Error::eproto);
}

}  // namespace
}  // namespace tiffin::rdma_blk
