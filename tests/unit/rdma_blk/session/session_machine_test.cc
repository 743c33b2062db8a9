// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/session_machine.h"

#include <gtest/gtest.h>

#include <vector>

namespace tiffin::rdma_blk {
namespace {

using Kind = SessionMachine::Action::Kind;
constexpr uint64_t kMsNs = 1'000'000;
constexpr uint64_t kIntervalNs = 1000 * kMsNs;

class SessionMachineTest : public ::testing::Test {
  protected:
    void start(size_t paths) {
        machine_ = SessionMachine(paths);
        machine_.opened(0, now_ns_, kIntervalNs, 0);
        for (size_t path = 1; path < paths; path++) {
            expect(Kind::connect, path);
            machine_.joined(path, now_ns_, 20'000);
        }
        expect(Kind::none, 0);
    }
    void expect(Kind kind, size_t path) {
        const auto action = machine_.next(now_ns_);
        EXPECT_EQ(action.kind, kind);
        EXPECT_TRUE(kind == Kind::none || action.path == path) << action.path;
    }
    // On to when something is due.
    void go_on() {
        ASSERT_NE(machine_.next_time_ns(), SessionMachine::kNever);
        now_ns_ = std::max(now_ns_, machine_.next_time_ns());
    }

    SessionMachine machine_{1};
    uint64_t now_ns_ = 1000 * kMsNs;
};

TEST_F(SessionMachineTest, TheOnlyPathIsNeverSuspect) {
    start(1);
    machine_.sent(0, now_ns_);
    const uint64_t sent_ns = now_ns_;
    go_on();
    EXPECT_EQ(now_ns_ - sent_ns, kIntervalNs);
    expect(Kind::probe, 0);
    go_on();
    EXPECT_EQ(now_ns_ - sent_ns, 4 * kIntervalNs);
    expect(Kind::close, 0);
    EXPECT_FALSE(machine_.has_living());
}

TEST_F(SessionMachineTest, TheOnlyPathIsProbedSeldomWhenNothingIsPending) {
    start(1);
    EXPECT_EQ(machine_.next_time_ns() - now_ns_, 10 * kIntervalNs);
    machine_.set_asking(true, now_ns_);
    EXPECT_EQ(machine_.next_time_ns() - now_ns_, kIntervalNs);
}

// What is asked for beside requests moves to another path with the active one, which then has all its time to answer.
TEST_F(SessionMachineTest, WhatIsAskedForIsExpectedAnewOnAnotherPath) {
    start(2);
    machine_.set_asking(true, now_ns_);
    for (int second = 0; second < 3; second++) {  // both are well
        now_ns_ += kIntervalNs / 2;
        machine_.heard(0, now_ns_);
        machine_.heard(1, now_ns_);
    }
    now_ns_ += kIntervalNs / 4;
    machine_.broken(0, now_ns_);
    (void)machine_.next(now_ns_);
    ASSERT_EQ(machine_.active(), 1U);
    const uint64_t changed_ns = now_ns_;
    while (machine_.is_ready(1)) {
        go_on();
        (void)machine_.next(now_ns_);
    }
    EXPECT_EQ(now_ns_ - changed_ns, machine_.suspicion_ns(1));
}

// A path that answers probes is probed ever less, until what is asked for is late.
TEST_F(SessionMachineTest, WhatIsLateEndsThePatience) {
    start(2);
    machine_.set_asking(true, now_ns_);
    for (int probes = 0; probes < 20;) {
        go_on();
        for (auto action = machine_.next(now_ns_); action.kind != Kind::none;
             action = machine_.next(now_ns_)) {
            ASSERT_EQ(action.kind, Kind::probe);
            probes += action.path == 0 ? 1 : 0;
            machine_.heard(action.path, now_ns_);
        }
    }
    const uint64_t heard_ns = now_ns_;
    EXPECT_GT(machine_.next_time_ns() - heard_ns, 10 * machine_.suspicion_ns(0));
    machine_.doubt_active();
    EXPECT_EQ(machine_.next_time_ns() - heard_ns, machine_.suspicion_ns(0) / 2);
}

// Its probe is answered when TCP repeats it, long after: the next cut must not take as long to be noticed.
TEST_F(SessionMachineTest, AProbeThatMetACutSaysLittleOfTheDelay) {
    start(2);
    const auto measure = [this](uint64_t delay_ns) {
        now_ns_ += delay_ns;
        machine_.measured(0, delay_ns, now_ns_);
    };
    for (int round = 0; round < 20; round++) {
        measure(20'000);
    }
    // However many cuts follow each other, there is a probe between that met none.
    measure(500 * kMsNs);
    EXPECT_EQ(machine_.suspicion_ns(0), SessionMachine::kLeastSuspicionNs);
    // Those that were sent meanwhile came with it: they waited for the same packet.
    for (uint64_t later = 50; later < 500; later += 50) {
        machine_.measured(0, (500 - later) * kMsNs, now_ns_);
        EXPECT_EQ(machine_.suspicion_ns(0), SessionMachine::kLeastSuspicionNs) << later;
    }
    expect(Kind::probe, 0);
    expect(Kind::none, 0);
    machine_.heard(0, now_ns_);
    measure(20'000);
    measure(500 * kMsNs);
    EXPECT_EQ(machine_.suspicion_ns(0), SessionMachine::kLeastSuspicionNs);
    // Cuts in a row, of which each meets the probe that was sent after the one before: packets were sent again.
    measure(20'000);
    for (int round = 0; round < 20; round++) {
        now_ns_ += 300 * kMsNs;
        machine_.measured(0, 300 * kMsNs, now_ns_, true);
    }
    EXPECT_EQ(machine_.suspicion_ns(0), SessionMachine::kLeastSuspicionNs);
    measure(20'000);
    // A link that has become slow is known to be in some probes.
    for (int round = 0; round < 20; round++) {
        measure(50 * kMsNs);
    }
    EXPECT_GE(machine_.suspicion_ns(0), 8 * 40 * kMsNs);
}

TEST_F(SessionMachineTest, APathThatIsNeverSilentIsProbedForItsDelay) {
    start(2);
    uint64_t probes = 0;
    for (int ms = 0; ms < 10'000; ms++) {
        machine_.sent(0, now_ns_);
        now_ns_ += kMsNs / 4;
        machine_.heard(0, now_ns_);
        for (auto action = machine_.next(now_ns_); action.kind != Kind::none;
             action = machine_.next(now_ns_)) {
            EXPECT_EQ(action.kind, Kind::probe);
            probes += action.path == 0 ? 1 : 0;
            machine_.heard(action.path, now_ns_);
        }
        machine_.answered(0);
    }
    EXPECT_EQ(probes, 2U);  // in 2.5 s
}

TEST_F(SessionMachineTest, SilenceIsProbedThenSuspectedThenEndsAPath) {
    start(2);
    machine_.sent(0, now_ns_);
    const uint64_t sent_ns = now_ns_;
    go_on();
    expect(Kind::probe, 0);
    expect(Kind::none, 0);
    go_on();
    EXPECT_EQ(now_ns_ - sent_ns, SessionMachine::kLeastSuspicionNs);
    const auto action = machine_.next(now_ns_);
    EXPECT_EQ(action.kind, Kind::recover);
    EXPECT_EQ(action.path, 0U);
    EXPECT_EQ(action.over, 1U);
    EXPECT_FALSE(machine_.must_revoke(0));
    EXPECT_EQ(machine_.active(), 1U);
    machine_.recovered(0, false);
    while (machine_.is_living(0)) {
        go_on();
        (void)machine_.next(now_ns_);
        machine_.heard(1, now_ns_);
    }
    EXPECT_GE(now_ns_ - sent_ns, SessionMachine::kLeastCondemnationNs);
    EXPECT_EQ(machine_.next(now_ns_).kind, Kind::recover);
    EXPECT_TRUE(machine_.must_revoke(0));
    // It is not made again before the server has ended it.
    now_ns_ += 10 * kMsNs * 100;
    machine_.heard(1, now_ns_);
    expect(Kind::probe, 1);
    machine_.heard(1, now_ns_);
    expect(Kind::none, 0);
    machine_.recovered(0, true);
    expect(Kind::connect, 0);
}

// What is asked over a link waits for an answer there, as requests do: where it is silent, too, a third one is asked.
TEST_F(SessionMachineTest, AQuestionOverASilentLinkIsAskedElsewhere) {
    start(3);
    machine_.sent(0, now_ns_);
    const uint64_t sent_ns = now_ns_;
    std::vector<size_t> asked_over;
    while (asked_over.size() < 2 && now_ns_ - sent_ns < kIntervalNs) {
        const auto action = machine_.next(now_ns_);
        if (action.kind == Kind::recover) {
            asked_over.push_back(action.over);
        } else if (action.kind == Kind::none) {
            go_on();
        }
        machine_.heard(2, now_ns_);
    }
    EXPECT_EQ(asked_over, (std::vector<size_t>{1, 2}));
    EXPECT_LE(now_ns_ - sent_ns, 10 * SessionMachine::kLeastSuspicionNs);
}

// As when the server has stopped: none of them is given up before all would be, nor as soon as one of them is heard.
TEST_F(SessionMachineTest, SilenceOfAllIsNoFaultOfOne) {
    start(2);
    machine_.sent(0, now_ns_);
    for (const uint64_t end_ns = now_ns_ + 3 * kIntervalNs; now_ns_ < end_ns; go_on()) {
        EXPECT_NE(machine_.next(now_ns_).kind, Kind::close);
    }
    machine_.heard(1, now_ns_);
    const uint64_t heard_ns = now_ns_;
    while (machine_.is_living(0)) {
        go_on();
        (void)machine_.next(now_ns_);
        machine_.heard(1, now_ns_);
    }
    EXPECT_GE(now_ns_ - heard_ns, SessionMachine::kLeastCondemnationNs);
}

// The TCP of a server that has stopped acknowledges on one link, while what the other one carries is lost.
TEST_F(SessionMachineTest, AnAcknowledgementIsNoWordOfTheServer) {
    for (const bool is_heard : {false, true}) {
        start(2);
        machine_.set_least_condemnation_ns(50 * kMsNs);
        machine_.sent(0, now_ns_);
        const uint64_t sent_ns = now_ns_;
        while (machine_.next(now_ns_).kind != Kind::close) {
            is_heard ? machine_.heard(1, now_ns_) : machine_.acknowledged(1, now_ns_);
            go_on();
        }
        EXPECT_EQ(now_ns_ - sent_ns >= kIntervalNs, !is_heard) << now_ns_ - sent_ns;
    }
}

TEST_F(SessionMachineTest, AWantedSampleIsTakenNowAndThen) {
    start(2);
    machine_.sent(0, now_ns_);
    int probes = 0;
    for (const uint64_t end_ns = now_ns_ + kIntervalNs; now_ns_ < end_ns; now_ns_ += kMsNs / 10) {
        machine_.want_sample(0, now_ns_);
        const auto action = machine_.next(now_ns_);
        probes += action.kind == Kind::probe && action.path == 0 ? 1 : 0;
        machine_.heard(0, now_ns_);
    }
    EXPECT_GE(probes, 8);
    EXPECT_LE(probes, 10);
}

TEST_F(SessionMachineTest, ASlowAnswerIsNoSilenceWhenProbesAreAnswered) {
    start(2);
    machine_.sent(0, now_ns_);
    int probes = 0;
    for (const uint64_t end_ns = now_ns_ + 500 * kMsNs; now_ns_ < end_ns;) {
        go_on();
        const auto action = machine_.next(now_ns_);
        probes += action.kind == Kind::probe && action.path == 0 ? 1 : 0;
        machine_.heard(action.path, now_ns_ + 10'000);
    }
    EXPECT_LE(probes, 30) << "they become fewer";
    EXPECT_EQ(machine_.counts(0).suspicions, 0U);
    EXPECT_EQ(machine_.active(), 0U);
}

TEST_F(SessionMachineTest, ASuspectThatIsHeardAgainIsPreferredAgainAfterAWhile) {
    start(2);
    machine_.sent(0, now_ns_);
    while (machine_.is_ready(0)) {
        go_on();
        (void)machine_.next(now_ns_);
    }
    const uint64_t heard_ns = now_ns_;
    machine_.heard(0, now_ns_);
    machine_.answered(0);
    while (machine_.active() != 0) {
        go_on();
        const auto action = machine_.next(now_ns_);
        if (action.kind == Kind::probe) {
            machine_.heard(action.path, now_ns_);
        }
    }
    EXPECT_GE(now_ns_ - heard_ns, SessionMachine::kLeastHoldNs);
    EXPECT_EQ(machine_.failovers(), 1U);
}

// A moment of silence on the link that is well: it may have to, but not until its hold is over.
TEST_F(SessionMachineTest, APathThatFailedLatelyTakesOverForAMomentOnly) {
    start(2);
    machine_.sent(0, now_ns_);
    machine_.broken(0, now_ns_);
    expect(Kind::recover, 0);
    EXPECT_EQ(machine_.active(), 1U);
    machine_.answered(0);
    machine_.recovered(0, true);
    go_on();
    expect(Kind::connect, 0);
    machine_.joined(0, now_ns_, 20'000);
    const uint64_t joined_ns = now_ns_;
    machine_.sent(1, now_ns_);
    while (machine_.is_ready(1)) {
        go_on();
        (void)machine_.next(now_ns_);
    }
    EXPECT_EQ(machine_.active(), 0U) << "there is no other";
    machine_.heard(1, now_ns_);
    (void)machine_.next(now_ns_);
    EXPECT_EQ(machine_.active(), 1U);
    EXPECT_LT(now_ns_, joined_ns + machine_.hold_ns(0));
}

// Both have failed: one has to be well for two seconds, and was suspected meanwhile; the other one took over for it.
TEST_F(SessionMachineTest, SomethingIsToBeDoneWhenItIsDue) {
    start(2);
    const auto fail_and_join = [&](size_t path) {
        machine_.broken(path, now_ns_);
        (void)machine_.next(now_ns_);
        machine_.recovered(path, true);
        now_ns_ += kIntervalNs / 10;
        (void)machine_.next(now_ns_);
        machine_.joined(path, now_ns_, 20'000);
    };
    fail_and_join(1);
    fail_and_join(0);
    fail_and_join(0);
    EXPECT_GT(machine_.hold_ns(0), SessionMachine::kLeastHoldNs);
    now_ns_ += SessionMachine::kSteadyNs;
    fail_and_join(1);
    uint64_t steps = 0;
    for (const uint64_t end_ns = now_ns_ + 10 * kIntervalNs; now_ns_ < end_ns; steps++) {
        while (machine_.next(now_ns_).kind != Kind::none) {
            machine_.heard(0, now_ns_);
            machine_.heard(1, now_ns_);
        }
        ASSERT_GT(machine_.next_time_ns(), now_ns_) << "after " << steps;
        go_on();
    }
}

// What was sent on it goes on; an answer that comes still must not have it sent again.
TEST_F(SessionMachineTest, ASuspectThatIsHeardIsAskedAboutNoMore) {
    start(2);
    machine_.sent(0, now_ns_);
    go_on();
    expect(Kind::probe, 0);
    go_on();
    expect(Kind::recover, 0);
    EXPECT_EQ(machine_.recovering(), 0U);
    machine_.heard(0, now_ns_);
    EXPECT_EQ(machine_.recovering(), SessionMachine::kNoPath);
    expect(Kind::none, 0);
    EXPECT_EQ(machine_.active(), 1U);
}

TEST_F(SessionMachineTest, WhatIsAskedOverAPathThatFailsIsAskedOverAnother) {
    start(3);
    machine_.sent(0, now_ns_);
    machine_.broken(0, now_ns_);
    EXPECT_EQ(machine_.next(now_ns_).over, 1U);
    machine_.broken(1, now_ns_);
    const auto action = machine_.next(now_ns_);
    EXPECT_EQ(action.kind, Kind::recover);
    EXPECT_EQ(action.path, 0U);
    EXPECT_EQ(action.over, 2U);
    machine_.recovered(0, true);
    EXPECT_EQ(machine_.next(now_ns_).path, 1U);
    machine_.broken(2, now_ns_);
    EXPECT_FALSE(machine_.has_living());
}

TEST_F(SessionMachineTest, APathThatIsTakenAwayIsRemovedWhenNothingIsOnItsWay) {
    start(2);
    machine_.sent(0, now_ns_);
    ASSERT_TRUE(machine_.retire(0));
    EXPECT_FALSE(machine_.retire(0));
    EXPECT_FALSE(machine_.retire(1));  // the last one
    expect(Kind::none, 0);
    EXPECT_EQ(machine_.active(), 1U);
    EXPECT_TRUE(machine_.is_ready(0));
    machine_.answered(0);
    // The server may have been asked to answer there.
    expect(Kind::leave, 0);
    expect(Kind::recover, 0);
    EXPECT_TRUE(machine_.must_revoke(0));
    expect(Kind::none, 0);
    machine_.recovered(0, true);
    expect(Kind::remove, 0);
    expect(Kind::none, 0);
    EXPECT_EQ(machine_.state(0), SessionMachine::PathState::removed);
    EXPECT_EQ(machine_.counts(0).failures, 0U);
    EXPECT_EQ(machine_.failovers(), 0U);
    EXPECT_FALSE(machine_.retire(1));
    // It is not preferred again, nor made again.
    now_ns_ += SessionMachine::kSteadyNs;
    machine_.heard(1, now_ns_);
    EXPECT_EQ(machine_.active(), 1U);
    EXPECT_EQ(machine_.add(now_ns_), 0U);
    expect(Kind::connect, 0);
    machine_.joined(0, now_ns_, 20'000);
    EXPECT_TRUE(machine_.is_ready(0));
    EXPECT_TRUE(machine_.retire(1));
}

TEST_F(SessionMachineTest, APathThatIsTakenAwayAndFailsIsRecoveredFirst) {
    start(2);
    machine_.sent(0, now_ns_);
    ASSERT_TRUE(machine_.retire(0));
    machine_.broken(0, now_ns_);
    expect(Kind::recover, 0);
    expect(Kind::none, 0);
    machine_.recovered(0, true);
    expect(Kind::remove, 0);
    now_ns_ += kIntervalNs;
    machine_.heard(1, now_ns_);
    expect(Kind::none, 0);
}

TEST_F(SessionMachineTest, APathThatIsTakenAwayStaysWhileThereIsNoOther) {
    start(2);
    machine_.sent(0, now_ns_);
    ASSERT_TRUE(machine_.retire(0));
    expect(Kind::none, 0);
    ASSERT_EQ(machine_.active(), 1U);
    machine_.broken(1, now_ns_);
    expect(Kind::recover, 1);
    EXPECT_EQ(machine_.active(), 0U);
    machine_.answered(0);
    machine_.recovered(1, true);
    expect(Kind::none, 0);
    now_ns_ += kIntervalNs;
    machine_.heard(0, now_ns_);
    expect(Kind::connect, 1);
    machine_.joined(1, now_ns_, 20'000);
    expect(Kind::none, 0);
    EXPECT_EQ(machine_.active(), 1U);
    EXPECT_LE(machine_.next_time_ns(), now_ns_);
    expect(Kind::leave, 0);
}

TEST_F(SessionMachineTest, ThereIsRoomForEightPaths) {
    start(2);
    for (size_t path = 2; path < SessionMachine::kMaxPaths; path++) {
        EXPECT_EQ(machine_.add(now_ns_), path);
        expect(Kind::connect, path);
        machine_.joined(path, now_ns_, 20'000);
    }
    EXPECT_EQ(machine_.add(now_ns_), SessionMachine::kNoPath);
    ASSERT_TRUE(machine_.retire(4));
    expect(Kind::leave, 4);
    expect(Kind::recover, 4);
    machine_.recovered(4, true);
    expect(Kind::remove, 4);
    EXPECT_EQ(machine_.add(now_ns_), 4U);
}

TEST_F(SessionMachineTest, WhatIsTakenAwayStaysAwayInTheNextIncarnation) {
    start(3);
    ASSERT_TRUE(machine_.retire(2));
    machine_.lost();
    machine_.opened(0, now_ns_, kIntervalNs, 0);
    expect(Kind::connect, 1);
    machine_.joined(1, now_ns_, 20'000);
    expect(Kind::none, 0);
    EXPECT_EQ(machine_.state(2), SessionMachine::PathState::removed);
}

}  // namespace
}  // namespace tiffin::rdma_blk
