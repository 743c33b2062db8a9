// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/busy_poll.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace tiffin::rdma_blk {
namespace {

constexpr uint32_t kHourUs = 3'600'000'000;

bool has_one_processor() {
    cpu_set_t processors;
    return sched_getaffinity(0, sizeof(processors), &processors) == 0 &&
           CPU_COUNT(&processors) == 1;
}

// How often something was looked for that is there at the tenth look; 0: not at all.
int looks(BusyPoll& poll) {
    int count = 0;
    const bool is_met = poll.meets([&] { return ++count == 10; });
    EXPECT_EQ(is_met, count == 10);
    return count;
}

TEST(BusyPoll, LooksOnlyAfterASleepThatWasShort) {
    if (has_one_processor()) {
        GTEST_SKIP() << "not run: a single processor";
    }
    BusyPoll poll(kHourUs);
    EXPECT_EQ(looks(poll), 0);
    EXPECT_EQ(looks(poll), 0);
    poll.slept();
    EXPECT_EQ(looks(poll), 10);
    EXPECT_EQ(looks(poll), 10);
}

TEST(BusyPoll, WhatWasLookedForInVainIsSleptOver) {
    if (has_one_processor()) {
        GTEST_SKIP() << "not run: a single processor";
    }
    BusyPoll poll(BusyPoll::kMaxUs);
    int count = 0;
    // Until a sleep was short enough, whatever else this machine does.
    for (int i = 0; i < 1000 && count == 0; i++) {
        if (!poll.meets([&] { return ++count == 0; })) {
            poll.slept();
        }
    }
    ASSERT_GT(count, 0);
    poll.slept();  // longer than the limit, with the looking
    EXPECT_EQ(looks(poll), 0);
}

TEST(BusyPoll, ZeroSleepsAtOnce) {
    BusyPoll poll(0);
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(looks(poll), 0);
        poll.slept();
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk
