// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Power failures under several threads that change a volume at once: see thread_workload.h. A run is recorded
// once; then the power fails at many of its writes and flushes, with all that a device may then have
// lost, kept or torn, and each time the checker finds nothing, before and after the mount that recovers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "fuse/host/log_sink.h"
#include "tests/crash/recovery.h"
#include "tests/crash/thread_workload.h"
#include "tests/support/test_size.h"

namespace tiffin::test {
namespace {

constexpr uint32_t kThreads = 4;

// TIFFIN_CRASH_WORKLOADS=N tries N workloads instead of a few, for a long search.
uint64_t workloads() {
    const char* wanted = std::getenv("TIFFIN_CRASH_WORKLOADS");
    return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 2;
}

class CrashThreads : public testing::TestWithParam<Unit> {
  protected:
    void fail_power(uint64_t seed) {
        RecordedThreads recorded =
            run_threads(GetParam().geometry(), seed, kThreads, is_reduced() ? 40 : 100);
        CrashReplay replay(std::move(recorded.recording));
        const size_t stride = replay.size() / (is_reduced() ? 8 : 40) + 1;
        uint64_t outcome_seed = seed * 1'000'000;
        do {
            const bool last = replay.position() == replay.size();
            if (replay.position() % stride != seed % stride && !last) {
                continue;
            }
            for (const CrashOutcome outcome : kCrashOutcomes) {
                auto device = replay.after_crash(outcome, ++outcome_seed);
                const auto judge = [&](const SeenTree& seen) {
                    return judge_threads(recorded, replay.position(), seen);
                };
                ASSERT_EQ(check_and_recover(*device, judge, &met_), "")
                    << "workload seed " << seed << ", at change " << replay.position() << " of "
                    << replay.size() << ", outcome " << static_cast<int>(outcome) << ", seed "
                    << outcome_seed;
                ++failures_;
            }
        } while (replay.advance());
    }

    Met met_;
    uint64_t failures_ = 0;
    fuse::CapturedLog log_;
};

TEST_P(CrashThreads, EachThreadHasWhatItWasPromised) {
    for (uint64_t seed = 1; seed <= workloads(); ++seed) {
        fail_power(seed);
        if (HasFatalFailure()) {
            return;
        }
    }
    EXPECT_GT(failures_, 40U);
    EXPECT_GT(met_.journals, 0U);
}

INSTANTIATE_TEST_SUITE_P(Units, CrashThreads,
                         testing::Values(Unit{512, true}, Unit{64, false}, Unit{4096, true}),
                         [](const auto& unit) { return unit.param.name(); });

}  // namespace
}  // namespace tiffin::test
