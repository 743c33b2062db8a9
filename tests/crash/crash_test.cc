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
#include <ostream>
#include <string>

#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/check.h"
#include "fuse/host/log_sink.h"
#include "tests/crash/workload.h"
#include "tests/support/test_size.h"

namespace tiffin::test {
namespace {

constexpr uint64_t kDeviceBytes = 16U << 20;

// TIFFIN_CRASH_WORKLOADS=N tries N random workloads instead of a few, for a long search.
uint64_t random_workloads() {
    const char* wanted = std::getenv("TIFFIN_CRASH_WORKLOADS");
    return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 3;
}

struct Unit {
    uint32_t write_unit_bytes;
    bool volatile_cache;

    vfs::DeviceGeometry geometry() const {
        vfs::DeviceGeometry geometry;
        geometry.size_bytes = kDeviceBytes;
        geometry.write_unit_bytes = write_unit_bytes;
        geometry.volatile_cache = volatile_cache;
        geometry.supports_discard = true;
        return geometry;
    }
    friend void PrintTo(const Unit& unit, std::ostream* out) {
        *out << unit.write_unit_bytes << " bytes, "
             << (unit.volatile_cache ? "volatile" : "not volatile");
    }
};

std::string unit_name(const testing::TestParamInfo<Unit>& info) {
    return std::to_string(info.param.write_unit_bytes) + "Bytes" +
           (info.param.volatile_cache ? "Volatile" : "Durable");
}

std::string findings_of(const check::Report& report) {
    std::string text;
    for (const check::Finding& finding : report.findings) {
        text += finding.line() + "\n";
    }
    return text;
}

// Mounts what is left and compares. Empty when all is well, else what is wrong.
std::string recover(CrashDevice& device, const std::vector<Step>& steps, AllowedSteps allowed) {
    TestVolume volume(device);
    if (const Result<void> mounted = volume.mount(); !mounted.ok()) {
        return "mount fails with error " + std::to_string(errno_value(mounted.error()));
    }
    Result<SeenTree> seen = volume.see();
    if (!seen.ok()) {
        return "reading fails with error " + std::to_string(errno_value(seen.error()));
    }
    bool matches = false;
    for (size_t i = allowed.first; i <= allowed.last && !matches; ++i) {
        matches = steps[i].visible == *seen;
    }
    if (!matches) {
        return "compared with the last durable step (" + steps[allowed.first].text +
               "): " + difference(steps[allowed.first].visible, *seen) +
               "; compared with the step under way (" + steps[allowed.last].text +
               "): " + difference(steps[allowed.last].visible, *seen);
    }
    if (!volume.unmount().ok()) {
        return "unmounting fails";
    }
    const check::Report after = check::check_file_system(device, {.verify_data = true});
    return after.findings.empty() ? std::string()
                                  : "after the mount the checker finds\n" + findings_of(after);
}

// What power failures have left, to prove that the rare cases were among them.
struct Met {
    uint64_t journals = 0;
    uint64_t orphans = 0;
    uint64_t intents = 0;
};

std::string check_and_recover(CrashDevice& device, const std::vector<Step>& steps,
                              AllowedSteps allowed, Met* met = nullptr) {
    const check::Report before = check::check_file_system(device, {.verify_data = true});
    if (met != nullptr) {
        met->journals += before.count(check::Code::journal_pending);
        met->orphans += before.statistics.orphans;
        met->intents += before.statistics.intents;
    }
    // A superblock fits a write unit of any disk. Memory may tear it; then a copy can be damaged
    // although the other one says that all is well.
    const bool may_tear = device.geometry().write_unit_bytes < tiffinfs::kSuperblockBytes;
    const uint64_t torn = may_tear ? before.count(check::Code::superblock_copy) : 0;
    if (before.damage != 0 || before.harmless > torn) {
        return "before the mount the checker finds\n" + findings_of(before);
    }
    return recover(device, steps, allowed);
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
                ASSERT_EQ(check_and_recover(*device, workload.steps, allowed, &met_), "")
                    << "at change " << replay.position() << " of " << replay.size() << ", outcome "
                    << static_cast<int>(outcome) << ", seed " << seed;
            }
        } while (replay.advance());
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
        ASSERT_EQ(recover(*device, workload.steps, allowed), "");
        CrashReplay second(device->take_recording());
        // Which of the allowed states it is has been decided by the first mount.
        do {
            for (const CrashOutcome outcome :
                 {CrashOutcome::drop_unflushed, CrashOutcome::keep_random_units}) {
                auto again = second.after_crash(outcome, ++seed);
                ASSERT_EQ(check_and_recover(*again, workload.steps, allowed), "")
                    << "at change " << replay.position() << ", then at change " << second.position()
                    << " of the recovery";
            }
        } while (second.advance());
    } while (replay.advance());
}

// One copy or one slot of the superblock is destroyed as well: nothing that was acknowledged is lost.
TEST_P(Crash, WithADamagedSuperblock) {
    RecordedWorkload workload = run_script(GetParam().geometry());
    CrashReplay replay(std::move(workload.recording));
    const size_t stride = is_reduced() ? 11 : 5;
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
            tiffinfs::SuperblockSet before;
            ASSERT_TRUE(tiffinfs::read_superblocks(*device, before).ok());
            const uint64_t slot = victim < 4 ? victim / 2 : victim - 4;
            for (uint32_t copy = 0; copy < 2; ++copy) {
                if (victim >= 4 || static_cast<int>(copy) == victim % 2) {
                    const uint64_t block = tiffinfs::superblock_block(
                        kDeviceBytes / tiffinfs::kBlockBytes, slot, copy);
                    device->flip_bit(block * tiffinfs::kBlockBytes + 150, 1);
                }
            }
            tiffinfs::SuperblockSet left;
            ASSERT_TRUE(tiffinfs::read_superblocks(*device, left).ok());
            if (left.count == 0) {
                continue;  // the other slot has never been written, or is just being written
            }
            slots_destroyed += victim >= 4 ? 1 : 0;
            ASSERT_EQ(recover(*device, workload.steps, allowed), "")
                << "at change " << replay.position() << ", victim " << victim;
        }
    } while (replay.advance());
    EXPECT_GE(slots_destroyed, 3U);
}

INSTANTIATE_TEST_SUITE_P(Units, Crash,
                         testing::Values(Unit{512, true}, Unit{512, false}, Unit{64, true},
                                         Unit{64, false}, Unit{4096, true}, Unit{4096, false}),
                         unit_name);

}  // namespace
}  // namespace tiffin::test
