// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/page_pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "fs/vfs/host.h"

namespace tiffin::fuse {
namespace {

constexpr size_t kPageBytes = 4096;

TEST(PagePool, GivesEachPageOnce) {
    std::set<void*> pages;
    for (int i = 0; i < 2000; ++i) {
        void* const page = take_page();
        ASSERT_NE(page, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(page) % kPageBytes, 0U);
        std::memset(page, i, kPageBytes);
        EXPECT_TRUE(pages.insert(page).second);
    }
    for (void* page : pages) {
        return_page(page);
    }
    // The same ones again, and no others.
    std::vector<void*> again;
    for (size_t i = 0; i < pages.size(); ++i) {
        again.push_back(take_page());
        EXPECT_EQ(pages.count(again.back()), 1U);
    }
    for (void* page : again) {
        return_page(page);
    }
}

TEST(PagePool, KeepsWhatEachThreadWrites) {
    std::vector<std::thread> threads;
    std::vector<int> wrong(4);
    for (int number = 0; number < 4; ++number) {
        threads.emplace_back([number, &wrong] {
            std::vector<unsigned char*> pages;
            for (int i = 0; i < 3000; ++i) {
                pages.push_back(static_cast<unsigned char*>(take_page()));
                std::memset(pages.back(), number, kPageBytes);
                if (pages.size() == 20) {
                    for (unsigned char* page : pages) {
                        wrong[number] += page[0] != number || page[kPageBytes - 1] != number;
                        return_page(page);
                    }
                    pages.clear();
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const int count : wrong) {
        EXPECT_EQ(count, 0);
    }
}

// Pages that one thread takes and another one returns come back to the first, wherever they run.
TEST(PagePool, DoesNotGrowWithWhatPassesThrough) {
    std::set<void*> seen;
    for (int round = 0; round < 100; ++round) {
        std::vector<void*> pages;
        for (int i = 0; i < 100; ++i) {
            pages.push_back(take_page());
        }
        seen.insert(pages.begin(), pages.end());
        std::thread([&] {
            for (void* page : pages) {
                return_page(page);
            }
        }).join();
    }
    // At most some chunks of 1 MiB that were not begun before, for processors that were moved to.
    EXPECT_LE(seen.size(), 2000U + 16 * 256);
}

TEST(PagePool, IsBehindSinglePages) {
    void* const page = host::allocate_pages(kPageBytes);
    ASSERT_NE(page, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(page) % kPageBytes, 0U);
    host::release_pages(page, kPageBytes);
    void* const pages = host::allocate_pages(3 * kPageBytes);
    ASSERT_NE(pages, nullptr);
    host::release_pages(pages, 3 * kPageBytes);
    host::release_pages(nullptr, kPageBytes);
}

}  // namespace
}  // namespace tiffin::fuse
