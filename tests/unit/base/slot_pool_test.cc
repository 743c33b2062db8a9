// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/base/slot_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/race_pauses.h"

namespace tiffin {
namespace {

TEST(SlotPool, KeepsWhatItHasRoomFor) {
    constexpr int kObjects = SlotPool<int>::kSlots + 3;
    int objects[kObjects] = {};
    SlotPool<int> pool;
    EXPECT_EQ(pool.take(), nullptr);
    int kept = 0;
    for (int& object : objects) {
        kept += pool.give_back(&object) ? 1 : 0;
    }
    EXPECT_EQ(kept, static_cast<int>(SlotPool<int>::kSlots));
    for (; kept > 0; --kept) {
        int* const object = pool.take();
        ASSERT_NE(object, nullptr);
        EXPECT_EQ((*object)++, 0) << "lent twice";
    }
    EXPECT_EQ(pool.take(), nullptr);
}

// Nobody else has what is lent, and who takes it sees what the last one has left there.
TEST(SlotPool, LendsToOneAtATime) {
    struct Object {
        std::atomic<int> users{0};
        uint64_t used = 0;  // not atomic: the pool hands it over
    };
    const test::RacePauses pauses;
    constexpr int kThreads = 4;
    constexpr int kRounds = 3000;
    SlotPool<Object> pool;
    std::vector<std::vector<std::unique_ptr<Object>>> made(kThreads);
    std::atomic<uint64_t> mistakes{0};
    std::atomic<uint64_t> uses{0};
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; ++number) {
        threads.emplace_back([&, number] {
            for (int i = 0; i < kRounds; ++i) {
                Object* object = pool.take();
                if (object == nullptr) {
                    made[number].push_back(std::make_unique<Object>());
                    object = made[number].back().get();
                }
                mistakes += object->users.exchange(1) != 0 ? 1 : 0;
                ++object->used;
                ++uses;
                mistakes += object->users.exchange(0) != 1 ? 1 : 0;
                mistakes += pool.give_back(object) ? 0 : 1;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(mistakes, 0U);
    uint64_t used = 0;
    uint64_t objects = 0;
    while (const Object* object = pool.take()) {
        used += object->used;
        ++objects;
    }
    EXPECT_EQ(used, uint64_t{kThreads} * kRounds);
    EXPECT_EQ(uses, used);
    uint64_t made_objects = 0;
    for (const auto& of_thread : made) {
        made_objects += of_thread.size();
    }
    EXPECT_EQ(objects, made_objects);
}

}  // namespace
}  // namespace tiffin
