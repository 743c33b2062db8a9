// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/support/race_pauses.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "fs/base/race_point.h"

namespace tiffin::test {
namespace {

#if defined(TIFFIN_RACE_POINTS)
std::atomic<uint32_t> sleeps_one_in{1};

// Mostly nothing; now and then the processor goes to another thread, and seldom for longer than most
// operations take.
void pause_at_random() {
    static std::atomic<uint64_t> next_seed{1};
    thread_local uint64_t random = next_seed.fetch_add(0x9e3779b97f4a7c15U);
    random = random * 6364136223846793005U + 1442695040888963407U;
    const uint64_t chance = random >> 33;
    if (chance % sleeps_one_in.load(std::memory_order_relaxed) == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    } else if (chance % 32 == 1) {
        std::this_thread::yield();
    }
}
#endif

}  // namespace

#if defined(TIFFIN_RACE_POINTS)
RacePauses::RacePauses(uint32_t one_in) {
    sleeps_one_in = one_in;
    race_point_hook = pause_at_random;
}
RacePauses::~RacePauses() { race_point_hook = nullptr; }
#else
RacePauses::RacePauses(uint32_t /*one_in*/) {}
RacePauses::~RacePauses() = default;
#endif

}  // namespace tiffin::test
