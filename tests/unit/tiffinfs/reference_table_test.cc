// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/objects/reference_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "fuse/host/allocation_hooks.h"

namespace tiffin::tiffinfs {
namespace {

TEST(ReferenceTable, CountsReferences) {
    ReferenceTable table;
    EXPECT_EQ(table.count(7), 0U);
    ASSERT_TRUE(table.add(7).ok());
    ASSERT_TRUE(table.add(7).ok());
    ASSERT_TRUE(table.add(8).ok());
    EXPECT_EQ(table.count(7), 2U);
    EXPECT_EQ(table.size(), 2U);
    EXPECT_FALSE(table.drop(7, 1));
    EXPECT_TRUE(table.drop(7, 1));
    EXPECT_EQ(table.count(7), 0U);
    EXPECT_EQ(table.count(8), 1U);
}

TEST(ReferenceTable, DropsAtMostWhatThereIs) {
    ReferenceTable table;
    EXPECT_FALSE(table.drop(1, 1));
    ASSERT_TRUE(table.add(1).ok());
    EXPECT_FALSE(table.drop(1, 0));
    EXPECT_TRUE(table.drop(1, ~uint64_t{0}));
    EXPECT_FALSE(table.drop(1, 1));
    EXPECT_EQ(table.size(), 0U);
}

TEST(ReferenceTable, TakesAtMost24BytesForEachOfManyNodes) {
    ReferenceTable table;
    constexpr uint64_t kSlotBytes = 16;
    for (uint64_t node = 1; node <= 200'000; ++node) {
        ASSERT_TRUE(table.add(node).ok());
        if (node > 1000) {
            ASSERT_LE(table.capacity() * kSlotBytes, node * 24);
        }
    }
}

TEST(ReferenceTable, ShrinksWhenNodesAreForgotten) {
    ReferenceTable table;
    for (uint64_t node = 1; node <= 10'000; ++node) {
        ASSERT_TRUE(table.add(node).ok());
    }
    for (uint64_t node = 1; node <= 10'000; ++node) {
        ASSERT_TRUE(table.drop(node, 1));
        ASSERT_EQ(table.count(node), 0U);
    }
    EXPECT_LE(table.capacity(), 64U);
}

// A kernel forgets because memory is short.
TEST(ReferenceTable, ForgettingAllocatesNothing) {
    ReferenceTable table;
    for (uint64_t node = 1; node <= 10'000; ++node) {
        ASSERT_TRUE(table.add(node).ok());
    }
    {
        fuse::AllocationWatch watch;
        for (uint64_t node = 11; node <= 10'000; ++node) {
            ASSERT_TRUE(table.drop(node, 1));
        }
        EXPECT_EQ(watch.allocations(), 0U);
    }
    EXPECT_GT(table.capacity(), 10'000U);
    for (uint64_t node = 20'000; node < 20'020; ++node) {
        ASSERT_TRUE(table.add(node).ok());
    }
    EXPECT_LE(table.capacity(), 128U);
    for (uint64_t node = 1; node <= 10; ++node) {
        EXPECT_EQ(table.count(node), 1U);
    }
}

// Whichever way nodes are split among tables, searches in one of them stay short: on average seven slots
// at seven eighths full, by theory.
TEST(ReferenceTable, SearchesAreShortForAnyShareOfTheNodes) {
    const auto golden = [](uint64_t node) {
        return ((node ^ (node >> 31)) * 0x9e3779b97f4a7c15U) >> 58 == 5;
    };
    const auto low_bits = [](uint64_t node) { return node % 64 == 5; };
    const auto high_ids = [](uint64_t node) { return node > 600'000; };
    const auto check = [](const char* what, auto belongs) {
        ReferenceTable table;
        uint64_t slots = 0;
        for (uint64_t node = 1; node < 640'000; ++node) {
            if (belongs(node)) {
                ASSERT_TRUE(table.add(node).ok());
            }
        }
        for (uint64_t node = 1; node < 640'000; ++node) {
            slots += belongs(node) ? table.search_length(node) : 0;
        }
        EXPECT_LT(slots, uint64_t{table.size()} * 7) << what;
    };
    check("the golden ratio", golden);
    check("low bits", low_bits);
    check("high ids", high_ids);
}

TEST(ReferenceTable, AgreesWithAMap) {
    ReferenceTable table;
    std::map<uint64_t, uint64_t> model;
    std::mt19937_64 random(20240611);
    for (int step = 0; step < 300'000; ++step) {
        // Few different ids, some of them far apart, so that searches run into each other.
        const uint64_t node = (random() % 700 + 1) << (random() % 2 * 40);
        if (random() % 100 < (step / 50'000 % 2 == 0 ? 60U : 40U)) {
            ASSERT_TRUE(table.add(node).ok());
            ++model[node];
        } else {
            const uint64_t count = random() % 4;
            auto found = model.find(node);
            const bool gone = found != model.end() && count != 0 && found->second <= count;
            ASSERT_EQ(table.drop(node, count), gone) << "step " << step;
            if (gone) {
                model.erase(found);
            } else if (found != model.end()) {
                found->second -= count;
            }
        }
        ASSERT_EQ(table.size(), model.size());
    }
    std::vector<uint64_t> nodes(table.size());
    table.copy_nodes(nodes.data());
    std::sort(nodes.begin(), nodes.end());
    auto listed = nodes.begin();
    for (const auto& [node, count] : model) {
        EXPECT_EQ(table.count(node), count);
        EXPECT_EQ(*listed++, node);
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs
