// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/memory_shortage.h"

#include <gtest/gtest.h>

#include <chrono>
#include <new>
#include <thread>

namespace tiffin::fuse {
namespace {

TEST(MemoryShortage, WaitsAndThenFails) {
    int looks = 0;
    const auto wait = [&] {
        for (;;) {
            wait_for_memory(50);
            ++looks;
        }
    };
    EXPECT_THROW(wait(), std::bad_alloc);
    EXPECT_GE(looks, 1);
    // The next allocation begins to wait anew.
    looks = 0;
    EXPECT_THROW(wait(), std::bad_alloc);
    EXPECT_GE(looks, 1);
}

// As where every third allocation fails, for longer than one would wait.
TEST(MemoryShortage, WaitsOfSeveralAllocationsDoNotAddUp) {
    for (int i = 0; i < 30; ++i) {
        EXPECT_NO_THROW(wait_for_memory(50));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

TEST(MemoryShortage, NoPatienceIsNoWaiting) { EXPECT_THROW(wait_for_memory(0), std::bad_alloc); }

}  // namespace
}  // namespace tiffin::fuse
