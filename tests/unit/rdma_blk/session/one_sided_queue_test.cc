// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What may be posted when, and what becomes of everything at a break: without a device.
#include "rdma_blk/session/one_sided_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tiffin::rdma_blk {
namespace {

class OneSidedQueueTest : public ::testing::Test {
  protected:
    static constexpr size_t kCount = 8;

    void SetUp() override {
        queue_ = OneSidedQueue::create(4).release_value();
        queue_->connected();
    }
    void TearDown() override { queue_->fail_all(Error::enodev); }

    // r: read, w: write, a: atomic, f: flush; upper case: after_earlier. One batch.
    void submit(const std::string& kinds) {
        for (size_t i = 0; i < kinds.size(); i++) {
            Operation& operation = operations_[i];
            operation.reset();
            const char kind = static_cast<char>(kinds[i] | 32);
            operation.kind = kind == 'r'   ? OperationKind::read
                             : kind == 'w' ? OperationKind::write
                             : kind == 'a' ? OperationKind::fetch_add
                                           : OperationKind::flush;
            operation.after_earlier = kind != kinds[i];
            operation.next = i + 1 < kinds.size() ? &operations_[i + 1] : nullptr;
        }
        queue_->submit(operations_[0]);
    }
    // Starts what may start: d for the device, D with a fence, c for control.
    std::string start() {
        std::string started;
        bool is_control = false;
        while (queue_->peek(is_control) != nullptr) {
            if (is_control) {
                queue_->start_control();
                started += 'c';
            } else {
                bool is_fenced = false;
                queue_->start_device(is_fenced);
                started += is_fenced ? 'D' : 'd';
            }
        }
        return started;
    }
    // Outcomes of the first ones: . pending, e executed, n not executed, u unknown.
    std::string outcomes(size_t count) const {
        std::string text;
        for (size_t i = 0; i < count; i++) {
            text += ".enu"[static_cast<size_t>(operations_[i].outcome)];
        }
        return text;
    }

    std::unique_ptr<OneSidedQueue> queue_;
    Operation operations_[kCount];
};

TEST_F(OneSidedQueueTest, ItsBounds) {
    EXPECT_EQ(OneSidedQueue::create(0).error(), Error::einval);
    EXPECT_EQ(OneSidedQueue::create(1025).error(), Error::einval);
}

// A break has it posted again, when its follower may have been executed.
TEST_F(OneSidedQueueTest, AFollowerDoesNotChangeWhatAnEarlierReadMayReadAgain) {
    unsigned char bytes[64] = {};
    const vfs::IoVector piece{bytes, sizeof(bytes)};
    for (Operation& operation : operations_) {
        operation.buffers = &piece;
        operation.buffer_count = 1;
    }
    operations_[1].offset_bytes = 64;
    operations_[2].offset_bytes = 32;
    submit("rWW");
    EXPECT_EQ(start(), "dD") << "the last one is of bytes that are being read";
    queue_->broken(1);
    queue_->connected();
    EXPECT_EQ(start(), "dD");
    queue_->finish_oldest();
    EXPECT_EQ(start(), "d");
}

TEST_F(OneSidedQueueTest, AsManyAsItsDepthArePosted) {
    submit("wwwwww");
    EXPECT_EQ(start(), "dddd");
    queue_->finish_oldest();
    EXPECT_EQ(start(), "d");
    EXPECT_EQ(outcomes(6), "e.....");
    EXPECT_EQ(queue_->finished_count(), 1U);
}

TEST_F(OneSidedQueueTest, FencesOnlyBehindReadsOnTheirWay) {
    submit("wWrW");
    EXPECT_EQ(start(), "dddD");
    for (int i = 0; i < 4; i++) {
        queue_->finish_oldest();
    }
    EXPECT_EQ(queue_->pending_count(), 0U);
}

TEST_F(OneSidedQueueTest, ControlAndDeviceWaitForEachOther) {
    submit("wFW");
    EXPECT_EQ(start(), "d");
    queue_->finish_oldest();
    EXPECT_EQ(start(), "c");
    EXPECT_EQ(queue_->control_count(), 1U);
    queue_->finish_control(operations_[1], Outcome::executed, Error::eio);
    EXPECT_EQ(start(), "d");
    EXPECT_EQ(outcomes(3), "ee.");
}

TEST_F(OneSidedQueueTest, WithoutOrderNothingWaits) {
    submit("wfaw");
    EXPECT_EQ(start(), "dccd");
    queue_->finish_control(operations_[2], Outcome::executed, Error::eio);
    queue_->finish_control(operations_[1], Outcome::executed, Error::eio);
}

TEST_F(OneSidedQueueTest, AFailureEndsWhatIsOrderedBehindIt) {
    submit("fwWF");
    EXPECT_EQ(start(), "cd");
    queue_->finish_control(operations_[0], Outcome::not_executed, Error::eio);
    EXPECT_EQ(outcomes(4), "n.nn");
    EXPECT_EQ(operations_[2].error, Error::ecanceled);
    queue_->finish_oldest();
    EXPECT_EQ(outcomes(4), "nenn");
}

TEST_F(OneSidedQueueTest, ARefusalEndsWhatIsOrderedBehindIt) {
    submit("wWw");
    bool is_control = false;
    ASSERT_EQ(queue_->peek(is_control), &operations_[0]);
    queue_->refuse(Error::erofs);
    EXPECT_EQ(outcomes(3), "nn.");
    EXPECT_EQ(operations_[0].error, Error::erofs);
}

TEST_F(OneSidedQueueTest, ABreakRepeatsReadsAndWritesInTheirOrder) {
    submit("wrwWww");
    EXPECT_EQ(start(), "dddD");
    queue_->finish_oldest();
    queue_->broken(0);
    EXPECT_EQ(outcomes(6), "e.....");
    EXPECT_EQ(start(), "");  // not connected
    queue_->connected();
    bool is_control = false;
    EXPECT_EQ(queue_->peek(is_control), &operations_[1]);
    EXPECT_EQ(start(), "ddDd");
    EXPECT_EQ(&queue_->oldest(), &operations_[1]);
    EXPECT_EQ(queue_->replayed_count(), 3U);
}

TEST_F(OneSidedQueueTest, WhatTheLogCoversIsNotPostedAgain) {
    submit("wwrwww");
    EXPECT_EQ(start(), "dddd");
    queue_->broken(0);
    EXPECT_EQ(queue_->find_executed(0), nullptr);
    Operation* found = queue_->find_executed(2);
    ASSERT_EQ(found, &operations_[0]);
    queue_->finish_executed(*found);
    found = queue_->find_executed(2);
    ASSERT_EQ(found, &operations_[1]);
    queue_->finish_executed(*found);
    EXPECT_EQ(queue_->find_executed(3), nullptr) << "nothing is known of a read's answer";
    EXPECT_EQ(queue_->find_executed(3), nullptr);
    EXPECT_EQ(outcomes(6), "ee....");
    EXPECT_EQ(queue_->find_executed(6), &operations_[3]);
    queue_->connected();
    EXPECT_EQ(start(), "dddd");
    EXPECT_EQ(&queue_->oldest(), &operations_[2]);
    EXPECT_EQ(queue_->recovered_count(), 2U);
    EXPECT_EQ(queue_->replayed_count(), 2U);
}

// A log cannot know of it, whatever it says.
TEST_F(OneSidedQueueTest, WhatWasNeverPostedIsNotExecuted) {
    submit("ww");
    bool is_fenced = false;
    queue_->start_device(is_fenced);
    queue_->broken(0);
    queue_->finish_executed(*queue_->find_executed(2));
    EXPECT_EQ(queue_->find_executed(2), nullptr);
    EXPECT_EQ(outcomes(2), "e.");
}

// It ends those that are ordered behind it no more than any other that was executed.
TEST_F(OneSidedQueueTest, AFollowerOfALoggedOneIsPosted) {
    submit("wWF");
    EXPECT_EQ(start(), "dd");
    queue_->broken(0);
    queue_->finish_executed(*queue_->find_executed(1));
    queue_->connected();
    EXPECT_EQ(start(), "d");
    queue_->finish_oldest();
    EXPECT_EQ(start(), "c");
    queue_->finish_control(operations_[2], Outcome::executed, Error::eio);
    EXPECT_EQ(outcomes(3), "eee");
}

TEST_F(OneSidedQueueTest, WhatWasPostedOnceIsNeverCalledNotExecuted) {
    submit("ww");
    operations_[0].deadline_ns = 0;
    EXPECT_EQ(start(), "dd");
    queue_->broken(0);
    EXPECT_EQ(outcomes(2), "..");
    queue_->fail_all(Error::estale);
    EXPECT_EQ(outcomes(2), "uu");
    EXPECT_EQ(operations_[0].error, Error::estale);
    submit("w");
    EXPECT_EQ(outcomes(1), "n");
}

TEST_F(OneSidedQueueTest, Deadlines) {
    operations_[0].deadline_ns = 100;
    operations_[1].deadline_ns = 200;
    submit("wwW");
    EXPECT_EQ(queue_->next_deadline_ns(), 100U);
    EXPECT_FALSE(queue_->expire(50));
    EXPECT_FALSE(queue_->expire(100));  // it was not posted
    EXPECT_EQ(outcomes(3), "n.n");
    EXPECT_EQ(operations_[0].error, Error::etimedout);
    EXPECT_EQ(start(), "d");
    EXPECT_FALSE(queue_->expire(199));
    EXPECT_TRUE(queue_->expire(200));
    queue_->broken(200);
    EXPECT_EQ(outcomes(3), "nun");
    EXPECT_EQ(operations_[1].error, Error::etimedout);
    EXPECT_EQ(queue_->next_deadline_ns(), 0U);
}

TEST_F(OneSidedQueueTest, ARepeatedOneThatIsLateBeforeItIsPostedAgainIsUnknown) {
    operations_[0].deadline_ns = 100;
    submit("wW");
    EXPECT_EQ(start(), "dd");
    queue_->broken(50);
    EXPECT_FALSE(queue_->expire(100));
    EXPECT_EQ(outcomes(2), "uu");
}

}  // namespace
}  // namespace tiffin::rdma_blk
