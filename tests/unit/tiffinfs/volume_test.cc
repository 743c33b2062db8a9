// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: what a volume does beside transactions: switching between read-only and read-write, and the rare
// ways of recovery, each left in a state that the checker and the next mount agree with.
#include "fs/tiffinfs/volume/volume.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/tiffinfs/space/bitmap_timelines.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/check.h"
#include "fuse/host/allocation_hooks.h"
#include "fuse/host/log_sink.h"
#include "fuse/host/memory_device.h"
#include "tests/support/crash_device.h"
#include "tests/support/findings.h"
#include "tests/support/test_volume.h"
#include "tests/support/units.h"

namespace tiffin::tiffinfs {
namespace {

using test::CrashDevice;
using test::CrashOutcome;
using test::CrashReplay;
using test::findings_of;
using test::test_content;
using test::TestVolume;

SuperblockSet superblocks_of(vfs::BlockDevice& device) {
    SuperblockSet set;
    EXPECT_TRUE(read_superblocks(device, set).ok());
    return set;
}

// ---- Making ------------------------------------------------------------------------------------

// The first frame of an older file system looks like the new one's first frame, cut off.
TEST(FreshVolume, HasNoJournalOfAnOlderOne) {
    fuse::CapturedLog log;
    CrashDevice device(16 * kMiB);
    TestVolume volume(device);
    for (int i = 0; i < 3; ++i) {
        MUST(volume.make());
        MUST(volume.mount());
        MUST(volume.write("/f", 0, test_content(1, 3000)));
        MUST(volume.sync());
        volume.abandon();
    }
    MUST(volume.make());
    const check::Report report = check::check_file_system(device, {});
    EXPECT_TRUE(report.findings.empty()) << report.findings.front().line();
    MUST(volume.mount());
    EXPECT_EQ(volume.find("/f").error(), Error::enoent);
    MUST(volume.unmount());
    EXPECT_FALSE(log.contains("cut off"));
}

TEST(FreshVolume, IsDiscardedFirstWhenThatIsAskedFor) {
    auto device = fuse::MemoryDevice::create(16 * kMiB);
    ASSERT_TRUE(device.ok());
    const std::string old = test_content(2, kBlockBytes);
    std::string block(kBlockBytes, 0);
    constexpr uint64_t kLast = 15 * kMiB;
    const auto block_at = [&](uint64_t offset) {
        MUST((*device)->read(offset, block.data(), block.size()));
        return block;
    };
    MUST((*device)->write(kLast, old.data(), old.size()));
    MUST(make_file_system(**device, {}));
    EXPECT_EQ(block_at(kLast), old);
    // Nothing has changed when it is refused.
    MakeOptions options;
    options.discard = true;
    MakeOptions refused = options;
    refused.journal_bytes = 12 * kMiB;
    EXPECT_EQ(make_file_system(**device, refused).error(), Error::einval);
    EXPECT_EQ(block_at(kLast), old);
    MUST(make_file_system(**device, options));
    EXPECT_EQ(block_at(kLast), std::string(kBlockBytes, 0));
    EXPECT_TRUE(check::check_file_system(**device, {}).findings.empty());
}

class FailingDiscards final : public vfs::BlockDevice {
  public:
    explicit FailingDiscards(vfs::BlockDevice& below) : below_(below) {}
    const vfs::DeviceGeometry& geometry() const override { return below_.geometry(); }
    void submit(vfs::IoRequest& request) override {
        if (request.operation == vfs::IoOperation::discard) {
            ++discards_;
            request.complete(request, Error::eio);
        } else {
            below_.submit(request);
        }
    }
    int discards() const { return discards_; }

  private:
    vfs::BlockDevice& below_;
    int discards_ = 0;
};

TEST(FreshVolume, IsMadeWhereDiscardsFail) {
    CrashDevice below(16 * kMiB);
    FailingDiscards device(below);
    MakeOptions options;
    options.discard = true;
    MUST(make_file_system(device, options));
    EXPECT_EQ(device.discards(), 1);
    EXPECT_TRUE(check::check_file_system(below, {}).findings.empty());
}

// ---- Remounting --------------------------------------------------------------------------------

// The superblock of the switch says "clean", so nothing may be committed after its seal.
TEST(Remount, ToReadOnlyKeepsAllThatWasDoneBefore) {
    fuse::CapturedLog log;
    constexpr int kThreads = 4;
    for (int round = 0; round < 20; ++round) {
        CrashDevice device(16 * kMiB);
        TestVolume volume(device);
        MUST(volume.make());
        MUST(volume.mount());
        std::vector<std::set<std::string>> made(kThreads);
        std::vector<std::thread> threads;
        std::atomic<int> running{0};
        for (int i = 0; i < kThreads; ++i) {
            threads.emplace_back([&, i] {
                ++running;
                for (int number = 0;; ++number) {
                    const std::string name = std::to_string(i) + "-" + std::to_string(number);
                    Result<vfs::Attributes> created = volume.file_system().create(
                        {}, vfs::kRootNode, vfs::Name(name.data(), name.size()), 0644, 0, 0, {});
                    if (!created.ok()) {
                        EXPECT_EQ(created.error(), Error::erofs);
                        return;
                    }
                    made[static_cast<size_t>(i)].insert(name);
                }
            });
        }
        while (running < kThreads) {
        }
        MUST(volume.file_system().remount(true));
        for (std::thread& thread : threads) {
            thread.join();
        }
        volume.abandon();
        EXPECT_EQ(superblocks_of(device).found[0].state, superblock_state::clean);
        EXPECT_EQ(findings_of(device), "");
        MUST(volume.mount());
        for (const std::set<std::string>& names : made) {
            for (const std::string& name : names) {
                ASSERT_TRUE(volume.find("/" + name).ok()) << name;
            }
        }
    }
}

TEST(Remount, ToReadWriteCanBeTriedAgain) {
    fuse::CapturedLog log;
    CrashDevice device(16 * kMiB);
    MUST(TestVolume(device).make());
    uint64_t failed = 0;
    for (uint64_t number = 1;; ++number) {
        SCOPED_TRACE("allocation " + std::to_string(number));
        const std::string path = "/" + std::to_string(number);
        TestVolume volume(device);
        tiffinfs::MountOptions options = TestVolume::quiet_options();
        options.volume.read_only = true;
        MUST(volume.mount(options));
        EXPECT_EQ(volume.create(path).error(), Error::erofs);
        Result<void> remounted;
        {
            fuse::AllocationWatch watch;
            watch.fail_allocation(number);
            remounted = volume.file_system().remount(false);
        }
        if (!remounted.ok()) {
            ++failed;
            EXPECT_EQ(remounted.error(), Error::enomem);
            EXPECT_EQ(volume.create(path).error(), Error::erofs);
            MUST(volume.file_system().remount(false));
        }
        MUST(volume.write(path, 0, "text"));
        MUST(volume.sync());
        volume.abandon();
        EXPECT_EQ(findings_of(device), "");
        MUST(volume.mount());
        EXPECT_EQ(MUST(volume.read(path)), "text");
        MUST(volume.unmount());
        if (remounted.ok()) {
            break;
        }
    }
    EXPECT_GT(failed, 3U);
}

// ---- Recovery ----------------------------------------------------------------------------------

TEST(Recovery, IsLeftOutWhenThatIsAskedFor) {
    fuse::CapturedLog log;
    CrashDevice device(16 * kMiB);
    TestVolume volume(device);
    MUST(volume.make());
    MUST(volume.mount());
    MUST(volume.write("/before", 0, "text"));
    MUST(static_cast<TiffinFileSystem&>(volume.file_system()).volume().checkpoint());
    MUST(volume.write("/after", 0, "text"));
    MUST(volume.sync());
    volume.abandon();
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.no_recovery = true;
    EXPECT_EQ(volume.mount(options).error(), Error::erofs);
    options.volume.read_only = true;
    device.start_recording();
    MUST(volume.mount(options));
    EXPECT_EQ(MUST(volume.read("/before")), "text");
    EXPECT_EQ(volume.find("/after").error(), Error::enoent);
    EXPECT_EQ(volume.create("/new").error(), Error::erofs);
    EXPECT_EQ(volume.file_system().remount(false).error(), Error::erofs);
    EXPECT_EQ(volume.create("/new").error(), Error::erofs);
    MUST(volume.unmount());
    EXPECT_EQ(device.take_recording().changes.size(), 0U);
    MUST(volume.mount());
    EXPECT_EQ(MUST(volume.read("/after")), "text");
}

// One bit of a block is wrong, until the block is healed.
class Healing {
  public:
    Healing(CrashDevice& device, uint64_t block) : offset_(block * kBlockBytes) {
        device.flip_bit(offset_ + 150, 3);
        MUST(device.read(offset_, wrong_.data(), wrong_.size()));
    }
    // Unless something else has been written there.
    void heal(CrashDevice& device) const {
        std::string now(kBlockBytes, 0);
        MUST(device.read(offset_, now.data(), now.size()));
        if (now == wrong_) {
            device.flip_bit(offset_ + 150, 3);
        }
    }

  private:
    uint64_t offset_;
    std::string wrong_ = std::string(kBlockBytes, 0);
};

// The newest root cannot be read: the mount starts from the generation before, and must not write its
// first superblock over that one.
TEST(Recovery, NeverOverwritesTheSuperblockItStartsFrom) {
    fuse::CapturedLog log;
    for (int checkpoints = 1; checkpoints <= 2; ++checkpoints) {
        CrashDevice device(16 * kMiB);
        TestVolume volume(device);
        MUST(volume.make());
        MUST(volume.mount());
        MUST(volume.write("/f", 0, "text"));
        auto& engine = static_cast<TiffinFileSystem&>(volume.file_system()).volume();
        for (int i = 0; i < checkpoints; ++i) {
            MUST(volume.write("/g", 0, std::to_string(i)));
            MUST(engine.checkpoint());
        }
        volume.abandon();
        const SuperblockSet before = superblocks_of(device);
        ASSERT_EQ(before.count, 4U);
        const Healing root(device, before.found[0].root_block);
        device.start_recording();
        MUST(volume.mount());
        EXPECT_TRUE(log.contains("going back to generation"));
        volume.abandon();
        // The power fails at any point of that, and all that was not flushed is lost. The root may be whole again then.
        CrashReplay replay(device.take_recording());
        uint64_t seed = 0;
        do {
            for (const CrashOutcome outcome :
                 {CrashOutcome::drop_unflushed, CrashOutcome::keep_random_units,
                  CrashOutcome::drop_unflushed, CrashOutcome::keep_completed}) {
                auto after = replay.after_crash(outcome, ++seed);
                if (seed % 4 == 3 || seed % 4 == 0) {
                    root.heal(*after);
                }
                TestVolume again(*after);
                const Result<void> mounted = again.mount();
                ASSERT_TRUE(mounted.ok()) << "change " << replay.position();
                EXPECT_EQ(MUST(again.read("/f")), "text");
                EXPECT_EQ(MUST(again.read("/g")), std::to_string(checkpoints - 1));
                MUST(again.unmount());
                EXPECT_EQ(findings_of(*after), "");
            }
        } while (replay.advance());
        // The superblock that it started from is there as long as the first new one is not.
        const SuperblockSet after = superblocks_of(device);
        EXPECT_EQ(after.found[after.count - 1].generation, before.found[2].generation);
    }
}

constexpr int kFiles = 3;

std::string file_content(int number) { return test_content(number, 20 * kBlockBytes); }

// A checkpoint behind each file, and then as after a crash; returns the newest superblock.
Superblock abandon_with_files(TestVolume& volume, CrashDevice& device) {
    auto& engine = static_cast<TiffinFileSystem&>(volume.file_system()).volume();
    for (int i = 0; i < kFiles; ++i) {
        MUST(volume.write("/" + std::to_string(i), 0, file_content(i)));
        MUST(engine.checkpoint());
    }
    volume.abandon();
    return superblocks_of(device).found[0];
}

// Power fails at every change of the recording, and `happen` comes before the next mount, which has all files.
void expect_files_after_each_crash(CrashDevice::Recording recording,
                                   const std::function<void(CrashDevice&)>& happen) {
    CrashReplay replay(std::move(recording));
    uint64_t seed = 0;
    do {
        for (const CrashOutcome outcome : test::kCrashOutcomes) {
            SCOPED_TRACE("change " + std::to_string(replay.position()) + ", outcome " +
                         std::to_string(static_cast<int>(outcome)));
            auto after = replay.after_crash(outcome, ++seed);
            happen(*after);
            TestVolume again(*after);
            ASSERT_TRUE(again.mount().ok());
            for (int i = 0; i < kFiles; ++i) {
                EXPECT_EQ(MUST(again.read("/" + std::to_string(i))), file_content(i));
            }
            MUST(again.unmount());
            ASSERT_EQ(findings_of(*after), "");
        }
    } while (replay.advance());
}

// The newest superblock has lost its first copy, and the volume ends before its device: the mount finds the second copy by
// the older superblock, and power failures in that mount leave a volume that is found, too.
TEST(Recovery, KeepsAVolumeFindableThatEndsBeforeItsDevice) {
    fuse::CapturedLog log;
    CrashDevice device(40 * kMiB);
    TestVolume volume(device);
    device.end_at(16 * kMiB);
    MUST(volume.make());
    MUST(volume.mount());
    const Superblock newest = abandon_with_files(volume, device);
    device.flip_bit(superblock_block(0, newest.generation, 0) * kBlockBytes + 150, 3);
    auto longer = device.after_crash(CrashOutcome::keep_completed, 1);
    longer->start_recording();
    TestVolume recovered(*longer);
    MUST(recovered.mount());
    recovered.abandon();
    expect_files_after_each_crash(longer->take_recording(), [](CrashDevice&) {});
}

// Superblocks lie before the end of the device where a last group would be too small.
TEST(Recovery, FindsSecondCopiesOfAVolumeThatIsRoundedDown) {
    fuse::CapturedLog log;
    CrashDevice device(128 * kMiB + 5 * kBlockBytes);
    TestVolume volume(device);
    MUST(volume.make());
    MUST(volume.mount());
    MUST(volume.write("/f", 0, "text"));
    MUST(volume.unmount());
    for (uint64_t slot = 0; slot < 2; ++slot) {
        device.flip_bit(superblock_block(0, slot, 0) * kBlockBytes, 1);
    }
    MUST(volume.mount());
    EXPECT_EQ(MUST(volume.read("/f")), "text");
}

// The newest superblock cannot be read, and can after a power failure in the mount that went without it.
class NewerSuperblock : public testing::TestWithParam<bool> {};

TEST_P(NewerSuperblock, IsErasedBeforeItsBitmaps) {
    fuse::CapturedLog log;
    CrashDevice device(16 * kMiB);
    TestVolume volume(device);
    MUST(volume.make());
    MUST(volume.mount());
    // With a full list of timelines all bitmaps that the older generation does not count are replaced.
    while (GetParam() && superblocks_of(device)
                                 .found[0]
                                 .timelines[BitmapTimelines::kCapacity - 1]
                                 .first_generation == 0) {
        volume.abandon();
        MUST(volume.mount());
    }
    const Superblock newest = abandon_with_files(volume, device);
    const Healing copies[] = {
        Healing(device, superblock_block(newest.total_blocks, newest.generation, 0)),
        Healing(device, superblock_block(newest.total_blocks, newest.generation, 1))};
    device.start_recording();
    MUST(volume.mount());
    volume.abandon();
    expect_files_after_each_crash(device.take_recording(), [&](CrashDevice& after) {
        for (const Healing& copy : copies) {
            copy.heal(after);
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Timelines, NewerSuperblock, testing::Bool());

// Bitmaps of a checkpoint that power failed before its superblock, in groups that the volume does not
// touch again for a while.
class LostCheckpoint {
  public:
    LostCheckpoint() : device_(std::make_unique<CrashDevice>(192 * kMiB)) {
        TestVolume volume(*device_);
        MUST(volume.make());
        MUST(volume.mount());
        // All groups come into use.
        MUST(volume.create("/large"));
        MUST(volume.allocate("/large", 0, 0, 150 * kMiB));
        MUST(volume.unlink("/large"));
        MUST(volume.create("/f"));
        MUST(volume.unmount());
    }

    CrashDevice& device() { return *device_; }

    // Mounts, changes something without data, and makes a checkpoint, which is cut off right before its
    // superblock. Its nodes lie in the second group, since there is no room in the first: those blocks
    // are handed out, and never mapped.
    void lose_checkpoint(int number) {
        device_->start_recording();
        TestVolume volume(*device_);
        MUST(volume.mount());
        Volume& engine = static_cast<TiffinFileSystem&>(volume.file_system()).volume();
        while (true) {
            const BlockRange range =
                MUST(engine.allocator().allocate(1000, 1, SpacePriority::privileged));
            if (group_of(range.first_block) != 0) {
                engine.allocator().cancel(range);
                break;
            }
        }
        MUST(volume.set_xattr("/f", "user.number", std::to_string(number)));
        MUST(engine.checkpoint());
        volume.abandon();
        CrashDevice::Recording recording = device_->take_recording();
        const size_t cut = last_superblock_write(recording);
        CrashReplay replay(std::move(recording));
        while (replay.position() < cut) {
            ASSERT_TRUE(replay.advance());
        }
        device_ = replay.after_crash(CrashOutcome::keep_completed, 1);
    }

    // The other history: mounts, changes something else, unmounts.
    void go_on(int number) {
        TestVolume volume(*device_);
        MUST(volume.mount());
        EXPECT_EQ(MUST(volume.see()).at("/f").xattrs.at("user.number"), std::to_string(number));
        MUST(volume.create("/" + std::to_string(number)));
        MUST(volume.unmount());
    }

    // Bitmap slots that are newer than the volume: group * 2 + slot.
    std::set<uint64_t> lost_slots() {
        const SuperblockSet set = superblocks_of(*device_);
        std::set<uint64_t> slots;
        for (uint64_t i = 0; i < 2 * set.found[0].initialized_groups; ++i) {
            if (read_slot(i).generation > set.found[0].generation) {
                slots.insert(i);
            }
        }
        return slots;
    }
    BitmapBlock read_slot(uint64_t slot) {
        BitmapBlock block;
        EXPECT_TRUE(
            device_->read(bitmap_block(slot / 2, slot % 2) * kBlockBytes, &block, sizeof block)
                .ok());
        return block;
    }

  private:
    // The first of the writes of the last superblock.
    static size_t last_superblock_write(const CrashDevice::Recording& recording) {
        size_t found = 0;
        bool before_was_superblock = false;
        for (size_t i = 0; i < recording.changes.size(); ++i) {
            const uint64_t block = recording.changes[i].offset_bytes / kBlockBytes;
            const bool is_superblock =
                recording.changes[i].kind == test::RecordedIo::Kind::write &&
                (block < 2 || block + 2 >= recording.geometry.size_bytes / kBlockBytes);
            if (is_superblock && !before_was_superblock) {
                found = i;
            }
            before_was_superblock = is_superblock;
        }
        return found;
    }

    std::unique_ptr<CrashDevice> device_;
};

TEST(Recovery, BitmapsOfALostCheckpointDoNotCount) {
    fuse::CapturedLog log;
    LostCheckpoint volume;
    int survived = 0;
    // Twice as often as there is room in the list of timelines.
    for (int number = 0; number < 28; ++number) {
        SCOPED_TRACE("round " + std::to_string(number));
        volume.lose_checkpoint(number);
        ASSERT_FALSE(testing::Test::HasFatalFailure());
        const std::set<uint64_t> lost = volume.lost_slots();
        ASSERT_FALSE(lost.empty());
        std::vector<BitmapBlock> before;
        for (const uint64_t slot : lost) {
            before.push_back(volume.read_slot(slot));
        }
        ASSERT_EQ(findings_of(volume.device()), "");
        volume.go_on(number);
        size_t index = 0;
        for (const uint64_t slot : lost) {
            const BitmapBlock now = volume.read_slot(slot);
            survived += memcmp(&now, &before[index++], sizeof now) == 0 ? 1 : 0;
        }
        ASSERT_EQ(findings_of(volume.device()), "");
    }
    // What the test is about has happened.
    EXPECT_GT(survived, 0);
    EXPECT_TRUE(log.contains("looking through all bitmaps"));
}

}  // namespace
// ---- Invariants --------------------------------------------------------------------------------

// Each is broken by a caller that does wrong in a transaction, before anything has been changed.
TEST(BrokenInvariant, BeforeTheFirstChangeIsAnErrorAndShutsTheVolumeDown) {
    const std::string content = test_content(7, 3000);
    const unsigned char large[kMaximumValueBytes + 1] = {};
    const Key key = make_key(vfs::kRootNode + 1, Kind::inode, 0);
    const std::function<Result<void>(Transaction&)> wrongs[] = {
        [&](Transaction& transaction) {
            return transaction.put(key, ByteSpan(large, sizeof large));
        },
        [&](Transaction& transaction) { return transaction.begin(SpacePriority::normal); },
        [&](Transaction& transaction) {
            return transaction.write_extent(key.node, 0, 1, 1, 0, Span<const uint32_t>());
        },
        [&](Transaction& transaction) {
            MUST(transaction.prepare());
            return transaction.erase(key);
        },
        [&](Transaction& transaction) {
            transaction.end();
            return transaction.prepare();
        },
    };
    for (const auto& wrong : wrongs) {
        fuse::CapturedLog log;
        CrashDevice device(16 * kMiB);
        TestVolume volume(device);
        MUST(volume.make());
        MUST(volume.mount());
        MUST(volume.write("/durable", 0, content));
        MUST(volume.sync());
        MUST(volume.write("/young", 0, content));
        Volume& broken = static_cast<TiffinFileSystem&>(volume.file_system()).volume();
        {
            Transaction transaction(broken);
            MUST(transaction.begin(SpacePriority::normal));
            EXPECT_EQ(wrong(transaction).error(), Error::eio);
        }
        EXPECT_TRUE(log.contains("broken invariant"));
        EXPECT_TRUE(broken.is_shut_down());
        const uint64_t writes = device.counts().writes;
        EXPECT_EQ(volume.write("/later", 0, content).error(), Error::eio);
        EXPECT_EQ(volume.sync().error(), Error::eio);
        (void)volume.unmount().ok();  // it tells that not all is written
        EXPECT_EQ(device.counts().writes, writes);
        const auto after = device.after_crash(CrashOutcome::keep_completed, 0);
        TestVolume again(*after);
        MUST(again.mount());
        EXPECT_EQ(MUST(again.read("/durable")), content);
        MUST(again.unmount());
        EXPECT_EQ(findings_of(*after), "");
    }
}

}  // namespace tiffin::tiffinfs
