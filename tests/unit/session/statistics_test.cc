// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Counting: nothing is lost between threads, and percentiles lie in the right bucket.
#include "fuse/session/statistics.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tiffin::fuse {
namespace {

TEST(Statistics, CountsWhatIsRecorded) {
    auto statistics = std::make_unique<Statistics>();
    statistics->record(Operation::read, 100, 4096, false);
    statistics->record(Operation::read, 300, 0, true);
    OperationTotals totals = statistics->totals(Operation::read);
    EXPECT_EQ(totals.count, 2U);
    EXPECT_EQ(totals.errors, 1U);
    EXPECT_EQ(totals.bytes, 4096U);
    EXPECT_EQ(totals.total_ns, 400U);
    EXPECT_EQ(totals.buckets[6], 1U);  // 64 to 127 ns
    EXPECT_EQ(totals.buckets[8], 1U);  // 256 to 511 ns
    EXPECT_EQ(statistics->totals(Operation::write).count, 0U);
}

TEST(Statistics, ExtremesHaveABucket) {
    auto statistics = std::make_unique<Statistics>();
    statistics->record(Operation::fsync, 0, 0, false);
    statistics->record(Operation::fsync, 1, 0, false);
    statistics->record(Operation::fsync, UINT64_MAX, 0, false);
    OperationTotals totals = statistics->totals(Operation::fsync);
    EXPECT_EQ(totals.buckets.front(), 2U);
    EXPECT_EQ(totals.buckets.back(), 1U);
}

TEST(Statistics, ThreadsLoseNothing) {
    auto statistics = std::make_unique<Statistics>();
    constexpr int kThreads = 40;  // more than stripes
    constexpr int kEach = 1000;
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            for (int i = 0; i < kEach; ++i) {
                statistics->record(Operation::lookup, 50, 1, i % 10 == 0);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    OperationTotals totals = statistics->totals(Operation::lookup);
    EXPECT_EQ(totals.count, uint64_t{kThreads} * kEach);
    EXPECT_EQ(totals.errors, uint64_t{kThreads} * kEach / 10);
    EXPECT_EQ(totals.bytes, uint64_t{kThreads} * kEach);
    EXPECT_EQ(totals.buckets[5], uint64_t{kThreads} * kEach);
}

TEST(Statistics, EachOperationHasItsName) {
    std::set<std::string> names;
    for (size_t i = 0; i < kOperationCount; ++i) {
        names.insert(operation_name(static_cast<Operation>(i)));
    }
    EXPECT_EQ(names.size(), kOperationCount);
    EXPECT_STREQ(operation_name(Operation::lookup), "LOOKUP");
    EXPECT_STREQ(operation_name(Operation::control), "IOCTL");
}

TEST(Percentiles, OfNothingIsNothing) { EXPECT_EQ(percentile_ns(OperationTotals{}, 0.99), 0U); }

TEST(Percentiles, LieInTheirBucket) {
    OperationTotals totals;
    totals.buckets[4] = 90;  // 16 to 31 ns
    totals.buckets[10] = 9;  // 1024 to 2047 ns
    totals.buckets[20] = 1;
    EXPECT_GE(percentile_ns(totals, 0.5), 16U);
    EXPECT_LE(percentile_ns(totals, 0.5), 32U);
    EXPECT_GE(percentile_ns(totals, 0.95), 1024U);
    EXPECT_LE(percentile_ns(totals, 0.95), 2048U);
    EXPECT_GE(percentile_ns(totals, 0.999), uint64_t{1} << 20);
    EXPECT_LE(percentile_ns(totals, 1.0), uint64_t{1} << 21);
    EXPECT_LE(percentile_ns(totals, 0.1), percentile_ns(totals, 0.2));
}

}  // namespace
}  // namespace tiffin::fuse
