// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Random sessions over an unreliable world: every operation completes once, is executed at most once, exactly
// once when the client is told so, in order where order was asked for, and gets its own reply.
#include <gtest/gtest.h>

#include "tests/support/test_size.h"
#include "tests/unit/rdma_blk/session/simulated_session.h"

namespace tiffin::rdma_blk {
namespace {

SimulationCounts run_seeds(const SimulationRules& rules, uint64_t seeds) {
    SimulationCounts counts;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        SimulationRules varied = rules;
        varied.slot_count = static_cast<uint16_t>(1 + seed % 7);
        SimulatedSession(seed, varied).run(counts);
        if (::testing::Test::HasFailure()) {
            break;
        }
    }
    return counts;
}

uint64_t seed_count() { return test::test_size(1500, 100); }

TEST(SessionSimulation, StreamsThatBreak) {
    const SimulationCounts counts = run_seeds({}, seed_count());
    EXPECT_GT(counts.cuts, 0U);
    EXPECT_GT(counts.lost_answers_to_open, 0U);
    EXPECT_GT(counts.partial_executions, 0U);
    EXPECT_GT(counts.path_losses, 0U);
    EXPECT_GT(counts.late_requests, 0U);
    EXPECT_GT(counts.followers_applied, 0U);
    EXPECT_GT(counts.values_read, 0U);
    EXPECT_GT(counts.fetched, 0U);
    EXPECT_GT(counts.answered_again, 0U);
    EXPECT_GT(counts.waited, 0U);
    // With memory kept and no deadlines everything is executed in the end.
    EXPECT_EQ(counts.outcomes[static_cast<size_t>(Outcome::not_executed)], 0U);
    EXPECT_EQ(counts.outcomes[static_cast<size_t>(Outcome::unknown)], 0U);
}

TEST(SessionSimulation, DatagramsThatGetLostRepeatedAndReordered) {
    SimulationRules rules;
    rules.in_order = false;
    const SimulationCounts counts = run_seeds(rules, seed_count());
    EXPECT_GT(counts.waited, 0U);
    EXPECT_GT(counts.answered_again, 0U);
    EXPECT_EQ(counts.outcomes[static_cast<size_t>(Outcome::not_executed)], 0U);
    EXPECT_EQ(counts.outcomes[static_cast<size_t>(Outcome::unknown)], 0U);
}

TEST(SessionSimulation, DeadlinesAndRefusals) {
    SimulationRules rules;
    rules.has_deadlines = true;
    rules.may_refuse = true;
    for (const bool in_order : {true, false}) {
        rules.in_order = in_order;
        const SimulationCounts counts = run_seeds(rules, seed_count());
        EXPECT_GT(counts.refused, 0U);
        EXPECT_GT(counts.outcomes[static_cast<size_t>(Outcome::executed)], 0U);
        EXPECT_GT(counts.outcomes[static_cast<size_t>(Outcome::not_executed)], 0U);
        EXPECT_GT(counts.outcomes[static_cast<size_t>(Outcome::unknown)], 0U);
    }
}

TEST(SessionSimulation, ServersThatLoseTheirMemory) {
    SimulationRules rules;
    rules.may_lose_memory = true;
    for (const bool all : {false, true}) {
        rules.has_deadlines = all;
        rules.may_refuse = all;
        const SimulationCounts counts = run_seeds(rules, seed_count());
        EXPECT_GT(counts.memory_losses, 0U);
        EXPECT_GT(counts.outcomes[static_cast<size_t>(Outcome::unknown)], 0U) << "atomics";
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk
