// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/volume/transaction_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/race_pauses.h"

namespace tiffin::tiffinfs {
namespace {

// While it is closed nobody is inside, and who enters afterwards sees what was changed meanwhile.
TEST(TransactionGate, IsClosedForAll) {
    const tiffin::test::RacePauses pauses;
    TransactionGate gate;
    uint64_t generation = 0;  // not atomic: the gate guards it
    std::atomic<int> inside{0};
    std::atomic<uint64_t> mistakes{0};
    std::atomic<bool> stopping{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            uint64_t last = 0;
            while (!stopping) {
                const uint32_t part = gate.enter();
                ++inside;
                mistakes += generation < last ? 1 : 0;
                last = generation;
                std::this_thread::yield();
                mistakes += generation != last ? 1 : 0;
                --inside;
                gate.leave(part);
            }
        });
    }
    for (int i = 0; i < 200; ++i) {
        {
            const ClosedGate closed(gate);
            mistakes += inside != 0 ? 1 : 0;
            ++generation;
            std::this_thread::yield();
            mistakes += inside != 0 ? 1 : 0;
        }
        std::this_thread::yield();
    }
    stopping = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(mistakes, 0U);
    EXPECT_EQ(generation, 200U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
