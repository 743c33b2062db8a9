// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: an operation that gets no memory fails with enomem and changes nothing that a reader can see; long
// work that is interrupted so is made up for later. Method: each operation is tried, on a fresh mount, with
// its first, second, third... allocation failing, until none is left to fail.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "fuse/host/allocation_hooks.h"
#include "tests/support/test_size.h"
#include "tests/support/units.h"
#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kFragments = 150;
constexpr uint64_t kSmallCacheBytes = 16U << 10;

struct Operation {
    const char* name;
    std::function<int64_t(DataVolume& volume, uint64_t node)> run;
};

class DataMemory : public testing::TestWithParam<Operation> {};

TEST_P(DataMemory, FailuresChangeNothing) {
    DataVolume volume(make_memory_device(64 * kMiB));
    uint64_t node = volume.create("f");
    for (uint64_t i = 0; i < kFragments; ++i) {
        volume.write(node, 2 * i * kBlockBytes, pattern_text(kBlockBytes, i));
    }
    const std::string before = volume.content(node);
    for (uint64_t number = 1; number < 1000; ++number) {
        SCOPED_TRACE("allocation " + std::to_string(number));
        volume.remount();
        node = volume.lookup("f");
        int64_t answer = 0;
        uint64_t failed = 0;
        {
            fuse::AllocationWatch watch;
            watch.fail_allocation(number);
            answer = GetParam().run(volume, node);
            failed = watch.failed_allocations();
        }
        if (answer < 0) {
            ASSERT_EQ(answer, -ENOMEM);
            ASSERT_EQ(failed, 1U);
            std::string content = volume.content(node);
            if (content != before) {
                // Long work had begun when it was interrupted: then it is all done, now and later.
                volume.remount();
                ASSERT_EQ(volume.content(volume.lookup("f")), content);
                break;
            }
            continue;
        }
        // Done, perhaps in spite of the failure.
        break;
    }
    // Growing shows zeros, never what was cut off.
    node = volume.lookup("f");
    std::string content = volume.content(node);
    ASSERT_EQ(volume.truncate(node, 2 * kMiB), 0);
    content.resize(2 * kMiB, '\0');
    EXPECT_TRUE(volume.content(node) == content);
    EXPECT_EQ(volume.check(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Operations, DataMemory,
    testing::Values(
        Operation{"read",
                  [](DataVolume& volume, uint64_t node) {
                      std::string text(100000, '?');
                      int64_t count = volume.read(node, 0, text);
                      return count < 0 ? count : 0;
                  }},
        Operation{"write_block",
                  [](DataVolume& volume, uint64_t node) {
                      return volume.write(node, 8192, std::string(4096, 'w'));
                  }},
        Operation{"write_part",
                  [](DataVolume& volume, uint64_t node) { return volume.write(node, 9000, "w"); }},
        Operation{"write_tiny_buffers",
                  [](DataVolume& volume, uint64_t node) {
                      return volume.write_pieces(node, 5, std::string(50000, 'w'), 7);
                  }},
        Operation{"truncate",
                  [](DataVolume& volume, uint64_t node) { return volume.truncate(node, 5000); }},
        Operation{"truncate_all",
                  [](DataVolume& volume, uint64_t node) { return volume.truncate(node, 0); }},
        Operation{"punch",
                  [](DataVolume& volume, uint64_t node) {
                      return volume.allocate(
                          node, vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size,
                          8192, 4096);
                  }},
        Operation{"collapse",
                  [](DataVolume& volume, uint64_t node) {
                      return volume.allocate(node, vfs::allocate_flag::collapse_range,
                                             4 * kBlockBytes, 100 * kBlockBytes);
                  }},
        Operation{"insert",
                  [](DataVolume& volume, uint64_t node) {
                      return volume.allocate(node, vfs::allocate_flag::insert_range,
                                             4 * kBlockBytes, 10 * kBlockBytes);
                  }},
        Operation{"copy",
                  [](DataVolume& volume, uint64_t node) -> int64_t {
                      Result<uint64_t> copied =
                          volume.fs().copy_range(node, 0, node, 600 * kBlockBytes, 5000);
                      return copied.ok() ? 0 : -int64_t{errno_value(copied.error())};
                  }},
        Operation{"scrub",
                  [](DataVolume& volume, uint64_t) -> int64_t {
                      vfs::ScrubProgress progress;
                      while (!progress.finished) {
                          Result<void> step = volume.fs().scrub(progress);
                          if (!step.ok()) {
                              return -int64_t{errno_value(step.error())};
                          }
                      }
                      return 0;
                  }}),
    [](const auto& operation) { return operation.param.name; });

// The second step of long work fails: the file is right at once, and the rest is made up for.
TEST(DataIntent, InterruptedTruncationIsFinishedBeforeTheFileGrows) {
    for (uint64_t number = 1; number < 60; number += ::tiffin::test::test_size(1, 7)) {
        DataVolume volume(make_memory_device(64 * kMiB));
        uint64_t node = volume.create("f");
        for (uint64_t i = 0; i < kFragments; ++i) {
            volume.write(node, 2 * i * kBlockBytes, pattern_text(kBlockBytes, i));
        }
        volume.remount();
        node = volume.lookup("f");
        uint64_t failed = 0;
        {
            fuse::AllocationWatch watch;
            watch.fail_allocation(number);
            int64_t answer = volume.truncate(node, 4096);
            failed = watch.failed_allocations();
            ASSERT_TRUE(answer == 0 || answer == -ENOMEM);
            if (answer < 0) {
                continue;
            }
        }
        ASSERT_EQ(volume.content(node), pattern_text(kBlockBytes, 0));
        if (number % 2 == 0) {
            volume.remount();
            node = volume.lookup("f");
        }
        ASSERT_EQ(volume.write(node, 1000000, "end"), 3);
        EXPECT_EQ(volume.text_at(node, 4096, 1000000 - 4096), std::string(1000000 - 4096, '\0'));
        EXPECT_EQ(volume.attributes(node).allocated_bytes, 8192U);
        EXPECT_EQ(volume.check(), "");
        if (failed == 0) {
            break;
        }
    }
}

// Nobody sees a file with its extents half moved, nor an error for it.
TEST(DataIntent, SeekingFinishesAnInterruptedMove) {
    uint64_t interrupted = 0;
    constexpr uint64_t kStep = 3;
    for (uint64_t number = 1; number < 2000 && interrupted == 0; number += kStep) {
        SCOPED_TRACE("allocation " + std::to_string(number));
        DataVolume volume(make_memory_device(64 * kMiB));
        uint64_t node = volume.create("f");
        for (uint64_t i = 0; i < 4 * kFragments; ++i) {
            volume.write(node, 2 * i * kBlockBytes, pattern_text(kBlockBytes, i));
        }
        // So small that the move needs a checkpoint on its way, and that memory.
        volume.remount(kSmallCacheBytes);
        node = volume.lookup("f");
        uint64_t failed = 0;
        {
            fuse::AllocationWatch watch;
            watch.fail_allocations_from(number);
            (void)volume.allocate(node, vfs::allocate_flag::collapse_range, 4 * kBlockBytes,
                                  2 * kBlockBytes);
            failed = watch.failed_allocations();
        }
        IntentValue intent{};
        const bool moving = volume.volume()
                                .tree()
                                .get_value(make_key(kVolumeNode, Kind::intent, node), intent)
                                .ok();
        interrupted += moving ? 1 : 0;
        if (moving) {
            // A reader that has a part of the file already must not wait for whoever changes the rest.
            auto mapping = std::make_unique<vfs::ReadMapping>();
            mapping->follows_another = true;
            EXPECT_EQ(volume.fs().map_read(node, 0, kBlockBytes, *mapping).error(), Error::eagain);
            EXPECT_FALSE(mapping->active);
        }
        EXPECT_EQ(volume.seek(node, 0, vfs::SeekTarget::hole), kBlockBytes);
        EXPECT_EQ(volume.seek(node, kBlockBytes, vfs::SeekTarget::data), 2 * kBlockBytes);
        if (failed == 0) {
            break;
        }
    }
    EXPECT_GT(interrupted, 0U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
