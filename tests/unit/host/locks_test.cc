// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fs/vfs/host.h"
#include "fuse/host/lock_order.h"

namespace tiffin::fuse {
namespace {

using host::LockClass;

struct Counter {
    host::Mutex mutex{LockClass::leaf};
    host::Condition changed;
    int value GUARDED_BY(mutex) = 0;
};

TEST(Mutex, ExcludesOthers) {
    Counter counter;
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&counter] {
            for (int i = 0; i < 1000; ++i) {
                MutexLock lock(counter.mutex);
                ++counter.value;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    MutexLock lock(counter.mutex);
    EXPECT_EQ(counter.value, 4000);
}

// An owner that takes it again at once, and one that keeps it long: who waits gets it all the same.
TEST(Mutex, IsGotFromThoseWhoTakeItAgain) {
    host::Mutex mutex(LockClass::object_state);
    for (const bool keeps_it_long : {false, true}) {
        std::atomic<bool> owned{false};
        std::atomic<bool> waiting{false};
        std::atomic<bool> got{false};
        std::thread owner([&] {
            while (!got) {
                MutexLock lock(mutex);
                owned = true;
                for (int i = 0; i < 50 && keeps_it_long && waiting; ++i) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
            }
        });
        while (!owned) {
            std::this_thread::yield();
        }
        waiting = true;
        {
            MutexLock lock(mutex);
            got = true;
        }
        owner.join();
    }
}

TEST(Mutex, TryLockFailsWhileAnotherThreadHoldsIt) {
    host::Mutex mutex(LockClass::leaf);
    if (!mutex.try_lock()) {
        FAIL() << "a free mutex can be taken";
    }
    std::thread([&mutex] {
        const bool locked = mutex.try_lock();
        EXPECT_FALSE(locked);
        if (locked) {
            mutex.unlock();
        }
    }).join();
    mutex.unlock();
}

TEST(SharedMutex, LetsReadersInTogetherAndWritersAlone) {
    host::SharedMutex mutex(LockClass::leaf);
    mutex.lock_shared();
    std::thread([&mutex] {
        const bool exclusive = mutex.try_lock();
        EXPECT_FALSE(exclusive);
        if (exclusive) {
            mutex.unlock();
        }
        const bool shared = mutex.try_lock_shared();
        EXPECT_TRUE(shared);
        if (shared) {
            mutex.unlock_shared();
        }
    }).join();
    mutex.unlock_shared();

    mutex.lock();
    std::thread([&mutex] {
        const bool shared = mutex.try_lock_shared();
        EXPECT_FALSE(shared);
        if (shared) {
            mutex.unlock_shared();
        }
    }).join();
    mutex.unlock();
}

TEST(SharedMutex, GuardsData) {
    host::SharedMutex mutex(LockClass::leaf);
    int first = 0;
    int second = 0;
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 1000; ++i) {
                if (t == 0) {
                    ExclusiveLock lock(mutex);
                    ++first;
                    ++second;
                } else {
                    SharedLock lock(mutex);
                    EXPECT_EQ(first, second);
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(second, 1000);
}

// Two readers hold the lock in turns that overlap, so that it is never free: a writer gets in all
// the same, since readers stop coming while it waits.
TEST(SharedMutex, WritersAreNotStarved) {
    host::SharedMutex mutex(LockClass::leaf);
    std::atomic<bool> written{false};
    std::atomic<int> inside{0};
    std::vector<std::thread> readers;
    readers.reserve(4);
    for (int t = 0; t < 3; ++t) {
        readers.emplace_back([&] {
            while (!written) {
                SharedLock lock(mutex);
                ++inside;
                // Stay until another reader has come, or the writer's turn has been seen to.
                for (int i = 0; i < 1000 && inside < 2 && !written; ++i) {
                    std::this_thread::yield();
                }
                --inside;
            }
        });
    }
    {
        ExclusiveLock lock(mutex);
        EXPECT_EQ(inside, 0);
        written = true;
    }
    for (std::thread& reader : readers) {
        reader.join();
    }
}

TEST(Condition, WakesAWaiter) {
    Counter counter;
    std::thread thread([&counter] {
        MutexLock lock(counter.mutex);
        counter.value = 1;
        counter.changed.notify_one();
        while (counter.value != 2) {
            counter.changed.wait(counter.mutex);
        }
    });
    {
        MutexLock lock(counter.mutex);
        while (counter.value != 1) {
            counter.changed.wait(counter.mutex);
        }
        counter.value = 2;
        counter.changed.notify_all();
    }
    thread.join();
}

TEST(Condition, TimesOut) {
    Counter counter;
    MutexLock lock(counter.mutex);
    const uint64_t start_ns = host::monotonic_ns();
    bool notified = true;
    while (notified) {
        notified = counter.changed.wait_for(counter.mutex, 2000);
    }
    EXPECT_GE(host::monotonic_ns() - start_ns, 2000000U) << "waited less than it was asked to";
}

TEST(Condition, WaitsForEverWithTheLargestTimeout) {
    Counter counter;
    std::thread thread([&counter] {
        MutexLock lock(counter.mutex);
        counter.value = 1;
        counter.changed.notify_one();
    });
    {
        MutexLock lock(counter.mutex);
        while (counter.value != 1) {
            EXPECT_TRUE(counter.changed.wait_for(counter.mutex, UINT64_MAX));
        }
    }
    thread.join();
}

TEST(Semaphore, CountsPermits) {
    host::Semaphore permits(2);
    permits.wait();
    permits.wait();
    std::atomic<bool> posting{false};
    std::thread thread([&] {
        posting = true;
        permits.post();
    });
    permits.wait();
    EXPECT_TRUE(posting) << "a wait came back without a count to take";
    thread.join();
}

// As a completion of I/O and the thread that sleeps on its stack until it comes.
TEST(Semaphore, MayBeDestroyedByItsWaiter) {
    std::atomic<host::Semaphore*> waiting{nullptr};
    constexpr int kRounds = 2000;
    std::thread thread([&] {
        for (int i = 0; i < kRounds; ++i) {
            host::Semaphore* semaphore = nullptr;
            while ((semaphore = waiting.exchange(nullptr)) == nullptr) {
                std::this_thread::yield();
            }
            semaphore->post();
        }
    });
    for (int i = 0; i < kRounds; ++i) {
        auto semaphore = std::make_unique<host::Semaphore>();
        waiting = semaphore.get();
        semaphore->wait();
    }
    thread.join();
}

// ---- The checker ---------------------------------------------------------------------------

class HeldLocksTest : public testing::Test {
  protected:
    // The reason not to wait for the lock, "" when it is allowed.
    std::string refusal(const HeldLocks::Lock& lock) {
        char reason[200] = "";
        return held_.may_wait_for(lock, reason, sizeof reason) ? "" : reason;
    }

    HeldLocks held_;
    int a_ = 0;
    int b_ = 0;
    int c_ = 0;
};

TEST_F(HeldLocksTest, AllowsGreaterClasses) {
    EXPECT_EQ(refusal({&a_, LockClass::leaf, 0}), "");
    ASSERT_TRUE(held_.add({&a_, LockClass::tree_node, 3}));
    EXPECT_EQ(refusal({&b_, LockClass::node_cache, 0}), "");
    EXPECT_EQ(refusal({&b_, LockClass::leaf, 0}), "");
}

TEST_F(HeldLocksTest, RefusesSmallerClassesByName) {
    ASSERT_TRUE(held_.add({&a_, LockClass::tree_node, 3}));
    const std::string reason = refusal({&b_, LockClass::object_state, 7});
    EXPECT_NE(reason.find("class object_state (level 7)"), std::string::npos) << reason;
    EXPECT_NE(reason.find("class tree_node (level 3)"), std::string::npos) << reason;
}

TEST_F(HeldLocksTest, WithinAClassLevelsGrow) {
    ASSERT_TRUE(held_.add({&a_, LockClass::tree_node, 3}));
    EXPECT_EQ(refusal({&b_, LockClass::tree_node, 4}), "");
    EXPECT_NE(refusal({&b_, LockClass::tree_node, 3}), "");
    EXPECT_NE(refusal({&b_, LockClass::tree_node, 2}), "");
}

TEST_F(HeldLocksTest, ALeafTakesNothing) {
    ASSERT_TRUE(held_.add({&a_, LockClass::leaf, 0}));
    EXPECT_NE(refusal({&b_, LockClass::leaf, 1}), "");
}

TEST_F(HeldLocksTest, LooksAtAllHeldLocks) {
    // The second was taken by try_lock, out of order.
    ASSERT_TRUE(held_.add({&a_, LockClass::allocator, 0}));
    ASSERT_TRUE(held_.add({&b_, LockClass::rename, 0}));
    EXPECT_NE(refusal({&c_, LockClass::tree_root, 0}), "");
    ASSERT_TRUE(held_.remove(&a_));
    EXPECT_EQ(refusal({&c_, LockClass::tree_root, 0}), "");
}

TEST_F(HeldLocksTest, NothingIsRecursive) {
    ASSERT_TRUE(held_.add({&a_, LockClass::tree_node, 1}));
    EXPECT_NE(refusal({&a_, LockClass::tree_node, 2}), "");
    EXPECT_FALSE(held_.add({&a_, LockClass::tree_node, 2}));
}

TEST_F(HeldLocksTest, ForgetsWhatIsReleased) {
    ASSERT_TRUE(held_.add({&a_, LockClass::tree_node, 1}));
    ASSERT_TRUE(held_.add({&b_, LockClass::tree_node, 2}));
    EXPECT_TRUE(held_.remove(&a_));
    EXPECT_FALSE(held_.remove(&a_));
    EXPECT_EQ(held_.count(), 1U);
    EXPECT_EQ(refusal({&a_, LockClass::tree_node, 3}), "");
    EXPECT_TRUE(held_.remove(&b_));
    EXPECT_EQ(refusal({&a_, LockClass::session, 0}), "");
}

TEST_F(HeldLocksTest, HasABound) {
    static char addresses[HeldLocks::kMaxLocks + 1];
    for (size_t i = 0; i < HeldLocks::kMaxLocks; ++i) {
        ASSERT_TRUE(held_.add({&addresses[i], LockClass::tree_node, i}));
    }
    EXPECT_FALSE(held_.add({&addresses[HeldLocks::kMaxLocks], LockClass::leaf, 0}));
}

TEST(LockClassName, NamesEveryClass) {
    EXPECT_STREQ(lock_class_name(LockClass::session), "session");
    EXPECT_STREQ(lock_class_name(LockClass::tree_node), "tree_node");
    EXPECT_STREQ(lock_class_name(LockClass::journal_commit), "journal_commit");
    EXPECT_STREQ(lock_class_name(LockClass::leaf), "leaf");
}

// ---- The checker at work ---------------------------------------------------------------------

// Legal sequences, which must pass in every build.
TEST(LockOrder, DescendsATreeHandOverHand) {
    host::SharedMutex root(LockClass::tree_node);
    host::SharedMutex middle(LockClass::tree_node);
    host::SharedMutex leaf(LockClass::tree_node);
    for (int i = 0; i < 2; ++i) {
        root.lock_shared(0);
        middle.lock_shared(1);
        root.unlock_shared();
        leaf.lock(2);
        middle.unlock_shared();
        leaf.unlock();
    }
}

TEST(LockOrder, WaitingReleasesTheMutex) {
    host::Mutex gate(LockClass::transaction);
    host::Condition never;
    gate.lock();
    (void)never.wait_for(gate, 1);
    host::Mutex later(LockClass::allocator);
    later.lock();
    later.unlock();
    gate.unlock();
    host::Mutex earlier(LockClass::rename);
    earlier.lock();
    earlier.unlock();
}

// The bodies of the death tests: each breaks the order on purpose, also for the static analysis.
NO_THREAD_SAFETY_ANALYSIS void take_smaller_class() {
    host::Mutex allocator(LockClass::allocator);
    host::SharedMutex tree(LockClass::tree_root);
    allocator.lock();
    tree.lock_shared();
    tree.unlock_shared();
    allocator.unlock();
}

NO_THREAD_SAFETY_ANALYSIS void take_same_class_twice() {
    host::Mutex first(LockClass::allocator_group);
    host::Mutex second(LockClass::allocator_group);
    first.lock();
    second.lock();
    second.unlock();
    first.unlock();
}

NO_THREAD_SAFETY_ANALYSIS void climb_the_tree() {
    host::SharedMutex upper(LockClass::tree_node);
    host::SharedMutex lower(LockClass::tree_node);
    lower.lock(5);
    upper.lock_shared(4);
    upper.unlock_shared();
    lower.unlock();
}

NO_THREAD_SAFETY_ANALYSIS void wait_with_a_greater_lock() {
    host::Mutex gate(LockClass::transaction);
    host::Mutex greater(LockClass::allocator);
    host::Condition condition;
    gate.lock();
    greater.lock();
    (void)condition.wait_for(gate, 1);
    greater.unlock();
    gate.unlock();
}

NO_THREAD_SAFETY_ANALYSIS void release_what_is_not_held() {
    host::SharedMutex mutex(LockClass::leaf);
    mutex.lock();
    std::thread([&mutex]() NO_THREAD_SAFETY_ANALYSIS { mutex.unlock(); }).join();
}

TEST(LockOrderDeathTest, ViolationsPanicWhereTheOrderIsChecked) {
    if (!lock_order_is_checked()) {
        // Without the checker these are harmless in a single thread, and cost nothing.
        take_smaller_class();
        take_same_class_twice();
        climb_the_tree();
        wait_with_a_greater_lock();
        return;
    }
    EXPECT_DEATH(take_smaller_class(), "class tree_root .* while it holds one of class allocator");
    EXPECT_DEATH(take_same_class_twice(), "class allocator_group .* one of class allocator_group");
    EXPECT_DEATH(climb_the_tree(), "tree_node .level 4. while it holds .* tree_node .level 5.");
    EXPECT_DEATH(wait_with_a_greater_lock(), "class transaction .* one of class allocator");
    EXPECT_DEATH(release_what_is_not_held(), "releases a lock that it does not hold");
}

}  // namespace
}  // namespace tiffin::fuse
