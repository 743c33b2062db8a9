// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: a mounted volume takes into use what its device has gained, whatever else goes on, and says why when it
// cannot; the checker and the next mount agree. Power failures meanwhile are in tests/crash.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/check.h"
#include "fuse/host/allocation_hooks.h"
#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/support/findings.h"
#include "tests/support/test_size.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"

namespace tiffin::tiffinfs {
namespace {

using test::CrashDevice;
using test::findings_of;
using test::test_content;
using test::TestVolume;

// Writes files of 1 MiB until there is no room; returns how many.
uint64_t fill(TestVolume& volume, const std::string& prefix) {
    for (uint64_t count = 0;; ++count) {
        const Result<void> written =
            volume.write("/" + prefix + std::to_string(count), 0, test_content(count, kMiB));
        if (!written.ok()) {
            EXPECT_EQ(written.error(), Error::enospc);
            return count;
        }
    }
}

void expect_content(TestVolume& volume, const std::string& prefix, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        EXPECT_EQ(MUST(volume.read("/" + prefix + std::to_string(i))), test_content(i, kMiB)) << i;
    }
}

// Made with the first size and mounted; the device has the second one, and shows it when it is told to.
struct SmallVolume {
    SmallVolume(uint64_t bytes, uint64_t device_bytes) : device(device_bytes), volume(device) {
        device.end_at(bytes);
        MUST(volume.make());
        MUST(volume.mount());
    }

    CrashDevice device;
    TestVolume volume;
};

struct Sizes {
    uint64_t from_bytes;
    uint64_t to_bytes;
    bool full;  // before it grows

    friend void PrintTo(const Sizes& sizes, std::ostream* out) {
        *out << sizes.from_bytes << " to " << sizes.to_bytes << (sizes.full ? ", full" : "");
    }
};

class Grow : public testing::TestWithParam<Sizes> {
  protected:
    fuse::CapturedLog log_;
};

TEST_P(Grow, GivesTheRoom) {
    const Sizes& sizes = GetParam();
    SmallVolume made(sizes.from_bytes, sizes.to_bytes);
    CrashDevice& device = made.device;
    TestVolume& volume = made.volume;
    const uint64_t before = sizes.full ? fill(volume, "a") : 0;
    const vfs::FileSystemStatistics small = MUST(volume.file_system().statistics());

    device.end_at(sizes.to_bytes);
    const vfs::Growth growth = MUST(volume.file_system().grow());
    EXPECT_EQ(growth.from_bytes, sizes.from_bytes);
    EXPECT_EQ(growth.to_bytes, sizes.to_bytes);
    const vfs::FileSystemStatistics large = MUST(volume.file_system().statistics());
    const uint64_t gained = (sizes.to_bytes - sizes.from_bytes) / kBlockBytes -
                            2 * (group_count(sizes.to_bytes / kBlockBytes) -
                                 group_count(sizes.from_bytes / kBlockBytes));
    EXPECT_EQ(large.total_blocks - small.total_blocks, gained);
    EXPECT_EQ(large.free_blocks - small.free_blocks, gained);

    const uint64_t after = fill(volume, "b");
    // All but what is in reserve, which is larger in a larger volume, and what the tree needs.
    EXPECT_GE((after + 3) * kMiB,
              large.available_blocks * kBlockBytes - large.available_blocks * kBlockBytes / 50);
    // Nodes of the tree are in the room that was added by now.
    MUST(static_cast<TiffinFileSystem&>(volume.file_system()).volume().checkpoint());
    EXPECT_EQ(test::scrub(volume.file_system()).errors_found, 0U);
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device, check::Severity::note), "");
    MUST(volume.mount());
    expect_content(volume, "a", before);
    expect_content(volume, "b", after);
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device, check::Severity::note), "");
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Grow,
    testing::Values(Sizes{9 * kMiB, 10 * kMiB, true}, Sizes{9 * kMiB, 64 * kMiB, true},
                    Sizes{9 * kMiB, 66 * kMiB, true}, Sizes{64 * kMiB, 200 * kMiB, true},
                    Sizes{66 * kMiB, 100 * kMiB, true}, Sizes{66 * kMiB, 200 * kMiB, false}),
    [](const auto& sizes) {
        return std::to_string(sizes.param.from_bytes / kMiB) + "To" +
               std::to_string(sizes.param.to_bytes / kMiB) + (sizes.param.full ? "Full" : "Empty");
    });

// The first of a growth's two checkpoints is durable; files change before the second, and in it power fails, on a
// device that is longer still. The superblock of the first one is lost in its first copy: the second one is found, as
// nothing older is whole any more.
TEST(GrowVolume, NeedsNoFirstCopy) {
    fuse::CapturedLog log;
    bool half_grown = false;
    for (uint64_t number = 1; !half_grown; ++number) {
        SmallVolume made(12 * kMiB, 40 * kMiB);
        CrashDevice& device = made.device;
        TestVolume& volume = made.volume;
        Volume& engine = static_cast<TiffinFileSystem&>(volume.file_system()).volume();
        MUST(volume.write("/a", 0, test_content(1, 20 * kBlockBytes)));
        MUST(volume.sync());
        device.end_at(20 * kMiB);
        {
            fuse::AllocationWatch watch;
            watch.fail_allocation(number);
            ASSERT_FALSE(volume.file_system().grow().ok());
        }
        SuperblockSet set;
        MUST(read_superblocks(device, set));
        const Superblock newest = set.found[0];
        half_grown = newest.total_blocks == 20 * kMiB / kBlockBytes;
        if (!half_grown) {
            continue;
        }
        MUST(volume.write("/b", 0, test_content(2, 20 * kBlockBytes)));
        MUST(volume.sync());
        device.start_recording();
        MUST(engine.checkpoint());
        volume.abandon();
        test::CrashReplay replay(device.take_recording());
        do {
            auto after = replay.after_crash(test::CrashOutcome::keep_completed, 1);
            after->flip_bit(superblock_block(0, newest.generation, 0) * kBlockBytes, 1);
            TestVolume again(*after);
            ASSERT_TRUE(again.mount().ok()) << "change " << replay.position();
            EXPECT_EQ(MUST(again.read("/a")), test_content(1, 20 * kBlockBytes));
            EXPECT_EQ(MUST(again.read("/b")), test_content(2, 20 * kBlockBytes));
            EXPECT_TRUE(again.unmount().ok());
            EXPECT_EQ(findings_of(*after), "") << "change " << replay.position();
        } while (replay.advance());
    }
}

MakeOptions sized(uint64_t volume_bytes) {
    MakeOptions options;
    options.volume_bytes = volume_bytes;
    return options;
}

// mkfs may make a volume smaller than its device. What an older one left at the device's end is not found, even where the
// first copies of the superblocks are lost.
TEST(GrowVolume, AlsoWhereItWasMadeSmallerThanItsDevice) {
    CrashDevice device(64 * kMiB);
    TestVolume volume(device);
    MUST(volume.make());
    MUST(volume.mount());
    const uint64_t old_count = fill(volume, "old");
    MUST(volume.unmount());
    EXPECT_EQ(make_file_system(device, sized(64 * kMiB + kBlockBytes)).error(), Error::einval);
    MUST(volume.mount());
    expect_content(volume, "old", old_count);
    MUST(volume.unmount());

    MUST(make_file_system(device, sized(20 * kMiB)));
    MUST(volume.mount());
    const uint64_t count = fill(volume, "new");
    EXPECT_LT(count, 20U);
    EXPECT_EQ(MUST(volume.file_system().grow()).to_bytes, 64 * kMiB);
    EXPECT_GT(fill(volume, "more"), 30U);
    expect_content(volume, "new", count);
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device), "");

    MUST(make_file_system(device, sized(20 * kMiB)));
    const std::string zeros(2 * kBlockBytes, '\0');
    device.overwrite(0, zeros.data(), zeros.size());
    Superblock superblock;
    EXPECT_EQ(read_superblock(device, superblock).error(), Error::einval);
}

// ... nor where the end of the device belongs to no volume of its size.
TEST(MakeFileSystem, LeavesNoSuperblockOfALargerVolume) {
    CrashDevice device(128 * kMiB + 4 * kBlockBytes);
    TestVolume volume(device);
    MUST(make_file_system(device, sized(0)));
    for (int i = 0; i < 2; ++i) {
        MUST(volume.mount());
        MUST(volume.write("/old", 0, "text"));
        MUST(volume.unmount());
    }
    MUST(make_file_system(device, sized(20 * kMiB)));
    const std::string zeros(2 * kBlockBytes, '\0');
    device.overwrite(0, zeros.data(), zeros.size());
    Superblock superblock;
    EXPECT_EQ(read_superblock(device, superblock).error(), Error::einval);
}

TEST(GrowVolume, HasNothingToDoWhereNothingWasGained) {
    fuse::CapturedLog log;
    SmallVolume made(10 * kMiB, 20 * kMiB);
    CrashDevice& device = made.device;
    TestVolume& volume = made.volume;
    // Less than 1 MiB is not worth it: the places of old and new superblocks would overlap.
    for (const uint64_t gained : {uint64_t{0}, uint64_t{kBlockBytes}, kMiB - kBlockBytes}) {
        device.end_at(10 * kMiB + gained);
        const vfs::Growth growth = MUST(volume.file_system().grow());
        EXPECT_EQ(growth.from_bytes, 10 * kMiB);
        EXPECT_EQ(growth.to_bytes, 10 * kMiB);
    }
    MUST(volume.file_system().remount(true));
    device.end_at(20 * kMiB);
    EXPECT_EQ(volume.file_system().grow().error(), Error::erofs);
}

TEST(GrowVolume, WhileOthersWriteAndDelete) {
    fuse::CapturedLog log;
    SmallVolume made(20 * kMiB, 300 * kMiB);
    CrashDevice& device = made.device;
    TestVolume& volume = made.volume;
    constexpr uint32_t kThreads = 3;
    std::atomic<bool> stop{false};
    std::atomic<uint32_t> rounds{0};
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, i] {
            const std::string path = "/" + std::to_string(i);
            for (uint64_t number = 0; !stop.load(); ++number) {
                const std::string content = test_content(number, 64 * kBlockBytes + number % 5000);
                const Result<void> written = volume.write(path, 0, content);
                ASSERT_TRUE(written.ok() || written.error() == Error::enospc);
                if (written.ok()) {
                    ASSERT_EQ(MUST(volume.read(path)).substr(0, content.size()), content);
                }
                const Result<void> deleted = volume.unlink(path);
                ASSERT_TRUE(deleted.ok() || deleted.error() == Error::enoent);
                ++rounds;
            }
        });
    }
    const uint64_t most = test::test_size(300, 300, 100) * kMiB;
    for (uint64_t size = 25 * kMiB; size <= most; size += 25 * kMiB) {
        device.end_at(size);
        EXPECT_EQ(MUST(volume.file_system().grow()).to_bytes, size);
        for (const uint32_t seen = rounds; rounds < seen + 4 && !testing::Test::HasFailure();) {
            std::this_thread::yield();
        }
    }
    stop = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    fill(volume, "a");
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device, check::Severity::note), "");
}

// Whatever allocation fails: it is asked again and done, or the next mount has the old size or the new one.
TEST(GrowVolume, AllocationFailures) {
    fuse::CapturedLog log;
    uint64_t failed = 0;
    for (uint64_t number = 1;; ++number) {
        SCOPED_TRACE("allocation " + std::to_string(number));
        SmallVolume made(20 * kMiB, 80 * kMiB);
        CrashDevice& device = made.device;
        TestVolume& volume = made.volume;
        MUST(volume.write("/file", 0, "text"));
        device.end_at(80 * kMiB);
        Result<vfs::Growth> grown = [&] {
            fuse::AllocationWatch watch;
            watch.fail_allocation(number);
            return volume.file_system().grow();
        }();
        const bool done = grown.ok();
        if (!done) {
            ++failed;
            EXPECT_EQ(grown.error(), Error::enomem);
            MUST(volume.write("/other", 0, test_content(1, 3 * kMiB)));
            if (number % 2 == 0) {
                EXPECT_EQ(MUST(volume.file_system().grow()).to_bytes, 80 * kMiB);
                MUST(volume.write("/large", 0, test_content(2, 15 * kMiB)));
            }
        }
        MUST(volume.unmount());
        EXPECT_EQ(findings_of(device, check::Severity::note), "");
        MUST(volume.mount());
        EXPECT_EQ(MUST(volume.read("/file")), "text");
        EXPECT_EQ(MUST(volume.file_system().grow()).to_bytes, 80 * kMiB);
        MUST(volume.unmount());
        if (done) {
            break;
        }
    }
    EXPECT_GT(failed, 3U);
}

// One that is not finished takes no room away: the reserves are those of the size that can be used.
TEST(GrowVolume, AFailedGrowthLeavesTheRoomThereWas) {
    fuse::CapturedLog log;
    for (uint64_t number = 1;; ++number) {
        SCOPED_TRACE("allocation " + std::to_string(number));
        SmallVolume made(20 * kMiB, 600 * kMiB);
        TestVolume& volume = made.volume;
        auto& file_system = static_cast<TiffinFileSystem&>(volume.file_system());
        made.device.end_at(600 * kMiB);
        const bool done = [&] {
            fuse::AllocationWatch watch;
            watch.fail_allocation(number);
            return volume.file_system().grow().ok();
        }();
        MUST(file_system.volume().checkpoint());
        MUST(volume.write("/other", 0, test_content(1, 64 << 10)));
        MUST(volume.file_system().promise(16));
        volume.file_system().return_promise(16);
        if (done) {
            break;
        }
    }
}

// The bitmap at the old end has to be changed, so it has to be known.
TEST(GrowVolume, RefusesADamagedEnd) {
    fuse::CapturedLog log;
    SmallVolume made(80 * kMiB, 100 * kMiB);
    CrashDevice& device = made.device;
    TestVolume& volume = made.volume;
    fill(volume, "a");
    MUST(volume.unmount());
    for (uint64_t slot = 0; slot < 2; ++slot) {
        device.flip_bit(bitmap_block(1, slot) * kBlockBytes + 200, 1);
    }
    MUST(volume.mount());
    device.end_at(100 * kMiB);
    EXPECT_EQ(volume.file_system().grow().error(), Error::euclean);
    MUST(volume.unmount());
    const check::Report report = check::check_file_system(device, {.repair = true});
    EXPECT_GT(report.damage + report.harmless, 0U);
    MUST(volume.mount());
    EXPECT_EQ(MUST(volume.file_system().grow()).to_bytes, 100 * kMiB);
    MUST(volume.unmount());
    EXPECT_EQ(findings_of(device, check::Severity::note), "");
}

}  // namespace
}  // namespace tiffin::tiffinfs
