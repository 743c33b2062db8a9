// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/base/biased_shared_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "fuse/host/lock_order.h"
#include "tests/support/race_pauses.h"

namespace tiffin {
namespace {

// What these tests do with locks is not for the static analysis: they look at them from several sides at once.
class BiasedMutex : public testing::Test {
  protected:
    // On one processor or on several: 32 sharings of one stripe are among these.
    NO_THREAD_SAFETY_ANALYSIS static void make_biased(BiasedSharedMutex& mutex) {
        for (uint32_t i = 0; i < 1000 && !mutex.is_biased(); ++i) {
            mutex.unlock_shared(mutex.lock_shared());
        }
        ASSERT_TRUE(mutex.is_biased());
    }
    NO_THREAD_SAFETY_ANALYSIS static bool can_lock(BiasedSharedMutex& mutex) {
        bool locked = false;
        std::thread([&]() NO_THREAD_SAFETY_ANALYSIS {
            locked = mutex.try_lock();
            if (locked) {
                mutex.unlock();
            }
        }).join();
        return locked;
    }
};

TEST_F(BiasedMutex, SharingMakesItBiasedAndOwningAloneTakesThatAway) NO_THREAD_SAFETY_ANALYSIS {
    BiasedSharedMutex mutex(host::LockClass::object_state);
    EXPECT_FALSE(mutex.is_biased());
    make_biased(mutex);
    mutex.lock();
    EXPECT_FALSE(mutex.is_biased());
    mutex.unlock();
    for (uint32_t i = 0; i < 100; ++i) {
        mutex.lock_shared_unbiased();
        mutex.unlock_shared();
    }
    EXPECT_FALSE(mutex.is_biased());
}

// Also a second time: who has looked in vain has not forgotten the owner.
TEST_F(BiasedMutex, IsNotOwnedAloneWhileItIsShared) NO_THREAD_SAFETY_ANALYSIS {
    BiasedSharedMutex mutex(host::LockClass::object_state);
    make_biased(mutex);
    const BiasedSharedMutex::Sharing sharing = mutex.lock_shared();
    EXPECT_FALSE(can_lock(mutex));
    EXPECT_FALSE(can_lock(mutex));
    std::atomic<bool> left{false};
    std::atomic<bool> early{false};
    std::thread writer([&]() NO_THREAD_SAFETY_ANALYSIS {
        mutex.lock();
        early = !left;
        mutex.unlock();
    });
    std::this_thread::yield();
    left = true;
    mutex.unlock_shared(sharing);
    writer.join();
    EXPECT_FALSE(early);
    EXPECT_TRUE(can_lock(mutex));
}

// A thread has more locks shared than there are slots: some of them by the locks themselves.
TEST_F(BiasedMutex, WorksWhereSlotsAreTaken) NO_THREAD_SAFETY_ANALYSIS {
    constexpr uint32_t kLocks = 100;
    std::vector<std::unique_ptr<BiasedSharedMutex>> locks;
    std::vector<BiasedSharedMutex::Sharing> sharings;
    for (uint32_t i = 0; i < kLocks; ++i) {
        locks.push_back(std::make_unique<BiasedSharedMutex>(host::LockClass::object_state));
        make_biased(*locks[i]);
    }
    for (uint32_t i = 0; i < kLocks; ++i) {
        sharings.push_back(locks[i]->lock_shared(i + 1));
    }
    for (auto& lock : locks) {
        EXPECT_FALSE(can_lock(*lock));
    }
    for (uint32_t i = 0; i < kLocks; ++i) {
        locks[i]->unlock_shared(sharings[i]);
        EXPECT_TRUE(can_lock(*locks[i]));
    }
}

TEST_F(BiasedMutex, KeepsOthersOut) {
    const test::RacePauses pauses(64);
    BiasedSharedMutex mutex(host::LockClass::object_state);
    uint64_t first = 0;  // not atomic: the lock guards them
    uint64_t second = 0;
    std::atomic<uint64_t> mistakes{0};
    std::atomic<uint64_t> sharings{0};
    std::atomic<bool> stopping{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            uint64_t last = 0;
            while (!stopping) {
                const BiasedSharedLock lock(mutex);
                mistakes += first != second || first < last ? 1 : 0;
                last = first;
                ++sharings;
            }
        });
    }
    constexpr int kRounds = 60;
    for (int i = 0; i < kRounds; ++i) {
        // So that it is biased again in between.
        for (const uint64_t seen = sharings; sharings < seen + 40;) {
            std::this_thread::yield();
        }
        if (i % 3 != 0) {
            const BiasedExclusiveLock lock(mutex);
            ++first;
            std::this_thread::yield();
            ++second;
        } else if (mutex.try_lock()) {
            ++first;
            std::this_thread::yield();
            ++second;
            mutex.unlock();
        }
    }
    stopping = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(mistakes, 0U);
    EXPECT_GE(second, 2U * kRounds / 3);
}

NO_THREAD_SAFETY_ANALYSIS void take_smaller_level() {
    BiasedSharedMutex upper(host::LockClass::object_state);
    BiasedSharedMutex lower(host::LockClass::object_state);
    for (uint32_t i = 0; i < 1000 && !upper.is_biased(); ++i) {
        upper.unlock_shared(upper.lock_shared(4));
    }
    lower.lock(5);
    upper.unlock_shared(upper.lock_shared(4));
    lower.unlock();
}

TEST(BiasedMutexDeathTest, TheOrderIsCheckedWhereItIsBiasedToo) {
    if (!fuse::lock_order_is_checked()) {
        take_smaller_level();  // harmless in a single thread
        return;
    }
    EXPECT_DEATH(take_smaller_level(), "object_state .level 4. while it holds .* .level 5.");
}

}  // namespace
}  // namespace tiffin
