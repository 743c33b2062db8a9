// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The client's slots with crafted answers. The server is played by the test.
#include "rdma_blk/session/request_slots.h"

#include <gtest/gtest.h>

#include <vector>

namespace tiffin::rdma_blk {
namespace {

class RequestSlotsTest : public ::testing::Test {
  protected:
    void TearDown() override { slots_->fail_all(Error::enodev); }

    static void make(Operation& operation, OperationKind kind, bool after_earlier = false,
                     uint64_t deadline_ns = 0) {
        operation.kind = kind;
        operation.after_earlier = after_earlier;
        operation.deadline_ns = deadline_ns;
    }
    void start() {
        slots_->fail_all(Error::enodev);
        slots_ = RequestSlots::create(2).release_value();
        slots_->opened(2);
    }
    wire::Request take() {
        wire::Request request{};
        EXPECT_NE(slots_->take_next(request), nullptr);
        return request;
    }
    bool nothing_to_take() {
        wire::Request request{};
        return slots_->take_next(request) == nullptr;
    }
    static wire::Response answer(const wire::Request& request, Outcome outcome = Outcome::executed,
                                 uint64_t value = 0) {
        wire::Response response{};
        response.sequence = request.sequence;
        response.slot = request.slot;
        response.operation = request.operation;
        response.outcome = static_cast<uint8_t>(outcome);
        response.error = outcome == Outcome::executed ? 0 : 5;
        response.value = value;
        return response;
    }
    void resume(std::vector<unsigned char> outcomes) {
        wire::OutstandingEntry entries[2];
        ASSERT_EQ(slots_->fill_outstanding(entries), outcomes.size());
        ASSERT_TRUE(slots_->resumed(ByteSpan(outcomes.data(), outcomes.size())).ok());
    }

    std::unique_ptr<RequestSlots> slots_ = RequestSlots::create(2).release_value();
    Operation one_, two_, three_;
};

TEST_F(RequestSlotsTest, GivesSequencesInOrderAndNoMoreThanItHasSlots) {
    one_.next = &two_;
    two_.next = &three_;
    three_.after_earlier = true;
    slots_->submit(one_);
    EXPECT_TRUE(nothing_to_take()) << "not connected";
    slots_->opened(2);
    const wire::Request first = take();
    const wire::Request second = take();
    EXPECT_EQ(first.sequence, 1U);
    EXPECT_EQ(second.sequence, 2U);
    EXPECT_NE(first.slot, second.slot);
    EXPECT_TRUE(nothing_to_take());
    slots_->finish(answer(second));
    EXPECT_EQ(two_.outcome, Outcome::executed);
    EXPECT_EQ(two_.finished.load(), 1U);
    const wire::Request third = take();
    EXPECT_EQ(third.slot, second.slot);
    EXPECT_EQ(third.sequence, 3U);
    EXPECT_EQ(third.after, 2U);
    EXPECT_EQ(third.pending_since, 1U);
}

// A connection that breaks has it read again, when its follower may have been executed.
TEST_F(RequestSlotsTest, AFollowerDoesNotChangeWhatAnEarlierReadMayReadAgain) {
    start();
    unsigned char bytes[64] = {};
    const vfs::IoVector piece{bytes, sizeof(bytes)};
    make(one_, OperationKind::read);
    make(two_, OperationKind::write, true);
    make(three_, OperationKind::fetch_add, true);
    for (Operation* each : {&one_, &two_}) {
        each->buffers = &piece;
        each->buffer_count = 1;
    }
    two_.offset_bytes = 63;
    one_.next = &two_;
    two_.next = &three_;
    slots_->submit(one_);
    take();
    EXPECT_TRUE(nothing_to_take()) << "the write is of a byte that is being read";
    slots_->connection_lost(1);
    resume({static_cast<unsigned char>(Outcome::not_executed)});
    const wire::Request again = take();
    EXPECT_TRUE(nothing_to_take());
    slots_->finish(answer(again));
    EXPECT_EQ(one_.outcome, Outcome::executed);
    EXPECT_EQ(take().operation, static_cast<uint8_t>(OperationKind::write));
    EXPECT_EQ(take().operation, static_cast<uint8_t>(OperationKind::fetch_add));
}

TEST_F(RequestSlotsTest, AFollowerGoesAlongWithAReadOfOtherBytes) {
    start();
    unsigned char bytes[64] = {};
    const vfs::IoVector piece{bytes, sizeof(bytes)};
    make(one_, OperationKind::read);
    make(two_, OperationKind::write, true);
    for (Operation* each : {&one_, &two_}) {
        each->buffers = &piece;
        each->buffer_count = 1;
    }
    two_.offset_bytes = 64;
    one_.next = &two_;
    slots_->submit(one_);
    take();
    EXPECT_EQ(take().after, 1U);
}

TEST_F(RequestSlotsTest, UsesOnlyTheSlotsThatWereGranted) {
    one_.next = &two_;
    slots_->submit(one_);
    slots_->opened(1);
    EXPECT_EQ(take().slot, 0U);
    EXPECT_TRUE(nothing_to_take());
}

TEST_F(RequestSlotsTest, RefusesAnswersThatCannotBeAndIgnoresOldOnes) {
    start();
    slots_->submit(one_);
    const wire::Request request = take();
    wire::Response response = answer(request);
    response.slot = 2;
    EXPECT_FALSE(slots_->find(response).ok());
    response = answer(request);
    response.sequence = 2;
    EXPECT_FALSE(slots_->find(response).ok()) << "of the future";
    response = answer(request);
    response.operation = 2;
    EXPECT_FALSE(slots_->find(response).ok()) << "another operation";
    response = answer(request);
    response.payload_bytes = 8;
    EXPECT_FALSE(slots_->find(response).ok()) << "more than was asked for";
    response = answer(request);
    ASSERT_TRUE(slots_->find(response).ok());
    EXPECT_EQ(*slots_->find(response), &one_);
    slots_->finish(response);
    EXPECT_EQ(*slots_->find(response), nullptr) << "twice";
    EXPECT_EQ(slots_->statistics().stale_responses, 1U);
}

TEST_F(RequestSlotsTest, AfterAResumptionItFetchesAndSendsAgain) {
    start();
    make(one_, OperationKind::fetch_add);
    make(two_, OperationKind::write);
    one_.next = &two_;
    slots_->submit(one_);
    take();
    take();
    slots_->connection_lost(1);
    EXPECT_TRUE(nothing_to_take());
    resume({1, 2});
    const wire::Request first = take();
    EXPECT_EQ(first.sequence, 1U);
    EXPECT_EQ(first.flags, wire::request_flag::reply_only);
    const wire::Request second = take();
    EXPECT_EQ(second.sequence, 2U);
    EXPECT_EQ(second.flags, 0U);
    slots_->finish(answer(first, Outcome::executed, 42));
    EXPECT_EQ(one_.old_value, 42U);
    EXPECT_EQ(slots_->statistics().replayed, 2U);
    EXPECT_EQ(slots_->statistics().fetched, 1U);
}

TEST_F(RequestSlotsTest, DeadlinesEndWhatWasNotSentAndAskForAnAbortOfWhatWas) {
    start();
    make(one_, OperationKind::write, false, 100);
    slots_->submit(one_);
    take();
    make(two_, OperationKind::write, false, 50);
    slots_->submit(two_);
    EXPECT_EQ(slots_->next_deadline_ns(), 50U);
    EXPECT_FALSE(slots_->expire(99));
    EXPECT_EQ(two_.outcome, Outcome::not_executed);
    EXPECT_EQ(two_.error, Error::etimedout);
    EXPECT_EQ(slots_->next_deadline_ns(), 100U);
    EXPECT_TRUE(slots_->expire(100));
    EXPECT_EQ(one_.outcome, Outcome::pending) << "its buffers are still in use";
    slots_->connection_lost(100);
    EXPECT_EQ(one_.outcome, Outcome::unknown);
    EXPECT_EQ(slots_->next_deadline_ns(), 0U);
    resume({});
}

TEST_F(RequestSlotsTest, NothingSentCompletesWhileTheServerCountsOnIt) {
    start();
    make(one_, OperationKind::write, false, 100);
    slots_->submit(one_);
    take();
    slots_->connection_lost(1);
    wire::OutstandingEntry entries[2];
    ASSERT_EQ(slots_->fill_outstanding(entries), 1U);
    EXPECT_EQ(entries[0].sequence, 1U);
    EXPECT_TRUE(slots_->expire(100));
    EXPECT_EQ(one_.outcome, Outcome::pending);
    slots_->connection_lost(100);
    EXPECT_EQ(one_.outcome, Outcome::unknown);
}

TEST_F(RequestSlotsTest, WhatFollowsAFailureIsCancelled) {
    start();
    make(two_, OperationKind::write, true);
    make(three_, OperationKind::write, true);
    one_.next = &two_;
    two_.next = &three_;
    slots_->submit(one_);
    const wire::Request first = take();
    const wire::Request second = take();
    slots_->finish(answer(first, Outcome::not_executed));
    EXPECT_EQ(one_.error, Error::eio);
    EXPECT_EQ(three_.outcome, Outcome::not_executed) << "was not sent";
    EXPECT_EQ(three_.error, Error::ecanceled);
    EXPECT_EQ(two_.outcome, Outcome::pending) << "the server has to refuse it";
    slots_->connection_lost(1);
    resume({2});
    const wire::Request again = take();
    EXPECT_EQ(again.sequence, second.sequence);
    EXPECT_EQ(again.flags, wire::request_flag::reply_only) << "and not be executed now";
}

TEST_F(RequestSlotsTest, ANewSessionStartsOver) {
    start();
    make(one_, OperationKind::write);
    make(two_, OperationKind::fetch_add);
    one_.next = &two_;
    two_.next = &three_;
    slots_->submit(one_);
    take();
    take();
    slots_->connection_lost(1);
    slots_->restarted(1);
    EXPECT_EQ(two_.outcome, Outcome::unknown);
    EXPECT_EQ(two_.error, Error::estale);
    const wire::Request first = take();
    EXPECT_EQ(first.sequence, 1U);
    EXPECT_EQ(first.operation, 2U);
    EXPECT_TRUE(nothing_to_take());
    slots_->finish(answer(first));
    EXPECT_EQ(take().sequence, 2U);
}

// The earlier server may have executed what this one refuses.
TEST_F(RequestSlotsTest, WhatAnEarlierServerHadIsUnknownWhereANewOneRefusesIt) {
    start();
    make(one_, OperationKind::write);
    make(two_, OperationKind::read);
    make(three_, OperationKind::write);
    one_.next = &two_;
    slots_->submit(one_);
    take();
    take();
    slots_->connection_lost(1);
    slots_->restarted(2);
    slots_->submit(three_);  // the new server's own
    const wire::Request write = take();
    const wire::Request read = take();
    slots_->finish(answer(write, Outcome::not_executed));
    slots_->finish(answer(read, Outcome::not_executed));
    slots_->finish(answer(take(), Outcome::not_executed));
    EXPECT_EQ(one_.outcome, Outcome::unknown);
    EXPECT_EQ(two_.outcome, Outcome::not_executed) << "it changes nothing";
    EXPECT_EQ(three_.outcome, Outcome::not_executed);
}

TEST_F(RequestSlotsTest, AfterTheEndEverythingCompletesAtOnce) {
    start();
    one_.next = &two_;
    slots_->submit(one_);
    take();
    slots_->fail_all(Error::estale);
    EXPECT_EQ(one_.outcome, Outcome::unknown);
    EXPECT_EQ(two_.outcome, Outcome::not_executed);
    slots_->submit(three_);
    EXPECT_EQ(three_.outcome, Outcome::not_executed);
    EXPECT_EQ(three_.error, Error::estale);
    EXPECT_EQ(slots_->pending_count(), 0U);
}

// For all that is counted they are complete before they are handed back.
TEST_F(RequestSlotsTest, CompletionsCanBeCollected) {
    start();
    OperationQueue completed;
    slots_->collect_completions(completed);
    int calls = 0;
    for (Operation* operation : {&one_, &two_}) {
        make(*operation, OperationKind::fetch_add);
        operation->owner = &calls;
        operation->complete = [](Operation& done) { ++*static_cast<int*>(done.owner); };
    }
    slots_->submit(one_);
    slots_->submit(two_);
    make(three_, OperationKind::fetch_add, true);
    slots_->submit(three_);
    EXPECT_EQ(slots_->pending_callbacks(), 2U);
    const wire::Request first = take();
    slots_->finish(answer(take(), Outcome::not_executed));
    slots_->finish(answer(first, Outcome::executed, 7));
    EXPECT_EQ(calls, 0);
    EXPECT_EQ(slots_->pending_count(), 0U);
    EXPECT_EQ(slots_->pending_changes(), 0U);
    EXPECT_EQ(slots_->pending_callbacks(), 0U);
    EXPECT_EQ(three_.error,
              Error::ecanceled);  // nothing is called for it, so it is handed back at once
    EXPECT_EQ(three_.finished, 1U);
    EXPECT_EQ(completed.front(), &two_);
    EXPECT_EQ(completed.size(), 2U);
    hand_back(completed);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(two_.outcome, Outcome::not_executed);
    EXPECT_EQ(one_.outcome, Outcome::executed);
    EXPECT_EQ(one_.old_value, 7U);
}

}  // namespace
}  // namespace tiffin::rdma_blk
