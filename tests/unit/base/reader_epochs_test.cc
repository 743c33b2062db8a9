// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/base/reader_epochs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/race_pauses.h"

namespace tiffin {
namespace {

TEST(ReaderEpochs, NobodyInsideNeedsNoWaiting) {
    ReaderEpochs epochs;
    for (int i = 0; i < 10; ++i) {
        epochs.synchronize();
        EXPECT_TRUE(epochs.try_synchronize());
        epochs.leave(epochs.enter());
    }
}

TEST(ReaderEpochs, AReaderInsideIsWaitedFor) {
    ReaderEpochs epochs;
    for (int i = 0; i < 5; ++i) {
        const uint32_t reader = epochs.enter();
        EXPECT_FALSE(epochs.try_synchronize());
        EXPECT_FALSE(epochs.try_synchronize());
        EXPECT_FALSE(epochs.try_synchronize());
        epochs.leave(reader);
        EXPECT_TRUE(epochs.try_synchronize());
    }
}

TEST(ReaderEpochs, AGracePeriodIsOverWhenThoseInsideAtItsBeginningHaveLeft) {
    ReaderEpochs epochs;
    // Always somebody inside, never the same for long.
    uint32_t inside = epochs.enter();
    for (int i = 0; i < 20; ++i) {
        const uint64_t grace_period = epochs.begin_grace_period();
        EXPECT_FALSE(epochs.poll_grace_period(grace_period));
        for (int step = 0; step < 2; ++step) {
            const uint32_t next = epochs.enter();
            epochs.leave(inside);
            inside = next;
            (void)epochs.poll_grace_period(grace_period);
        }
        EXPECT_TRUE(epochs.poll_grace_period(grace_period));
        EXPECT_TRUE(epochs.poll_grace_period(grace_period));
    }
    epochs.leave(inside);
}

TEST(ReaderEpochs, ManyReadersOfDifferentAgesAreToldApart) {
    ReaderEpochs epochs;
    std::vector<uint32_t> readers;
    for (int i = 0; i < 100; ++i) {
        readers.push_back(epochs.enter());
        if (i == 50) {
            (void)epochs.try_synchronize();
        }
    }
    const uint64_t grace_period = epochs.begin_grace_period();
    for (uint32_t reader : readers) {
        EXPECT_FALSE(epochs.poll_grace_period(grace_period));
        epochs.leave(reader);
    }
    EXPECT_TRUE(epochs.poll_grace_period(grace_period));
}

TEST(ReaderEpochs, AReaderMayLeaveOnAnotherThread) {
    ReaderEpochs epochs;
    uint32_t reader = epochs.enter();
    std::thread([&] { epochs.leave(reader); }).join();
    EXPECT_TRUE(epochs.try_synchronize());
    std::thread([&] { reader = epochs.enter(); }).join();
    EXPECT_FALSE(epochs.try_synchronize());
    std::thread waiter([&] { epochs.synchronize(); });
    epochs.leave(reader);
    waiter.join();
}

// Writers replace an object and free the old one when the readers have left; a sanitizer sees every
// read of freed memory, and a stamp shows reuse without one.
TEST(ReaderEpochs, NobodyReadsWhatWasFreed) {
    struct Object {
        std::atomic<uint64_t> alive{1};
    };
    const test::RacePauses pauses;
    ReaderEpochs epochs;
    // Freed objects are kept until the end, marked dead.
    std::vector<std::unique_ptr<Object>> objects;
    objects.push_back(std::make_unique<Object>());
    std::atomic<Object*> current{objects.back().get()};
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> dead_reads{0};
    std::atomic<uint64_t> reads{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] {
            while (!stop.load()) {
                const uint32_t token = epochs.enter();
                Object* object = current.load();
                for (int step = 0; step < 50; ++step) {
                    dead_reads += object->alive.load() == 0;
                }
                epochs.leave(token);
                reads.fetch_add(1);
            }
        });
    }
    std::mutex objects_mutex;
    auto replace = [&](bool wait) {
        Object* made;
        {
            std::lock_guard lock(objects_mutex);
            objects.push_back(std::make_unique<Object>());
            made = objects.back().get();
        }
        Object* old = current.exchange(made);
        if (wait) {
            epochs.synchronize();
        } else {
            const uint64_t grace_period = epochs.begin_grace_period();
            while (!epochs.poll_grace_period(grace_period)) {
                std::this_thread::yield();
            }
        }
        old->alive.store(0);
    };
    std::thread writer([&] {
        for (int i = 0; i < 60; ++i) {
            replace(false);
        }
    });
    for (int i = 0; i < 60; ++i) {
        replace(true);
    }
    writer.join();
    while (reads.load() < 100) {
        std::this_thread::yield();
    }
    stop.store(true);
    for (std::thread& reader : readers) {
        reader.join();
    }
    EXPECT_EQ(dead_reads.load(), 0U);
}

}  // namespace
}  // namespace tiffin
