// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "fs/vfs/host.h"
#include "fuse/host/allocation_hooks.h"

namespace tiffin::fuse {
namespace {

TEST(Allocate, AlignsToSixteenBytes) {
    for (size_t size : {0, 1, 15, 16, 17, 4095, 100000}) {
        void* memory = host::allocate(size);
        ASSERT_NE(memory, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 16, 0U);
        memset(memory, 0xff, size);
        host::release(memory, size);
    }
    host::release(nullptr, 10);
}

TEST(Allocate, AlignsPagesTo4096Bytes) {
    for (size_t size : {0, 4096, 3 * 4096, 1 << 20}) {
        void* memory = host::allocate_pages(size);
        ASSERT_NE(memory, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 4096, 0U);
        memset(memory, 0xff, size);
        host::release_pages(memory, size);
    }
    host::release_pages(nullptr, 4096);
}

TEST(AllocateDeathTest, RefusesSizesThatAreNotWholePages) {
    EXPECT_DEATH((void)host::allocate_pages(100), "assertion failed");
}

TEST(AllocationWatch, CountsLiveBytesAndAllocations) {
    void* before = host::allocate(8);
    AllocationWatch watch;
    void* small = host::allocate(100);
    void* pages = host::allocate_pages(8192);
    EXPECT_EQ(watch.live_bytes(), 8292);
    EXPECT_EQ(watch.live_allocations(), 2);
    host::release(small, 100);
    host::release_pages(pages, 8192);
    EXPECT_EQ(watch.live_bytes(), 0);
    host::release(before, 8);
    EXPECT_EQ(watch.live_bytes(), -8);
    EXPECT_EQ(watch.live_allocations(), -1);
    EXPECT_EQ(watch.allocations(), 2U);
    EXPECT_EQ(watch.failed_allocations(), 0U);
}

// Whether each of the next `count` allocations succeeds, as '+' and '-'.
std::string outcomes(int count) {
    std::string result;
    for (int i = 0; i < count; ++i) {
        void* memory = i % 2 == 0 ? host::allocate(10) : host::allocate_pages(4096);
        result += memory == nullptr ? '-' : '+';
        if (i % 2 == 0) {
            host::release(memory, 10);
        } else {
            host::release_pages(memory, 4096);
        }
    }
    return result;
}

TEST(AllocationWatch, FailsTheChosenAllocation) {
    AllocationWatch watch;
    EXPECT_EQ(outcomes(2), "++");
    watch.fail_allocation(3);
    EXPECT_EQ(outcomes(5), "++-++");
    watch.fail_allocation(1);
    EXPECT_EQ(outcomes(2), "-+");
    EXPECT_EQ(watch.failed_allocations(), 2U);
    EXPECT_EQ(watch.live_bytes(), 0);
}

TEST(AllocationWatch, FailsFromTheChosenAllocationOn) {
    {
        AllocationWatch watch;
        watch.fail_allocations_from(2);
        EXPECT_EQ(outcomes(4), "+---");
        watch.stop_failing();
        EXPECT_EQ(outcomes(2), "++");
        watch.fail_allocations_from(1);
    }
    EXPECT_EQ(outcomes(2), "++") << "the end of the watch ends the failures";
}

TEST(AllocationWatch, CountsInAllThreads) {
    AllocationWatch watch;
    watch.fail_allocation(1000);
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([] {
            for (int i = 0; i < 500; ++i) {
                host::release(host::allocate(64), 64);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(watch.allocations(), 2000U);
    EXPECT_EQ(watch.failed_allocations(), 1U);
    EXPECT_EQ(watch.live_bytes(), 0);
}

TEST(AllocationWatchDeathTest, OnlyOneAtATime) {
    AllocationWatch watch;
    EXPECT_DEATH(AllocationWatch second, "assertion failed");
}

}  // namespace
}  // namespace tiffin::fuse
