// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The server's slots with crafted requests: right ones, repeated ones, old ones and impossible ones.
#include "rdma_blk/session/slot_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kSession = 9;
constexpr uint64_t kEpoch = 4;

class SlotTableTest : public ::testing::Test {
  protected:
    void SetUp() override { start(); }

    void start() {
        table_ = SlotTable::create(Span<wire::SlotEntry>(entries_.data(), entries_.size()))
                     .release_value();
        SessionAccess access;
        access.session_id = kSession;
        access.volume_epoch = kEpoch;
        access.is_writer = true;
        access.data_bytes = 4096;
        access.control_bytes = 65536;
        access.words_offset = 8192;
        access.words_bytes = 4096;
        access.client_offset = 20480;
        access.client_bytes = 4096;
        table_->set_access(access);
    }
    void open(uint32_t incarnation = 1, uint64_t next_sequence = 1) {
        incarnation_ = incarnation;
        ASSERT_TRUE(table_->open_incarnation(incarnation, next_sequence, ByteSpan(), nullptr).ok());
    }
    std::vector<unsigned char> reopen(uint32_t incarnation, uint64_t next_sequence,
                                      std::vector<wire::OutstandingEntry> outstanding) {
        incarnation_ = incarnation;
        std::vector<unsigned char> outcomes(outstanding.size());
        EXPECT_TRUE(
            table_
                ->open_incarnation(incarnation, next_sequence,
                                   ByteSpan(reinterpret_cast<unsigned char*>(outstanding.data()),
                                            outstanding.size() * 16),
                                   outcomes.data())
                .ok());
        return outcomes;
    }
    wire::Request request(uint16_t slot, uint64_t sequence,
                          OperationKind kind = OperationKind::write, uint64_t after = 0) const {
        wire::Request made{};
        made.session_id = kSession;
        made.epoch = kEpoch;
        made.incarnation = incarnation_;
        made.slot = slot;
        made.sequence = sequence;
        made.operation = static_cast<uint8_t>(kind);
        made.length_bytes = 8;
        made.after = after;
        made.pending_since = after != 0 ? 1 : 0;
        return made;
    }
    RequestAction action(const wire::Request& request) {
        auto decided = table_->decide(request);
        EXPECT_TRUE(decided.ok());
        return decided.ok() ? decided->action : RequestAction::ignore;
    }
    bool is_impossible(const wire::Request& request) { return !table_->decide(request).ok(); }
    uint16_t refusal(const wire::Request& request) {
        auto decided = table_->decide(request);
        EXPECT_TRUE(decided.ok() && decided->action == RequestAction::reply);
        EXPECT_EQ(decided->response.outcome, static_cast<uint8_t>(Outcome::not_executed));
        return decided->response.error;
    }
    void execute(const wire::Request& request, uint64_t value = 0) {
        ASSERT_EQ(action(request), RequestAction::execute);
        table_->finish(request, Outcome::executed, Error::eio, value);
    }

    uint32_t incarnation_ = 0;
    std::vector<wire::SlotEntry> entries_ = std::vector<wire::SlotEntry>(3);
    std::unique_ptr<SlotTable> table_;
};

TEST_F(SlotTableTest, ExecutesOnceAndAnswersAgain) {
    open();
    const wire::Request write = request(0, 1, OperationKind::fetch_add);
    ASSERT_EQ(action(write), RequestAction::execute);
    EXPECT_EQ(action(write), RequestAction::ignore) << "being executed";
    table_->finish(write, Outcome::executed, Error::eio, 77);
    auto again = table_->decide(write);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->action, RequestAction::reply);
    EXPECT_EQ(again->response.value, 77U);
    EXPECT_EQ(again->response.sequence, 1U);
    execute(request(0, 2));
    EXPECT_EQ(action(write), RequestAction::ignore) << "old";
    EXPECT_EQ(table_->statistics().executed, 2U);
}

TEST_F(SlotTableTest, RefusesImpossibleRequests) {
    open();
    EXPECT_TRUE(is_impossible(request(3, 1)));
    EXPECT_TRUE(is_impossible(request(0, 4 + 1))) << "more missing than there are slots";
    wire::Request other = request(0, 1);
    other.session_id++;
    EXPECT_TRUE(is_impossible(other));
    ASSERT_EQ(action(request(0, 1)), RequestAction::execute);
    EXPECT_TRUE(is_impossible(request(0, 2))) << "two in a slot";
}

TEST_F(SlotTableTest, KnowsItsIncarnation) {
    EXPECT_EQ(action(request(0, 1)), RequestAction::ignore) << "none is open";
    open(5);
    wire::Request old = request(0, 1);
    old.incarnation = 4;
    EXPECT_EQ(action(old), RequestAction::ignore);
    auto reopened = table_->open_incarnation(5, 1, ByteSpan(), nullptr);
    ASSERT_FALSE(reopened.ok());
    EXPECT_EQ(reopened.error(), Error::estale);
}

TEST_F(SlotTableTest, WaitsForAllEarlierRequests) {
    open();
    const wire::Request last = request(2, 3, OperationKind::write, 2);
    EXPECT_EQ(action(last), RequestAction::wait);
    execute(request(1, 2));
    ReadyRequest ready;
    EXPECT_FALSE(table_->next_ready(ready));
    EXPECT_EQ(action(last), RequestAction::ignore) << "it waits already";
    execute(request(0, 1));
    ASSERT_TRUE(table_->next_ready(ready));
    EXPECT_EQ(ready.slot, 2U);
    EXPECT_EQ(ready.decision.action, RequestAction::execute);
    EXPECT_FALSE(table_->next_ready(ready));
    table_->finish(last, Outcome::executed, Error::eio, 0);
    EXPECT_EQ(table_->executing_count(), 0U);
}

TEST_F(SlotTableTest, RefusesWhatFollowsARefusal) {
    open();
    wire::Request beyond = request(0, 1);
    beyond.offset_bytes = 4096;
    const wire::Request follower = request(1, 2, OperationKind::write, 1);
    EXPECT_EQ(action(follower), RequestAction::wait);
    EXPECT_EQ(refusal(beyond), 5U);
    ReadyRequest ready;
    ASSERT_TRUE(table_->next_ready(ready));
    EXPECT_EQ(ready.decision.action, RequestAction::reply);
    EXPECT_EQ(ready.decision.response.error, 125U);
    wire::Request later = request(2, 3, OperationKind::write, 2);
    later.pending_since = 3;
    EXPECT_EQ(action(later), RequestAction::execute) << "the client knows of that refusal";
}

TEST_F(SlotTableTest, ARefusalOnEitherSideOfWhatIsWaitedForDoesNotCount) {
    open();
    wire::Request before = request(0, 1);
    before.offset_bytes = 4096;
    EXPECT_EQ(refusal(before), 5U);
    wire::Request follower = request(1, 3, OperationKind::write, 2);
    follower.pending_since = 2;
    EXPECT_EQ(action(follower), RequestAction::wait);
    wire::Request overtaking = request(0, 4);
    overtaking.offset_bytes = 4096;
    EXPECT_EQ(refusal(overtaking), 5U);
    execute(request(2, 2));
    ReadyRequest ready;
    ASSERT_TRUE(table_->next_ready(ready));
    EXPECT_EQ(ready.decision.action, RequestAction::execute);
}

TEST_F(SlotTableTest, RefusalsOfLongAgoStillCount) {
    open();
    const wire::Request follower = request(1, 2, OperationKind::write, 1);
    wire::Request beyond = request(0, 1);
    beyond.offset_bytes = 4096;
    EXPECT_EQ(refusal(beyond), 5U);
    constexpr uint64_t kMany = 200;
    for (uint64_t sequence = 3; sequence < kMany; sequence++) {
        beyond.sequence = sequence;
        EXPECT_EQ(refusal(beyond), 5U);
    }
    EXPECT_EQ(refusal(follower), 125U);
}

TEST_F(SlotTableTest, ChecksRightsAndRanges) {
    open();
    wire::Request stale = request(0, 1);
    stale.epoch--;
    EXPECT_EQ(refusal(stale), 116U);
    wire::Request lease = request(0, 2);
    lease.space = 1;
    lease.offset_bytes = 4096;
    EXPECT_EQ(refusal(lease), 5U) << "the lease is the server's to write";
    lease.sequence = 3;
    lease.operation = 1;
    execute(lease);
    wire::Request words = request(0, 4);
    words.space = 1;
    words.offset_bytes = 8192;
    execute(words);
    SessionAccess reader = table_->access();
    reader.is_writer = false;
    table_->set_access(reader);
    wire::Request early = request(1, 6, OperationKind::write, 5);
    early.pending_since = 5;
    EXPECT_EQ(refusal(early), 30U) << "its content would be kept";
    EXPECT_EQ(refusal(request(0, 5)), 30U);
    execute(request(0, 7, OperationKind::read));
    table_->fence();
    EXPECT_EQ(refusal(request(0, 8, OperationKind::read)), 116U);
}

TEST_F(SlotTableTest, AResumptionTellsWhatWasExecuted) {
    open();
    execute(request(0, 1));
    EXPECT_EQ(action(request(2, 3, OperationKind::write, 2)), RequestAction::wait);
    const std::vector<unsigned char> outcomes =
        reopen(2, 4, {{1, 0, 2, {}}, {2, 1, 2, {}}, {3, 2, 2, {}}});
    EXPECT_EQ(outcomes, (std::vector<unsigned char>{1, 2, 2}));
    const wire::Request last = request(2, 3, OperationKind::write, 2);
    EXPECT_EQ(action(last), RequestAction::wait) << "what waited was forgotten";
    execute(request(1, 2));
    ReadyRequest ready;
    EXPECT_TRUE(table_->next_ready(ready));
}

TEST_F(SlotTableTest, WhatIsNotOutstandingAnyMoreIsNotWaitedFor) {
    open();
    EXPECT_EQ(action(request(2, 3, OperationKind::write, 2)), RequestAction::wait);
    reopen(2, 4, {{3, 2, 2, {}}});
    EXPECT_EQ(action(request(2, 3, OperationKind::write, 2)), RequestAction::execute);
    EXPECT_EQ(action(request(1, 2)), RequestAction::ignore) << "the client gave it up";
}

TEST_F(SlotTableTest, ARefusedResumptionChangesNothing) {
    open();
    execute(request(0, 3));
    const wire::OutstandingEntry entries[] = {{2, 0, 2, {}}};
    unsigned char outcome = 0;
    auto opened = table_->open_incarnation(
        2, 4, ByteSpan(reinterpret_cast<const unsigned char*>(entries), 16), &outcome);
    ASSERT_FALSE(opened.ok()) << "the slot was used since";
    EXPECT_EQ(table_->incarnation(), 1U);
    execute(request(0, 4));
}

TEST_F(SlotTableTest, WhatWasNeverExecutedIsNotExecutedAnyMore) {
    open();
    wire::Request fetch = request(0, 1);
    fetch.flags = wire::request_flag::reply_only;
    EXPECT_EQ(refusal(fetch), 125U);
    EXPECT_EQ(refusal(request(0, 1)), 125U) << "the request itself, late";
}

TEST_F(SlotTableTest, ARepeatedReadDoesNotHoldUpItsSlot) {
    open();
    const wire::Request read = request(0, 1, OperationKind::read);
    execute(read);
    EXPECT_EQ(action(read), RequestAction::execute);
    const wire::Request next = request(0, 2, OperationKind::fetch_add);
    EXPECT_EQ(action(next), RequestAction::execute);
    table_->finish(next, Outcome::executed, Error::eio, 5);
    table_->finish(read, Outcome::executed, Error::eio, 0);
    auto again = table_->decide(next);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->response.value, 5U);
    EXPECT_EQ(table_->executing_count(), 0U);
}

uint64_t word_is(void* owner, AddressSpace, uint64_t) { return *static_cast<uint64_t*>(owner); }

TEST_F(SlotTableTest, SettlesAtomicsThatAProcessLeftBehind) {
    struct Case {
        uint64_t word;
        unsigned char outcome;  // of the resumption
    };
    for (const Case& found : {Case{15, 1}, Case{10, 2}, Case{99, 1}}) {
        entries_.assign(3, wire::SlotEntry{});
        start();
        open();
        wire::Request add = request(0, 1, OperationKind::fetch_add);
        ASSERT_EQ(action(add), RequestAction::execute);
        table_->prepare_atomic(add, 10, 15);
        start();  // another process
        uint64_t word = found.word;
        table_->recover(1, word_is, &word);
        EXPECT_EQ(reopen(2, 2, {{1, 0, 4, {}}}), std::vector<unsigned char>{found.outcome});
        add.incarnation = 2;
        auto decided = table_->decide(add);
        ASSERT_TRUE(decided.ok());
        EXPECT_EQ(decided->action,
                  found.outcome == 1 ? RequestAction::reply : RequestAction::execute);
        if (found.outcome == 1) {
            EXPECT_EQ(decided->response.value, 10U);
            EXPECT_EQ(decided->response.outcome, found.word == 15 ? 1 : 3);
        }
    }
}

// It may have added directly what is found, or taken away what the server added.
TEST_F(SlotTableTest, AnAtomicOnMemoryThatTheClientChangesItselfIsUnknown) {
    for (uint64_t word : {uint64_t{15}, uint64_t{10}, uint64_t{99}}) {
        for (const auto space : {AddressSpace::data, AddressSpace::control}) {
            entries_.assign(3, wire::SlotEntry{});
            start();
            open();
            wire::Request add = request(0, 1, OperationKind::fetch_add);
            add.space = static_cast<uint8_t>(space);
            add.offset_bytes = space == AddressSpace::data ? 0 : table_->access().words_offset;
            ASSERT_EQ(action(add), RequestAction::execute);
            table_->prepare_atomic(add, 10, 15);
            start();  // another process
            table_->recover(1, word_is, &word, true);
            (void)reopen(2, 2, {{1, 0, 4, {}}});
            add.incarnation = 2;
            auto decided = table_->decide(add);
            ASSERT_TRUE(decided.ok());
            const bool is_unknown = space == AddressSpace::data || word == 99;
            if (is_unknown) {
                ASSERT_EQ(decided->action, RequestAction::reply);
                EXPECT_EQ(decided->response.outcome, 3);
            } else {
                EXPECT_EQ(decided->action,
                          word == 15 ? RequestAction::reply : RequestAction::execute);
            }
        }
    }
}

TEST_F(SlotTableTest, CarriesOutAtomics) {
    open();
    uint64_t word = 10;
    wire::Request swap = request(0, 1, OperationKind::compare_swap);
    swap.compare = 11;
    swap.operand = 20;
    ASSERT_EQ(action(swap), RequestAction::execute);
    EXPECT_EQ(execute_atomic(*table_, swap, &word).value, 10U);
    EXPECT_EQ(word, 10U);
    swap.sequence = 2;
    swap.compare = 10;
    ASSERT_EQ(action(swap), RequestAction::execute);
    EXPECT_EQ(execute_atomic(*table_, swap, &word).value, 10U);
    EXPECT_EQ(word, 20U);
    wire::Request add = request(0, 3, OperationKind::fetch_add);
    add.operand = ~uint64_t{0};
    ASSERT_EQ(action(add), RequestAction::execute);
    EXPECT_EQ(execute_atomic(*table_, add, &word).value, 20U);
    EXPECT_EQ(word, 19U);
}

}  // namespace
}  // namespace tiffin::rdma_blk
