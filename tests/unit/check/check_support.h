// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the tests of the checker share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "fuse/check/check.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_volume.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {

inline constexpr uint64_t kDeviceBytes = 64U << 20;

// All findings, a line each.
std::string text_of(const Report& report);

Report run_check(vfs::BlockDevice& device, const CheckOptions& options = {});
// As `fsck.tiffin -p`.
CheckOptions only_what_is_safe();

// Makes a file system with one of everything and `files` small files more, and unmounts it.
void make_populated(test::CrashDevice& device, uint32_t files);

// The same, unmounted twice, so that both generations have the same content.
void make_settled(test::CrashDevice& device, uint32_t files);

// Destroys the way back to the older generation, so that the tree has to be salvaged.
void forget_older_generation(ImageEditor& editor);
// A file that has its content in its inode's leaf is empty afterwards.
void make_room_in_leaf_of(ImageEditor& editor, uint64_t node);

// A volume with three frames in its journal that is not unmounted: each makes a file, /first, /second
// and /third.
void make_pending(test::CrashDevice& device);
// Damages the second frame of such a volume.
void damage_second_frame(test::CrashDevice& device);

// All that is on the device.
Bytes image_of(test::CrashDevice& device);

// Mounts the volume, and looks at everything in it.
test::SeenTree see(vfs::BlockDevice& device);

// Repairs the volume and expects that a second check finds only_lost_content(), that it mounts, that
// everything in it can be read or gives EIO, and that a third check finds no more. Returns the first report.
// Nothing but what is marked as lost for good.
bool only_lost_content(const Report& report);
Report repair_completely(test::CrashDevice& device);

// Repairs a copy of the volume, and calls look(device, position) for what the power's failure leaves at each of its writes and
// flushes, which it returns the number of. After all of them the volume is clean.
template <typename Look>
size_t interrupt_repair(test::CrashDevice& device, Look look) {
    auto working = device.after_crash(test::CrashOutcome::drop_unflushed, 0);
    working->start_recording();
    EXPECT_EQ(run_check(*working, {.repair = true}).not_repaired, 0U);
    test::CrashReplay replay(working->take_recording());
    const size_t count = replay.size();
    uint64_t seed = 1;
    do {
        for (const test::CrashOutcome outcome : test::kCrashOutcomes) {
            look(*replay.after_crash(outcome, seed++), replay.position());
        }
    } while (replay.advance());
    EXPECT_TRUE(run_check(*replay.after_crash(test::CrashOutcome::drop_unflushed, 0)).clean());
    return count;
}

}  // namespace tiffin::check
