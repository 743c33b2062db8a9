// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Several connections of one session: who may join, what has become of requests on one that failed, and its end.
#include "tests/unit/rdma_blk/server/ordered_requests.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {
namespace {

constexpr auto kExecuted = static_cast<uint8_t>(Outcome::executed);
constexpr unsigned char kPending = 0;
constexpr unsigned char kNotExecuted = 2;

class SeveralPathsTest : public ServerFixture {
  protected:
    void SetUp() override {
        ServerFixture::SetUp();
        start();
        first_ = open(1);
        second_ = connect(1);
    }
    static wire::OutstandingEntry entry_of(const wire::Request& request) {
        wire::OutstandingEntry entry{};
        entry.sequence = request.sequence;
        entry.slot = request.slot;
        entry.operation = request.operation;
        return entry;
    }
    std::string content(size_t size) { return {reinterpret_cast<const char*>(memory()), size}; }

    // A large request waits for one that comes on the second path.
    void take_over_what_waits(bool first_ends) {
        ASSERT_TRUE(second_->join(*first_, 1));
        const std::string large(wire::kMaxTransferBytes, 'l');  // more than a connection holds
        const auto earlier = first_->make_request(OperationKind::write, 0, 5, 0);
        const auto later = ordered_after(
            earlier,
            first_->make_request(OperationKind::write, 0, static_cast<uint32_t>(large.size()), 1));
        ASSERT_TRUE(first_->send_request(later, large).ok());
        while (volume().counters().requests[2].load() == 0) {
            std::this_thread::yield();
        }
        if (first_ends) {
            first_.reset();
            while (volume().sessions(host::monotonic_ns()).at(0).path_count != 1) {
                std::this_thread::yield();
            }
        }
        ASSERT_TRUE(second_->recover(0, first_ends ? wire::recover_flag::revoke : 0,
                                     {entry_of(earlier), entry_of(later)}));
        EXPECT_EQ(second_->outcomes(), (std::vector<unsigned char>{kNotExecuted, kPending}));
        ASSERT_TRUE(second_->send_request(earlier, "early").ok());
        EXPECT_EQ(second_->response().value().sequence, earlier.sequence);
        EXPECT_EQ(second_->response().value().sequence, later.sequence);
        EXPECT_EQ(content(5), "lllll");
    }

    std::unique_ptr<TestClient> first_;
    std::unique_ptr<TestClient> second_;
};

TEST_F(SeveralPathsTest, WhoDoesNotHaveTheSessionsSecretCannotJoin) {
    // With the volume's key and the client's UUID, which an observer sees; and with a proof for another connection.
    EXPECT_FALSE(second_->join(*first_, 1, second_.get()));
    const auto other = open(2, wire::SessionMode::read);
    EXPECT_FALSE(connect(1)->join(*first_, 1, other.get()));
    EXPECT_FALSE(connect(3)->join(*first_, 1));
    EXPECT_TRUE(connect(1)->join(*first_, 1));
    EXPECT_EQ(volume().counters().paths_joined.load(), 1U);
}

TEST_F(SeveralPathsTest, TheSecretIsThatOfThePresentIncarnation) {
    ASSERT_TRUE(second_->resume(*first_));
    EXPECT_FALSE(connect(1)->join(*second_, 1, first_.get()));
    EXPECT_TRUE(connect(1)->join(*second_, 1));
}

TEST_F(SeveralPathsTest, TheyShareTheOrderOfTheirSession) {
    ASSERT_TRUE(second_->join(*first_, 1));
    const auto earlier = first_->make_request(OperationKind::write, 0, 5, 0);
    const auto later = ordered_after(earlier, first_->make_request(OperationKind::write, 0, 5, 1));
    ASSERT_TRUE(second_->send_request(later, "later").ok());
    ASSERT_TRUE(first_->send_request(earlier, "early").ok());
    EXPECT_EQ(first_->response().value().sequence, earlier.sequence);
    EXPECT_EQ(second_->response().value().sequence, later.sequence);
    EXPECT_EQ(first_->read(0, 5), "later");
}

TEST_F(SeveralPathsTest, APathThatWasEndedWhileItWasMadeCannotJoin) {
    ASSERT_TRUE(second_->join(*first_, 1));
    EXPECT_FALSE(connect(1)->join(*first_, 1));
    ASSERT_TRUE(first_->recover(2, wire::recover_flag::revoke, {}));
    EXPECT_FALSE(connect(1)->join(*first_, 2));
    EXPECT_TRUE(connect(1)->join(*first_, 3));
}

TEST_F(SeveralPathsTest, WhatWasExecutedIsAnsweredAndTheRestIsToBeSentAgain) {
    ASSERT_TRUE(second_->join(*first_, 1));
    const auto write = first_->make_request(OperationKind::write, 0, 4, 0);
    EXPECT_EQ(first_->call(write, "once").outcome, kExecuted);
    auto add = first_->make_request(OperationKind::fetch_add, 64, 8, 1);
    add.operand = 5;
    EXPECT_EQ(first_->call(add).value, 0U);
    auto lost = first_->make_request(OperationKind::fetch_add, 64, 8, 2);
    lost.operand = 7;
    const auto read = first_->make_request(OperationKind::read, 0, 4, 3);
    EXPECT_EQ(first_->call(read).outcome, kExecuted);

    ASSERT_TRUE(second_->recover(0, wire::recover_flag::revoke,
                                 {entry_of(write), entry_of(add), entry_of(lost), entry_of(read)}));
    EXPECT_EQ(second_->outcomes(),
              (std::vector<unsigned char>{kPending, kPending, kNotExecuted, kNotExecuted}));
    ASSERT_EQ(second_->recovered_responses.size(), 2U);
    EXPECT_EQ(second_->recovered_responses[0].sequence, write.sequence);
    EXPECT_EQ(second_->recovered_responses[1].sequence, add.sequence);
    EXPECT_EQ(second_->recovered_responses[1].value, 0U);
    EXPECT_EQ(second_->call(lost).value, 5U);
    EXPECT_EQ(memory()[64], 12);
    EXPECT_EQ(volume().counters().paths_revoked.load(), 1U);
    // The first one has ended.
    EXPECT_EQ(first_->receive().error(), Error::enodev);
}

TEST_F(SeveralPathsTest, NothingOfARevokedPathIsExecuted) {
    ASSERT_TRUE(second_->join(*first_, 1));
    for (int round = 0; round < 20; round++) {
        auto late = first_->make_request(OperationKind::fetch_add, 64, 8, 0);
        late.operand = 1;
        // It is sent, and the path ends: it was executed before that, or never will be.
        (void)first_->send_request(late);
        ASSERT_TRUE(second_->recover(0, wire::recover_flag::revoke, {entry_of(late)}));
        const bool was_executed = second_->outcomes()[0] == kPending;
        EXPECT_EQ(second_->recovered_responses.size(), was_executed ? 1U : 0U);
        const uint64_t before = *reinterpret_cast<uint64_t*>(memory() + 64);
        const auto response = was_executed ? second_->recovered_responses[0] : second_->call(late);
        EXPECT_EQ(response.value + 1, was_executed ? before : before + 1);
        EXPECT_EQ(*reinterpret_cast<uint64_t*>(memory() + 64), response.value + 1);
        first_ = open(1, wire::SessionMode::write, true);
        second_ = connect(1);
        ASSERT_TRUE(second_->join(*first_, 1));
    }
}

TEST_F(SeveralPathsTest, WhatWaitsIsAnsweredOnThePathThatAsks) {
    ASSERT_TRUE(second_->join(*first_, 1));
    const auto earlier = first_->make_request(OperationKind::write, 0, 5, 0);
    const auto later = ordered_after(earlier, first_->make_request(OperationKind::write, 0, 5, 1));
    ASSERT_TRUE(first_->send_request(later, "later").ok());
    while (volume().counters().requests[2].load() == 0) {  // it has come
        std::this_thread::yield();
    }
    ASSERT_TRUE(second_->recover(0, 0, {entry_of(earlier), entry_of(later)}));
    EXPECT_EQ(second_->outcomes(), (std::vector<unsigned char>{kNotExecuted, kPending}));
    ASSERT_TRUE(second_->send_request(earlier, "early").ok());
    EXPECT_EQ(second_->response().value().sequence, earlier.sequence);
    EXPECT_EQ(second_->response().value().sequence, later.sequence);
    EXPECT_EQ(content(5), "later");
    EXPECT_EQ(first_->read(0, 5), "later");  // it was not ended
}

// What it waits for has yet to be read there. The first path was given up, or it is only suspect.
TEST_F(SeveralPathsTest, WhatWaitsDoesNotStopThePathThatTakesItOver) { take_over_what_waits(true); }

TEST_F(SeveralPathsTest, WhatWaitsDoesNotStopThePathThatAsks) {
    take_over_what_waits(false);
    EXPECT_EQ(first_->read(0, 5), "lllll");  // it is read again, too
}

TEST_F(SeveralPathsTest, AQuestionThatCannotBe) {
    ASSERT_TRUE(second_->join(*first_, 1));
    EXPECT_FALSE(second_->recover(1, wire::recover_flag::revoke, {})) << "its own path";
    EXPECT_EQ(second_->read(0, 1), std::string(1, '\0'));
    wire::OutstandingEntry entry{};
    entry.sequence = 1;
    entry.slot = 1000;
    entry.operation = 1;
    EXPECT_FALSE(second_->recover(0, 0, {entry}));
    EXPECT_EQ(second_->receive().error(), Error::enodev);
    EXPECT_EQ(first_->read(0, 1), std::string(1, '\0'));
}

TEST_F(SeveralPathsTest, AClientOfTheFirstVersionHasOnePath) {
    const auto old = connect(1, false, 1);
    EXPECT_EQ(old->version, 1);
    ASSERT_TRUE(old->resume(*first_));
    EXPECT_EQ(old->write(0, "old").outcome, kExecuted);
    EXPECT_EQ(old->read(0, 3), "old");
    const auto other = connect(1, false, 1);
    EXPECT_FALSE(other->join(*old, 1));
    EXPECT_FALSE(old->recover(1, 0, {}));
}

}  // namespace
}  // namespace tiffin::rdma_blk
