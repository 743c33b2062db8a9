// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Power failures. A workload is run once on a recording device; then the power fails at every write and
// every flush of it, with all that a device may then have lost, kept or torn, and each time
//   - the checker finds nothing in what is left,
//   - the volume mounts,
//   - what is visible is exactly what was visible after one of the steps, none earlier than the last
//     one that had been acknowledged as durable and none later than the one under way,
//   - and after that the checker finds nothing either.
// So everything that was fsynced is there, nothing is half done, and renames are atomic.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/host/log_sink.h"
#include "tests/crash/recovery.h"
#include "tests/crash/workload.h"
#include "tests/support/test_size.h"

namespace tiffin::test {
namespace {

// TIFFIN_CRASH_WORKLOADS=N tries N random workloads instead of a few, for a long search.
uint64_t random_workloads() {
    const char* wanted = std::getenv("TIFFIN_CRASH_WORKLOADS");
    return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 3;
}

std::function<std::string(const SeenTree&)> one_of(const std::vector<Step>& steps,
                                                   AllowedSteps allowed) {
    return [&steps, allowed](const SeenTree& seen) -> std::string {
        for (size_t i = allowed.first; i <= allowed.last; ++i) {
            if (steps[i].visible == seen) {
                return {};
            }
        }
        return "compared with the last durable step (" + steps[allowed.first].text +
               "): " + difference(steps[allowed.first].visible, seen) +
               "; compared with the step under way (" + steps[allowed.last].text +
               "): " + difference(steps[allowed.last].visible, seen);
    };
}

class Crash : public testing::TestWithParam<Unit> {
  protected:
    // Fails the power at every `stride`th change of the workload.
    void fail_power_everywhere(RecordedWorkload workload, size_t stride) {
        CrashReplay replay(std::move(workload.recording));
        uint64_t seed = 1;
        do {
            if (replay.position() % stride != 0) {
                continue;
            }
            const AllowedSteps allowed = allowed_steps(workload.steps, replay.position());
            for (const CrashOutcome outcome : kCrashOutcomes) {
                auto device = replay.after_crash(outcome, ++seed);
                ASSERT_EQ(check_and_recover(*device, one_of(workload.steps, allowed), &met_), "")
                    << "at change " << replay.position() << " of " << replay.size() << ", outcome "
                    << static_cast<int>(outcome) << ", seed " << seed;
            }
        } while (replay.advance());
    }

    // Fails the power at every `stride`th change and destroys one copy or one slot of the superblock as well; returns
    // how often it was a slot.
    size_t destroy_superblocks(RecordedWorkload workload, size_t stride) {
        CrashReplay replay(std::move(workload.recording));
        uint64_t seed = 1;
        size_t slots_destroyed = 0;
        do {
            if (replay.position() % stride != 0) {
                continue;
            }
            const AllowedSteps allowed = allowed_steps(workload.steps, replay.position());
            // Copies 0 and 1 of slot A, of slot B, both of A, both of B.
            for (int victim = 0; victim < 6; ++victim) {
                auto device = replay.after_crash(CrashOutcome::keep_completed, ++seed);
                const uint64_t slot = victim < 4 ? victim / 2 : victim - 4;
                unsigned char block_of_first[tiffinfs::kBlockBytes];
                EXPECT_TRUE(
                    device
                        ->read(slot * tiffinfs::kBlockBytes, block_of_first, sizeof block_of_first)
                        .ok());
                tiffinfs::Superblock first;
                std::memcpy(&first, block_of_first, sizeof first);
                for (uint32_t copy = 0; copy < 2; ++copy) {
                    const uint64_t block =
                        tiffinfs::superblock_block(first.total_blocks, slot, copy);
                    if ((victim >= 4 || static_cast<int>(copy) == victim % 2) &&
                        (copy == 0 || first.magic == tiffinfs::kSuperblockMagic)) {
                        device->flip_bit(block * tiffinfs::kBlockBytes + 150, 1);
                    }
                }
                tiffinfs::SuperblockSet left;
                EXPECT_TRUE(tiffinfs::read_superblocks(*device, left).ok());
                if (left.count == 0) {
                    continue;  // the other slot has never been written, or is just being written
                }
                slots_destroyed += victim >= 4 ? 1 : 0;
                const std::string wrong = recover(*device, one_of(workload.steps, allowed));
                EXPECT_EQ(wrong, "") << "at change " << replay.position() << ", victim " << victim;
                if (!wrong.empty()) {
                    return slots_destroyed;
                }
            }
        } while (replay.advance());
        return slots_destroyed;
    }

    Met met_;
    fuse::CapturedLog log_;
};

TEST_P(Crash, ScriptAtEveryWrite) {
    fail_power_everywhere(run_script(GetParam().geometry()), is_reduced() ? 7 : 1);
    EXPECT_GT(met_.journals, 0U);
}

TEST_P(Crash, LongOperations) {
    fail_power_everywhere(run_long_operations(GetParam().geometry()), is_reduced() ? 40 : 10);
    if (HasFatalFailure() || is_reduced()) {
        return;  // every 40th change is too few to meet both for sure
    }
    EXPECT_GT(met_.orphans, 0U);
    EXPECT_GT(met_.intents, 0U);
}

TEST_P(Crash, RandomWorkloads) {
    for (uint64_t seed = 1; seed <= random_workloads(); ++seed) {
        SCOPED_TRACE("workload seed " + std::to_string(seed));
        fail_power_everywhere(run_random(GetParam().geometry(), seed, is_reduced() ? 60 : 250),
                              is_reduced() ? 41 : 13);
        if (HasFatalFailure()) {
            return;
        }
    }
}

// The mount after a crash may be interrupted as well.
TEST_P(Crash, WhileRecovering) {
    RecordedWorkload workload = run_script(GetParam().geometry());
    CrashReplay replay(std::move(workload.recording));
    const size_t stride = replay.size() / (is_reduced() ? 3 : 12) + 1;
    uint64_t seed = 1;
    do {
        if (replay.position() % stride != stride - 1) {
            continue;
        }
        const AllowedSteps allowed = allowed_steps(workload.steps, replay.position());
        auto device = replay.after_crash(CrashOutcome::keep_random_units, ++seed);
        device->start_recording();
        ASSERT_EQ(recover(*device, one_of(workload.steps, allowed)), "");
        CrashReplay second(device->take_recording());
        // Which of the allowed states it is has been decided by the first mount.
        do {
            for (const CrashOutcome outcome :
                 {CrashOutcome::drop_unflushed, CrashOutcome::keep_random_units}) {
                auto again = second.after_crash(outcome, ++seed);
                ASSERT_EQ(check_and_recover(*again, one_of(workload.steps, allowed), nullptr), "")
                    << "at change " << replay.position() << ", then at change " << second.position()
                    << " of the recovery";
            }
        } while (second.advance());
    } while (replay.advance());
}

// One copy or one slot of the superblock is destroyed as well: nothing that was acknowledged is lost.
TEST_P(Crash, WithADamagedSuperblock) {
    EXPECT_GE(destroy_superblocks(run_script(GetParam().geometry()), is_reduced() ? 11 : 5), 3U);
}

// Within the last group, and into further ones.
TEST_P(Crash, WhileGrowing) {
    constexpr uint64_t kMiB = 1U << 20;
    struct Growth {
        uint64_t from_bytes;
        uint64_t to_bytes;
    };
    uint64_t seed = 0;
    for (const Growth& growth : {Growth{9 * kMiB, 13 * kMiB}, Growth{63 * kMiB, 130 * kMiB},
                                 Growth{66 * kMiB, 70 * kMiB}}) {
        SCOPED_TRACE("from " + std::to_string(growth.from_bytes));
        vfs::DeviceGeometry geometry = GetParam().geometry();
        geometry.size_bytes = growth.to_bytes;
        ++seed;
        fail_power_everywhere(run_growth(geometry, growth.from_bytes, seed), is_reduced() ? 11 : 1);
        if (HasFatalFailure()) {
            return;
        }
        EXPECT_GT(destroy_superblocks(run_growth(geometry, growth.from_bytes, seed),
                                      is_reduced() ? 11 : 1),
                  0U);
        if (HasFailure()) {
            return;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Units, Crash,
                         testing::Values(Unit{512, true}, Unit{512, false}, Unit{64, true},
                                         Unit{64, false}, Unit{4096, true}, Unit{4096, false}),
                         [](const auto& unit) { return unit.param.name(); });

}  // namespace
}  // namespace tiffin::test
