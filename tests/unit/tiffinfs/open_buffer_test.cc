// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: places in the buffer that takes transactions follow each other without gaps, whoever takes them, and closing
// it misses none.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "fs/tiffinfs/journal/open_buffer.h"
#include "tests/support/race_pauses.h"
#include "tests/support/test_size.h"

namespace tiffin::tiffinfs {
namespace {

TEST(OpenBuffer, PlacesFollowEachOtherByCacheLines) {
    OpenBuffer buffer;
    OpenBuffer::State state;
    ASSERT_TRUE(buffer.take_place(28, 256, state));
    EXPECT_EQ(state.bytes(), 0U);
    EXPECT_EQ(state.transaction_count(), 0U);
    ASSERT_TRUE(buffer.take_place(72, 256, state));
    EXPECT_EQ(state.bytes(), 64U);
    EXPECT_EQ(state.transaction_count(), 1U);
    EXPECT_EQ(buffer.look().bytes(), 192U);
    EXPECT_EQ(buffer.look().transaction_count(), 2U);
}

TEST(OpenBuffer, WhatDoesNotFitChangesNothing) {
    OpenBuffer buffer;
    OpenBuffer::State state;
    ASSERT_TRUE(buffer.take_place(100, 192, state));
    EXPECT_FALSE(buffer.take_place(68, 192, state));
    EXPECT_EQ(state.bytes(), 128U);
    EXPECT_EQ(buffer.look().bytes(), 128U);
    EXPECT_TRUE(buffer.take_place(64, 192, state));
}

TEST(OpenBuffer, HoldsTheLargestFrame) {
    OpenBuffer buffer;
    OpenBuffer::State state;
    ASSERT_TRUE(buffer.take_place(OpenBuffer::kMaximumBytes, OpenBuffer::kMaximumBytes, state));
    EXPECT_EQ(buffer.look().bytes(), OpenBuffer::kMaximumBytes);
    EXPECT_EQ(buffer.look().transaction_count(), 1U);
    EXPECT_EQ(buffer.look().slot(), 0U);
    EXPECT_FALSE(buffer.take_place(4, OpenBuffer::kMaximumBytes, state));
}

TEST(OpenBuffer, IsClosedAsItWasSeenOnly) {
    OpenBuffer buffer;
    OpenBuffer::State state;
    ASSERT_TRUE(buffer.take_place(28, 256, state));
    const OpenBuffer::State seen = buffer.look();
    ASSERT_TRUE(buffer.take_place(28, 256, state));
    EXPECT_TRUE(buffer.look().is_of_same_buffer(seen));
    EXPECT_FALSE(buffer.close(seen, 1));
    ASSERT_TRUE(buffer.close(buffer.look(), 1));
    EXPECT_EQ(buffer.look().slot(), 1U);
    EXPECT_EQ(buffer.look().bytes(), 0U);
    EXPECT_EQ(buffer.look().transaction_count(), 0U);
    // A buffer in the same slot is another one, with the same content too.
    const OpenBuffer::State empty = buffer.look();
    for (const uint32_t slot : {2U, 0U, 1U}) {
        ASSERT_TRUE(buffer.close(buffer.look(), slot));
    }
    EXPECT_FALSE(buffer.look().is_of_same_buffer(empty));
    EXPECT_FALSE(buffer.close(empty, 2));
}

// Threads take places, and close buffers that are full; together the places of each buffer are the whole of what it
// was closed with.
TEST(OpenBuffer, ThreadsTakeEachPlaceOnce) {
    constexpr uint32_t kThreads = 4;
    constexpr uint32_t kCapacityBytes = 4096;
    const tiffin::test::RacePauses pauses;
    const uint64_t places_each = tiffin::test::test_size(20'000, 1'000);
    struct Place {
        uint64_t buffer;  // by the order in which they were closed
        uint32_t first_byte;
        uint32_t size_bytes;
        uint32_t number;
    };
    OpenBuffer open;
    std::vector<std::pair<uint32_t, uint32_t>> closed;  // bytes and transactions
    std::array<std::vector<Place>, kThreads> places;
    std::array<std::atomic<uint64_t>, 4> index_of_slot{};
    std::array<std::atomic<uint64_t>, 4> noted{};  // places, by slot
    std::array<uint64_t, 4> taken{};               // in buffers that were closed
    std::mutex mutex;
    const auto close_for = [&](uint32_t size_bytes) {
        const std::lock_guard lock(mutex);
        OpenBuffer::State state = open.look();
        if (state.bytes() + OpenBuffer::place_bytes(size_bytes) <= kCapacityBytes) {
            return;
        }
        const uint32_t slot = (state.slot() + 1) % 4;
        // As the journal does it: what is in use is not opened again.
        while (noted[slot] != taken[slot]) {
            std::this_thread::yield();
        }
        index_of_slot[slot] = closed.size() + 1;
        while (!open.close(state, slot)) {
            state = open.look();
        }
        taken[state.slot()] += state.transaction_count();
        closed.emplace_back(state.bytes(), state.transaction_count());
    };
    const auto work = [&](uint32_t thread) {
        for (uint64_t i = 0; i < places_each; ++i) {
            const auto size_bytes = static_cast<uint32_t>(28 + (i * 7 + thread) % 10 * 24);
            OpenBuffer::State state;
            while (!open.take_place(size_bytes, kCapacityBytes, state)) {
                close_for(size_bytes);
            }
            places[thread].push_back({index_of_slot[state.slot()], state.bytes(), size_bytes,
                                      state.transaction_count()});
            ++noted[state.slot()];
        }
    };
    std::vector<std::thread> threads;
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back(work, thread);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    closed.emplace_back(open.look().bytes(), open.look().transaction_count());

    std::vector<Place> all;
    for (const std::vector<Place>& own : places) {
        all.insert(all.end(), own.begin(), own.end());
    }
    std::sort(all.begin(), all.end(), [](const Place& a, const Place& b) {
        return std::pair(a.buffer, a.first_byte) < std::pair(b.buffer, b.first_byte);
    });
    std::vector<std::pair<uint32_t, uint32_t>> found(closed.size());
    for (const Place& place : all) {
        ASSERT_LT(place.buffer, found.size());
        auto& [bytes, transactions] = found[place.buffer];
        ASSERT_EQ(place.first_byte, bytes);
        ASSERT_EQ(place.number, transactions);
        bytes += OpenBuffer::place_bytes(place.size_bytes);
        ++transactions;
    }
    EXPECT_EQ(found, closed);
}

}  // namespace
}  // namespace tiffin::tiffinfs
