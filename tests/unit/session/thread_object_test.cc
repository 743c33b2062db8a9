// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/thread_object.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tiffin::fuse {
namespace {

std::atomic<int> alive{0};

struct Counted {
    Counted() { alive.fetch_add(1); }
    ~Counted() { alive.fetch_sub(1); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

    int number = 0;
};

TEST(ThreadObject, EachThreadHasItsOwnUntilItEnds) {
    Counted* const mine = ThreadObject<Counted>::get();
    ASSERT_NE(mine, nullptr);
    mine->number = 7;
    EXPECT_EQ(ThreadObject<Counted>::get(), mine);
    const int before = alive.load();
    std::thread([&] {
        Counted* const other = ThreadObject<Counted>::get();
        EXPECT_NE(other, mine);
        EXPECT_EQ(other->number, 0);
        EXPECT_EQ(alive.load(), before + 1);
    }).join();
    EXPECT_EQ(alive.load(), before);
    EXPECT_EQ(mine->number, 7);
}

TEST(ThreadObject, AThreadThatNeverAsksHasNone) {
    const int before = alive.load();
    std::thread([] {}).join();
    EXPECT_EQ(alive.load(), before);
}

}  // namespace
}  // namespace tiffin::fuse
