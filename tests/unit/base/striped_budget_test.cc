// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/base/striped_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "fs/vfs/host.h"
#include "tests/support/race_pauses.h"

namespace tiffin {
namespace {

TEST(StripedBudget, GivesOutWhatThereIsAndNoMore) {
    for (const int64_t batch : {0, 1, 16, 1000}) {
        SCOPED_TRACE(batch);
        StripedBudget budget;
        budget.start(1000, batch, 500);
        int64_t taken = 0;
        while (budget.take(7)) {
            taken += 7;
            ASSERT_EQ(budget.sum(), 1000 - taken);
        }
        EXPECT_EQ(taken, 994);
        EXPECT_EQ(budget.take_up_to(7, 1, 0), 6);
        EXPECT_EQ(budget.take_up_to(7, 1, 0), 0);
        budget.give(1000);
        EXPECT_EQ(budget.sum(), 1000);
        EXPECT_TRUE(budget.take(1000));
    }
}

TEST(StripedBudget, KeepsWhatIsToBeKept) {
    StripedBudget budget;
    budget.start(1000, 16, 500);
    int64_t taken = 0;
    while (const int64_t count = budget.take_up_to(9, 1, 300)) {
        taken += count;
    }
    EXPECT_EQ(taken, 700);
    EXPECT_EQ(budget.take_up_to(9, 1, 300), 0);
    EXPECT_EQ(budget.take_up_to(400, 1, 0), 300);
}

TEST(StripedBudget, MayBecomeNegativeForThoseWhoDoNotAsk) {
    StripedBudget budget;
    budget.start(10, 4, 0);
    ASSERT_TRUE(budget.take(1));  // some are at hand now
    budget.give(-20);
    EXPECT_EQ(budget.sum(), -11);
    EXPECT_FALSE(budget.take(1));
    budget.give(12);
    EXPECT_EQ(budget.sum(), 1);
    EXPECT_TRUE(budget.take(1));
    EXPECT_FALSE(budget.take(1));
}

TEST(StripedBudget, WhatIsAtHandIsBounded) {
    StripedBudget budget;
    budget.start(0, 8, 0);
    for (int i = 0; i < 1000; ++i) {
        budget.give(5);
        ASSERT_GE(budget.at_least(), budget.sum() - 8 * 4 * 8);
    }
    EXPECT_EQ(budget.sum(), 5000);
}

// Never more is out than there was, whatever the threads do, and at the end nothing has been lost.
TEST(StripedBudget, HoldsBetweenThreads) {
    constexpr int64_t kAmount = 200;
    const test::RacePauses pauses;
    StripedBudget budget;
    budget.start(kAmount, 4, 60);
    std::atomic<int64_t> out{0};
    std::atomic<uint64_t> mistakes{0};
    std::vector<std::thread> threads;
    for (uint32_t number = 0; number < 4; ++number) {
        threads.emplace_back([&, number] {
            uint64_t random = number + 1;
            int64_t mine = 0;
            for (int i = 0; i < 20000; ++i) {
                random = random * 6364136223846793005U + 1442695040888963407U;
                const auto wanted = static_cast<int64_t>((random >> 40) % 30 + 1);
                if ((random >> 33) % 2 == 0) {
                    const int64_t taken = budget.take_up_to(wanted, 1, 0);
                    mine += taken;
                    mistakes += out.fetch_add(taken) + taken > kAmount ? 1 : 0;
                } else if (mine > 0) {
                    const int64_t back = mine < wanted ? mine : wanted;
                    out.fetch_sub(back);
                    budget.give(back);
                    mine -= back;
                }
                std::this_thread::yield();
            }
            out.fetch_sub(mine);
            budget.give(mine);
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(mistakes, 0U);
    EXPECT_EQ(budget.sum(), kAmount);
    EXPECT_TRUE(budget.take(kAmount));
}

// What one thread is bringing together is not missed by the others: there is enough for all of them.
TEST(StripedBudget, WhatIsBeingMovedIsNotMissed) {
    constexpr int kRounds = 300;
    constexpr uint32_t kThreads = 4;
    constexpr uint64_t kLeastWaitNs = 20'000'000;
    const test::RacePauses pauses(4);
    StripedBudget budget;
    std::atomic<uint32_t> arrived{0};
    // All threads have come so far.
    const auto meet = [&arrived](uint32_t& met) {
        met += kThreads;
        arrived.fetch_add(1);
        while (arrived.load() < met) {
            std::this_thread::yield();
        }
    };
    budget.start(0, 16, 0);
    std::atomic<uint64_t> refused{0};
    // A refusal after the bounded wait is allowed: who moves something may have lost its processor for that long.
    // Refusals that come at once are the defect.
    const auto take = [&](int64_t amount) {
        for (bool is_taken = false; !is_taken;) {
            const uint64_t start_ns = host::monotonic_ns();
            is_taken = budget.take(amount);
            const bool has_waited = host::monotonic_ns() - start_ns > kLeastWaitNs;
            refused += is_taken || has_waited ? 0 : 1;
        }
    };
    std::vector<std::thread> threads;
    for (uint32_t number = 0; number < kThreads; ++number) {
        threads.emplace_back([&] {
            uint32_t met = 0;
            for (int round = 0; round < kRounds; ++round) {
                for (int i = 0; i < 10; ++i) {
                    budget.give(5);
                }
                meet(met);
                take(30);
                meet(met);
                take(20);
                meet(met);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(refused, 0U);
    EXPECT_EQ(budget.sum(), 0);
}

}  // namespace
}  // namespace tiffin
