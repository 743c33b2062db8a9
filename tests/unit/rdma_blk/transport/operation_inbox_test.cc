// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/operation_inbox.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/test_size.h"

namespace tiffin::rdma_blk::test {
namespace {

using Put = OperationInbox::Put;

TEST(OperationInbox, BatchesComeOutInTheOrderInWhichTheyWerePut) {
    OperationInbox inbox;
    EXPECT_EQ(inbox.take(), nullptr);
    Operation operations[4];
    operations[1].next = &operations[2];  // one batch of two
    for (const size_t first : {0, 1, 3}) {
        EXPECT_EQ(inbox.put(operations[first], false), Put::to_send);
    }
    EXPECT_TRUE(inbox.must_be_sent());
    const Operation* taken = inbox.take();
    for (const size_t first : {0, 1, 3}) {
        ASSERT_EQ(taken, &operations[first]);
        taken = taken->next_batch;
    }
    EXPECT_EQ(taken, nullptr);
    EXPECT_EQ(operations[1].next, &operations[2]);
    EXPECT_TRUE(inbox.is_empty());
    EXPECT_FALSE(inbox.must_be_sent());
}

TEST(OperationInbox, WhatIsKeptGoesWithTheFirstThatIsNot) {
    OperationInbox inbox;
    Operation operations[4];
    EXPECT_EQ(inbox.put(operations[0], true), Put::first_kept);
    EXPECT_EQ(inbox.put(operations[1], true), Put::kept);
    EXPECT_FALSE(inbox.must_be_sent());
    EXPECT_FALSE(inbox.is_to_be_sent());
    EXPECT_TRUE(inbox.must_be_seen_to());
    EXPECT_EQ(inbox.put(operations[2], false), Put::to_send);
    EXPECT_TRUE(inbox.is_to_be_sent());
    // It waits for nothing any more, whatever comes.
    EXPECT_EQ(inbox.put(operations[3], true), Put::to_send);
    EXPECT_TRUE(inbox.must_be_sent());
    EXPECT_EQ(inbox.take(), &operations[0]);
    EXPECT_EQ(operations[2].next_batch, &operations[3]);
}

TEST(OperationInbox, IsBounded) {
    OperationInbox inbox;
    std::vector<Operation> operations(OperationInbox::kMostBatches + 1);
    for (size_t i = 0; i < OperationInbox::kMostBatches; i++) {
        ASSERT_NE(inbox.put(operations[i], true), Put::full);
    }
    EXPECT_EQ(inbox.put(operations.back(), false), Put::full);
    EXPECT_EQ(inbox.take(), operations.data());
    EXPECT_EQ(inbox.put(operations.back(), false), Put::to_send);
    EXPECT_EQ(inbox.take(), &operations.back());
}

// As a transport does it: whoever cannot get the lock leaves his batch to its owner. Nothing stays behind.
TEST(OperationInbox, NothingThatWasPutIsForgotten) {
    constexpr size_t kThreads = 4;
    const size_t count = tiffin::test::test_size(200'000, 20'000);
    OperationInbox inbox;
    std::mutex mutex;
    std::vector<std::vector<Operation>> operations;
    std::vector<size_t> taken(kThreads);
    size_t out_of_order = 0;
    const auto take_all = [&] {
        for (Operation* first = inbox.take(); first != nullptr; first = first->next_batch) {
            const uint64_t thread = first->compare;
            out_of_order += first->operand != taken[thread]++;
        }
    };
    const auto leave = [&] {
        do {
            take_all();
            mutex.unlock();
        } while (inbox.must_be_sent() && mutex.try_lock());
    };
    for (size_t t = 0; t < kThreads; t++) {
        operations.emplace_back(count);
    }
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; t++) {
        threads.emplace_back([&, t] {
            for (size_t i = 0; i < count; i++) {
                Operation& operation = operations[t][i];
                operation.compare = t;
                operation.operand = i;
                while (inbox.put(operation, false) == Put::full) {
                    std::this_thread::yield();
                }
                if (mutex.try_lock()) {
                    leave();
                }
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_TRUE(inbox.is_empty());
    EXPECT_EQ(out_of_order, 0U);
    EXPECT_EQ(taken, std::vector<size_t>(kThreads, count));
    take_all();  // so that a failure is not followed by an abort
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
