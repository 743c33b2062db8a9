// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Links fail in virtual time, at every message of a run: nothing is lost, executed twice, or sent again that was executed.
#include "tests/unit/rdma_blk/server/failover_simulation.h"

#include "tests/support/test_size.h"

namespace tiffin::rdma_blk {
namespace {

// What the failover is made of: with the delay of a link, 10 us.
constexpr uint64_t kRoundTripNs = 20'000;

class FailoverSimulationTest : public ::testing::Test {
  protected:
    static void SetUpTestSuite() { ASSERT_TRUE(initialize_cryptography().ok()); }

    FailoverCounts run(const FailoverRules& rules) {
        FailoverSimulation simulation(rules);
        const FailoverCounts counts = simulation.run();
        runs_++;
        for (const std::string& problem : simulation.problems) {
            problems_++;
            if (!expects_problems_) {
                ADD_FAILURE() << describe(rules) << ": " << problem;
            }
        }
        return counts;
    }
    static std::string describe(const FailoverRules& rules) {
        return "seed " + std::to_string(rules.seed) + ", cut at message " +
               std::to_string(rules.cut_at) + (rules.cuts_to_server ? ", to the server" : "") +
               (rules.cuts_to_client ? ", to the client" : "") +
               (rules.tells_client ? ", the client is told" : "") +
               (rules.tells_server ? ", the server is told" : "") +
               (rules.keeps_late ? ", late ones arrive" : "") +
               (rules.spreads ? ", on all links" : "") +
               (rules.cuts_beside ? ", not the active one" : "") + ", repaired after " +
               std::to_string(rules.repaired_ns) + " ns, the other one cut after " +
               std::to_string(rules.cut_other_at) + " ns, " + std::to_string(rules.cuts) + " cuts";
    }
    // `check` sees each cut of each message of one run.
    template <typename Check>
    void cut_everywhere(FailoverRules rules, Check check) {
        rules.cut_at = 0;
        const uint64_t messages = run(rules).messages;
        for (rules.cut_at = 1; rules.cut_at <= messages && !HasFailure(); rules.cut_at++) {
            check(rules, run(rules));
        }
    }
    template <typename Check>
    void cut_each_way(FailoverRules rules, Check check) {
        for (const auto& [to_server, to_client] :
             {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
            rules.cuts_to_server = to_server;
            rules.cuts_to_client = to_client;
            cut_everywhere(rules, check);
        }
    }

    uint64_t runs_ = 0;
    uint64_t problems_ = 0;
    bool expects_problems_ = false;
};

uint64_t seed_count() { return test::test_size(80, 3, 1); }

TEST_F(FailoverSimulationTest, WithoutACutNothingIsSuspected) {
    for (uint64_t seed = 1; seed <= seed_count(); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        const FailoverCounts counts = run(rules);
        EXPECT_EQ(counts.failovers + counts.suspicions + counts.resent + counts.repeated, 0U);
        EXPECT_EQ(counts.incarnations, 1U);
        EXPECT_EQ(counts.joins, 1U);
    }
}

// At every message of many runs.
TEST_F(FailoverSimulationTest, ALinkThatIsTakenAwayIsDrained) {
    uint64_t removed = 0;
    uint64_t joined = 0;
    for (uint64_t seed = 1; seed <= seed_count() && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.operation_count = 100;
        const uint64_t messages = run(rules).messages;
        for (rules.remove_at = 1; rules.remove_at <= messages && !HasFailure(); rules.remove_at++) {
            const FailoverCounts counts = run(rules);
            ASSERT_EQ(counts.failovers + counts.suspicions + counts.resent + counts.recovered +
                          counts.repeated,
                      0U)
                << seed << ", at message " << rules.remove_at;
            ASSERT_EQ(counts.incarnations, 1U);
            ASSERT_LE(counts.removed, 1U);
            removed += counts.removed;
            joined += counts.joins;
        }
    }
    EXPECT_GT(removed, 0U);
    EXPECT_GT(joined, runs_);  // the standby, and some of those that were added again
}

TEST_F(FailoverSimulationTest, ALinkThatIsTakenAwayAndOneThatIsCut) {
    for (uint64_t seed = 1; seed <= seed_count() && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.link_count = 3;
        rules.keeps_late = true;
        rules.repaired_ns = 50'000'000;
        rules.remove_at = 5 + seed % 40;
        cut_each_way(rules, [&](const FailoverRules& cut, const FailoverCounts& counts) {
            ASSERT_EQ(counts.repeated, 0U) << describe(cut);
        });
    }
}

TEST_F(FailoverSimulationTest, SilentCutsResendWhatWasNotExecutedAndNothingElse) {
    uint64_t recovered = 0;
    uint64_t resent = 0;
    for (uint64_t seed = 1; seed <= seed_count() && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.keeps_late = seed % 2 == 0;
        cut_each_way(rules, [&](const FailoverRules& cut, const FailoverCounts& counts) {
            ASSERT_EQ(counts.incarnations, 1U) << describe(cut);
            ASSERT_EQ(counts.repeated, 0U) << describe(cut);
            recovered += counts.recovered;
            resent += counts.resent;
            if (counts.first_completion_ns == 0) {
                return;  // nothing was pending
            }
            // Until it is suspected, and two round trips; a flush, and what waited for it, takes 200 us longer.
            ASSERT_LE(counts.first_completion_ns, SessionMachine::kLeastSuspicionNs +
                                                      3 * kRoundTripNs + 200'000 +
                                                      64 * SessionMachine::kLeastSuspicionNs / 2)
                << describe(cut);
        });
    }
    EXPECT_GT(recovered, 0U);
    EXPECT_GT(resent, 0U);
    RecordProperty("cuts", static_cast<int>(runs_));
}

TEST_F(FailoverSimulationTest, AClientThatIsToldFailsOverWithinTwoRoundTrips) {
    uint64_t late = 0;
    for (uint64_t seed = 1; seed <= seed_count() && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.tells_client = true;
        rules.tells_server = seed % 3 == 0;
        rules.keeps_late = true;
        cut_each_way(rules, [&](const FailoverRules& cut, const FailoverCounts& counts) {
            late += counts.late;
            // The standby may not have joined yet.
            if (counts.incarnations > 1) {
                return;
            }
            ASSERT_EQ(counts.repeated, 0U) << describe(cut);
            ASSERT_LE(counts.first_completion_ns, 2 * kRoundTripNs + 200'000) << describe(cut);
        });
    }
    EXPECT_GT(late, 0U);
}

TEST_F(FailoverSimulationTest, CutsThatAreRepaired) {
    uint64_t failed_back = 0;
    for (uint64_t seed = 1; seed <= seed_count() && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.operation_count = 60;
        // Before it is suspected, after that, and after it was given up.
        for (const uint64_t repaired_ns :
             {uint64_t{400'000}, uint64_t{1'500'000}, uint64_t{1'200'000'000}}) {
            rules.repaired_ns = repaired_ns;
            cut_everywhere(rules, [&](const FailoverRules& cut, const FailoverCounts& counts) {
                ASSERT_EQ(counts.incarnations, 1U) << describe(cut);
                failed_back += counts.failovers > 0 && counts.active == 0 ? 1 : 0;
            });
        }
    }
}

TEST_F(FailoverSimulationTest, BothLinksWithinARoundTripAndDuringTheFailover) {
    uint64_t reopened = 0;
    for (uint64_t seed = 1; seed <= seed_count() && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.keeps_late = seed % 2 == 0;
        rules.tells_client = seed % 3 == 0;
        for (const uint64_t other : {uint64_t{1}, uint64_t{15'000}, uint64_t{1'015'000},
                                     uint64_t{1'025'000}, uint64_t{1'035'000}}) {
            rules.cut_other_at = other;
            cut_everywhere(rules, [&](const FailoverRules&, const FailoverCounts& counts) {
                reopened += counts.incarnations > 1 ? 1 : 0;
            });
        }
    }
    EXPECT_GT(reopened, 0U);
}

TEST_F(FailoverSimulationTest, ThreeLinksOfWhichTwoFail) {
    for (uint64_t seed = 1; seed <= seed_count() && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.link_count = 3;
        rules.cut_other_at = 1 + seed % 4 * 400'000;
        cut_everywhere(rules, [&](const FailoverRules& cut, const FailoverCounts& counts) {
            // The third one may not have joined yet.
            ASSERT_LE(counts.incarnations, cut.cut_at < 20 ? 2U : 1U) << describe(cut);
            ASSERT_EQ(counts.repeated, 0U) << describe(cut);
        });
    }
}

// Links are suspected, heard again, suspected once more and given up while the server has what was sent on them: it may
// have got a question whose answer never came, and answer over the link of that.
TEST_F(FailoverSimulationTest, LinksThatFailAgainAndAgainDuringLongFlushes) {
    uint64_t recovered = 0;
    for (uint64_t seed = 1; seed <= test::test_size(30'000, 600, 200) && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.link_count = 2 + seed % 3;
        rules.keeps_late = seed % 4 < 2;
        rules.operation_count = 60;
        rules.cuts = 40;
        rules.flush_ns = 1'000'000 << seed % 6;
        recovered += run(rules).recovered;
    }
    EXPECT_GT(recovered, 0U);
}

// Requests take all links: what is true of one is true of each.
TEST_F(FailoverSimulationTest, RequestsOnAllLinks) {
    uint64_t beside = 0;
    uint64_t recovered = 0;
    uint64_t resent = 0;
    for (uint64_t seed = 1; seed <= seed_count() && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.spreads = true;
        rules.seed = seed;
        rules.link_count = 2 + seed % 2;
        const FailoverCounts undisturbed = run(rules);
        EXPECT_EQ(undisturbed.suspicions + undisturbed.resent + undisturbed.repeated, 0U);
        beside += undisturbed.sent_beside;
        for (const auto& [is_told, is_beside] : {std::pair(false, false), std::pair(false, true),
                                                 std::pair(true, false), std::pair(true, true)}) {
            rules.tells_client = is_told;
            rules.cuts_beside = is_beside;
            rules.keeps_late = is_told || seed % 2 == 0;
            cut_each_way(rules, [&](const FailoverRules& cut, const FailoverCounts& counts) {
                // The standby may not have joined yet.
                ASSERT_LE(counts.incarnations, cut.tells_client ? 2U : 1U) << describe(cut);
                ASSERT_TRUE(counts.repeated == 0 || counts.incarnations > 1) << describe(cut);
                recovered += counts.recovered;
                resent += counts.resent;
            });
        }
        for (const uint64_t repaired_ns :
             {uint64_t{400'000}, uint64_t{1'500'000}, uint64_t{1'200'000'000}}) {
            rules.repaired_ns = repaired_ns;
            cut_everywhere(rules, [](const FailoverRules&, const FailoverCounts&) {});
        }
    }
    EXPECT_GT(beside, 0U);
    EXPECT_GT(recovered, 0U);
    EXPECT_GT(resent, 0U);
}

TEST_F(FailoverSimulationTest, RequestsOnAllLinksWhichFailAgainAndAgainOrAreTakenAway) {
    uint64_t removed = 0;
    for (uint64_t seed = 1; seed <= test::test_size(30'000, 250, 100) && !HasFailure(); seed++) {
        FailoverRules rules;
        rules.spreads = true;
        rules.seed = seed;
        rules.link_count = 2 + seed % 3;
        rules.keeps_late = seed % 4 < 2;
        rules.operation_count = 60;
        rules.cuts = seed % 5 == 0 ? 0 : 40;
        rules.remove_at = seed % 5 == 0 ? 5 + seed / 5 % 100 : 0;
        rules.flush_ns = 1'000'000 << seed % 6;
        removed += run(rules).removed;
    }
    EXPECT_GT(removed, 0U);
}

TEST_F(FailoverSimulationTest, ALinkThatFlapsIsHeldDownLongerAndLonger) {
    FailoverRules rules;
    rules.flaps = static_cast<uint32_t>(test::test_size(10'000, 1'000));
    rules.flap_ns = 5'000'000'000;
    rules.operation_count = rules.flaps;
    const FailoverCounts counts = run(rules);
    EXPECT_EQ(counts.incarnations, 1U);
    EXPECT_GT(counts.joins, rules.flaps / 4);
    EXPECT_LE(counts.failovers, 20U) << "it is held down";
    EXPECT_EQ(counts.hold_ns, SessionMachine::kMostHoldNs);
}

// ---- Faults of the failover itself are found --------------------------------------------------------------

TEST_F(FailoverSimulationTest, ResendingEverythingIsFound) {
    FailoverRules rules;
    rules.resends_all = true;
    uint64_t repeated = 0;
    cut_each_way(rules, [&](const FailoverRules&, const FailoverCounts& counts) {
        repeated += counts.repeated;
    });
    EXPECT_GT(repeated, 0U);
}

TEST_F(FailoverSimulationTest, SendingFollowersEarlyIsFound) {
    expects_problems_ = true;
    uint64_t reopened = 0;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.spreads = true;
        rules.operation_count = 100;
        rules.sends_followers_early = true;
        cut_each_way(rules, [&](const FailoverRules&, const FailoverCounts& counts) {
            reopened += counts.incarnations > 1 ? 1 : 0;
        });
    }
    EXPECT_GT(reopened + problems_, 0U);
}

TEST_F(FailoverSimulationTest, RevokingAfterTheReplayIsFound) {
    expects_problems_ = true;  // the path that never ends
    uint64_t repeated = 0;
    for (uint64_t seed = 1; seed <= tiffin::test::test_size(10, 2); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.tells_client = true;
        rules.keeps_late = true;
        rules.revokes_after_replay = true;
        cut_each_way(rules, [&](const FailoverRules&, const FailoverCounts& counts) {
            repeated += counts.repeated;
        });
    }
    EXPECT_GT(repeated, 0U);
}

TEST_F(FailoverSimulationTest, RemovingALinkAtOnceIsFound) {
    expects_problems_ = true;
    FailoverRules rules;
    rules.removes_at_once = true;
    uint64_t repeated = 0;
    for (rules.remove_at = 1; rules.remove_at < 60; rules.remove_at++) {
        const FailoverCounts counts = run(rules);
        repeated += counts.resent + counts.suspicions;
    }
    EXPECT_GT(repeated + problems_, 0U);
}

TEST_F(FailoverSimulationTest, ExecutingWhatComesLateIsFound) {
    expects_problems_ = true;
    for (uint64_t seed = 1; seed <= tiffin::test::test_size(10, 2); seed++) {
        FailoverRules rules;
        rules.seed = seed;
        rules.tells_client = true;
        rules.keeps_late = true;
        rules.operation_count = 100;
        rules.executes_late = true;
        cut_each_way(rules, [&](const FailoverRules&, const FailoverCounts&) {});
    }
    EXPECT_GT(problems_, 0U);
}

}  // namespace
}  // namespace tiffin::rdma_blk
