// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: damage and failing devices give errors for what they touch and for nothing else; a failed
// operation changes nothing and loses no space; work that takes several transactions survives a power
// failure at every write. Method: flipped bits, ordered failures, and replayed recordings.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/units.h"
#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint32_t kPunch = vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size;

class DataDamage : public testing::Test {
  protected:
    explicit DataDamage(uint64_t size_bytes = 64 * kMiB) {
        auto device = std::make_unique<test::CrashDevice>(size_bytes);
        device_ = device.get();
        volume_ = std::make_unique<DataVolume>(std::move(device));
    }

    // Where a block of a file is on the device.
    uint64_t device_offset(uint64_t node, uint64_t file_offset) {
        auto mapping = std::make_unique<vfs::ReadMapping>();
        EXPECT_TRUE(volume_->fs().map_read(node, file_offset, kBlockBytes, *mapping).ok());
        EXPECT_EQ(mapping->segments[0].kind, vfs::SegmentKind::device);
        uint64_t offset = mapping->segments[0].device_offset_bytes;
        volume_->fs().release_read(*mapping);
        return offset;
    }
    uint64_t available_blocks() {
        EXPECT_TRUE(volume_->volume().checkpoint().ok());
        EXPECT_TRUE(volume_->volume().checkpoint().ok());
        return volume_->volume().allocator().free_blocks() +
               volume_->volume().allocator().deferred_blocks();
    }
    // Every other block of [0, 2 * count) is data, each an extent of its own.
    uint64_t make_fragments(const std::string& name, uint64_t count) {
        uint64_t node = volume_->create(name);
        for (uint64_t i = 0; i < count; ++i) {
            EXPECT_EQ(volume_->write(node, 2 * i * kBlockBytes, pattern_text(kBlockBytes, i)),
                      static_cast<int64_t>(kBlockBytes));
        }
        return node;
    }

    test::CrashDevice* device_ = nullptr;
    std::unique_ptr<DataVolume> volume_;
};

TEST_F(DataDamage, AFlippedBitIsAnErrorForItsBlockOnly) {
    uint64_t node = volume_->create("f");
    std::string text = pattern_text(kMiB, 1);
    volume_->write(node, 0, text);
    device_->flip_bit(device_offset(node, 40960) + 1234, 3);
    EXPECT_EQ(volume_->text_at(node, 40960, 4096), "error 5");
    EXPECT_EQ(volume_->text_at(node, 40960 + 4000, 10), "error 5");
    EXPECT_EQ(volume_->text_at(node, 30000, 20000), "error 5");
    EXPECT_EQ(volume_->text_at(node, 36864, 4096), text.substr(36864, 4096));
    EXPECT_EQ(volume_->text_at(node, 45056, 4096), text.substr(45056, 4096));
    // A write that needs the old content fails, one that does not sets the block right.
    EXPECT_EQ(volume_->write(node, 40970, "text"), -EIO);
    EXPECT_EQ(volume_->truncate(node, 41000), -EIO);
    EXPECT_EQ(volume_->allocate(node, kPunch, 41000, 100), -EIO);
    EXPECT_EQ(volume_->attributes(node).size_bytes, kMiB);
    EXPECT_EQ(volume_->write(node, 40960, std::string(4096, 'x')), 4096);
    text.replace(40960, 4096, 4096, 'x');
    EXPECT_EQ(volume_->content(node), text);
    EXPECT_FALSE(volume_->volume().read_only());
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(DataDamage, ADamagedFileCanStillBeCutAndRemoved) {
    uint64_t node = volume_->create("f");
    volume_->write(node, 0, pattern_text(100000, 1));
    device_->flip_bit(device_offset(node, 40960), 0);
    EXPECT_EQ(volume_->truncate(node, 40960), 0);
    EXPECT_EQ(volume_->content(node), pattern_text(100000, 1).substr(0, 40960));
    device_->flip_bit(device_offset(node, 0), 0);
    EXPECT_EQ(volume_->truncate(node, 0), 0);
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(DataDamage, MemoryDevicesAreVerifiedToo) {
    DataVolume volume(make_memory_device(64 * kMiB));
    uint64_t node = volume.create("f");
    volume.write(node, 0, pattern_text(100000, 1));
    auto mapping = std::make_unique<vfs::ReadMapping>();
    ASSERT_TRUE(volume.fs().map_read(node, 8192, kBlockBytes, *mapping).ok());
    uint64_t offset = mapping->segments[0].device_offset_bytes;
    volume.fs().release_read(*mapping);
    std::string garbage(512, 'g');
    ASSERT_TRUE(volume.device().write(offset, garbage.data(), garbage.size()).ok());
    EXPECT_EQ(volume.text_at(node, 8192, 10), "error 5");
    EXPECT_EQ(volume.text_at(node, 4096, 4096), pattern_text(100000, 1).substr(4096, 4096));
    EXPECT_EQ(volume.scrub().errors_found, 1U);
}

TEST_F(DataDamage, FailedDeviceWritesChangeNothingAndLoseNoSpace) {
    uint64_t node = volume_->create("f");
    std::string text = pattern_text(300000, 1);
    volume_->write(node, 0, text);
    uint64_t available = available_blocks();
    for (auto [offset, size] : {std::pair<uint64_t, size_t>{0, 4096},
                                {5, 10},
                                {100000, 100000},
                                {290000, 50000},
                                {400000, 4096}}) {
        device_->fail_write(1);
        EXPECT_EQ(volume_->write(node, offset, std::string(size, 'x')), -EIO) << offset;
    }
    device_->fail_write(1);
    EXPECT_EQ(volume_->truncate(node, 1000), -EIO);
    device_->fail_write(1);
    EXPECT_EQ(volume_->allocate(node, kPunch, 10, 100), -EIO);
    EXPECT_EQ(volume_->content(node), text);
    EXPECT_EQ(available_blocks(), available);
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(DataDamage, FailedDeviceReadsAreErrorsOnce) {
    uint64_t node = volume_->create("f");
    std::string text = pattern_text(100000, 1);
    volume_->write(node, 0, text);
    device_->fail_read(1);
    EXPECT_EQ(volume_->text_at(node, 0, 100000), "error 5");
    EXPECT_EQ(volume_->text_at(node, 0, 100000), text);
    device_->fail_read(1);
    EXPECT_EQ(volume_->write(node, 5, "text"), -EIO);
    EXPECT_EQ(volume_->content(node), text);
}

// ---- Space --------------------------------------------------------------------------------------------

class DataSpace : public DataDamage {
  protected:
    DataSpace() : DataDamage(16 * kMiB) {}

    // Writes to a new file until nothing more goes in.
    uint64_t fill_volume() {
        uint64_t node = volume_->create("filler");
        uint64_t offset = 0;
        for (uint64_t piece : {kMiB, uint64_t{65536}, uint64_t{4096}}) {
            while (true) {
                int64_t count = volume_->write(node, offset, pattern_text(piece, offset));
                if (count < 0) {
                    EXPECT_EQ(count, -ENOSPC);
                    break;
                }
                offset += static_cast<uint64_t>(count);
            }
        }
        return node;
    }
};

TEST_F(DataSpace, AFullVolumeCanBeOverwrittenAndEmptied) {
    uint64_t kept = volume_->create("kept");
    std::string text = pattern_text(kMiB, 1);
    volume_->write(kept, 0, text);
    uint64_t filler = fill_volume();
    EXPECT_EQ(volume_->allocate(kept, 0, kMiB, 4 * kMiB), -ENOSPC);
    for (uint64_t round = 2; round < 12; ++round) {
        text = pattern_text(kMiB, round);
        ASSERT_EQ(volume_->write(kept, 0, text), static_cast<int64_t>(kMiB));
        ASSERT_EQ(volume_->write(kept, 5, "x"), 1);
        text[5] = 'x';
    }
    EXPECT_EQ(volume_->content(kept), text);
    // A write that overwrites first and then grows does the first part.
    int64_t count = volume_->write(kept, kMiB - 8192, std::string(2 * kMiB, 'y'));
    EXPECT_GE(count, 8192);
    EXPECT_LT(count, static_cast<int64_t>(kMiB));
    EXPECT_EQ(volume_->content(kept),
              text.substr(0, kMiB - 8192) + std::string(static_cast<size_t>(count), 'y'));
    ASSERT_EQ(volume_->truncate(filler, 1000), 0);
    EXPECT_EQ(volume_->write(kept, kMiB, std::string(kMiB, 'z')), static_cast<int64_t>(kMiB));
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(DataSpace, ReservedBlocksAreThereWhenTheVolumeIsFull) {
    uint64_t node = volume_->create("reserved");
    ASSERT_EQ(volume_->allocate(node, 0, 0, 2 * kMiB), 0);
    uint64_t lower = volume_->create("lower");
    ASSERT_TRUE(volume_->fs().reserve(lower, 0, kMiB).ok());
    fill_volume();
    std::string text = pattern_text(2 * kMiB, 1);
    EXPECT_EQ(volume_->write(node, 0, text), static_cast<int64_t>(2 * kMiB));
    EXPECT_EQ(volume_->content(node), text);
    EXPECT_EQ(volume_->write(lower, 0, pattern_text(kMiB, 2)), static_cast<int64_t>(kMiB));
    EXPECT_EQ(volume_->check(), "");
}

// ---- The lower path ----------------------------------------------------------------------------------

class DataLower : public DataDamage {
  protected:
    // Writes what a grant has room for, and returns the checksums.
    std::vector<uint32_t> write_grant(const vfs::WriteGrant& grant, const std::string& text) {
        std::vector<uint32_t> checksums;
        uint64_t at = 0;
        for (uint32_t i = 0; i < grant.segment_count; ++i) {
            EXPECT_TRUE(device_
                            ->write(grant.segments[i].device_offset_bytes, text.data() + at,
                                    grant.segments[i].length_bytes)
                            .ok());
            at += grant.segments[i].length_bytes;
        }
        for (uint64_t i = 0; i < at; i += kBlockBytes) {
            checksums.push_back(host::crc32c(0, text.data() + i, kBlockBytes));
        }
        return checksums;
    }
    Result<void> begin(uint64_t node, uint64_t offset, uint64_t length, vfs::WriteGrant& grant) {
        TRY(volume_->fs().begin_write(node, offset, length, kFlags, grant));
        return volume_->fs().grant_write(grant, offset);
    }
    Result<uint64_t> commit(vfs::WriteGrant& grant, const std::vector<uint32_t>& checksums) {
        return volume_->fs().commit_write(
            grant, Span<const uint32_t>(checksums.data(), checksums.size()), {});
    }
    void end(vfs::WriteGrant& grant) { EXPECT_TRUE(volume_->fs().end_write(grant).ok()); }

    static constexpr uint32_t kFlags = vfs::write_flag::write_back | vfs::write_flag::keep_times;
};

TEST_F(DataLower, NothingIsVisibleBeforeCommitOrWithoutIt) {
    uint64_t node = volume_->create("f");
    volume_->write(node, 0, "small");
    uint64_t available = available_blocks();
    vfs::WriteGrant grant;
    ASSERT_TRUE(begin(node, 0, 16384, grant).ok());
    EXPECT_EQ(grant.length_bytes, 16384U);
    write_grant(grant, pattern_text(16384, 1));
    EXPECT_EQ(volume_->content(node), "small");
    EXPECT_EQ(available_blocks(), available - 4);
    end(grant);
    EXPECT_EQ(available_blocks(), available);
    EXPECT_EQ(volume_->fs().end_write(grant).error(), Error::einval);
    EXPECT_EQ(commit(grant, {}).error(), Error::einval);
    ASSERT_TRUE(begin(node, 0, 16384, grant).ok());
    // Granted anew, which gives the first part back; and the small content leaves the inode for a block, since something
    // behind it is to be written.
    ASSERT_TRUE(volume_->fs().grant_write(grant, 4096).ok());
    EXPECT_EQ(grant.offset_bytes, 4096U);
    EXPECT_EQ(grant.length_bytes, 12288U);
    end(grant);
    EXPECT_EQ(volume_->content(node), "small");
    EXPECT_EQ(volume_->attributes(node).allocated_bytes, 4096U);
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(DataLower, DisjointWritesAreUnderWayTogetherAndEndInAnyOrder) {
    uint64_t node = volume_->create("f");
    ASSERT_EQ(volume_->allocate(node, 0, 0, 131072), 0);
    vfs::WriteGrant first;
    vfs::WriteGrant second;
    ASSERT_TRUE(begin(node, 0, 32768, first).ok());
    ASSERT_TRUE(begin(node, 32768, 32768, second).ok());
    std::vector<uint32_t> first_checksums = write_grant(first, std::string(32768, 'a'));
    std::vector<uint32_t> second_checksums = write_grant(second, std::string(32768, 'b'));
    EXPECT_EQ(commit(second, second_checksums).value_or(0), 32768U);
    end(second);
    EXPECT_EQ(volume_->text_at(node, 0, 131072),
              std::string(32768, '\0') + std::string(32768, 'b') + std::string(65536, '\0'));
    EXPECT_EQ(commit(first, first_checksums).value_or(0), 32768U);
    end(first);
    EXPECT_EQ(volume_->text_at(node, 0, 65536), std::string(32768, 'a') + std::string(32768, 'b'));
    // Into the blocks that were reserved.
    EXPECT_EQ(volume_->attributes(node).allocated_bytes, 131072U);
    EXPECT_EQ(volume_->check(), "");
}

// Whatever touches a block of a write that is under way waits for its end, and happens after it.
TEST_F(DataLower, OverlappingChangesWaitForEachOther) {
    uint64_t node = volume_->create("f");
    volume_->write(node, 0, pattern_text(65536, 1));
    const auto text = [](char fill) { return std::string(4096, fill); };
    const std::vector<std::function<void()>> changes = {
        [&] { EXPECT_EQ(volume_->write(node, 36864, text('w')), 4096); },
        [&] { EXPECT_EQ(volume_->truncate(node, 40000), 0); },
        [&] { EXPECT_EQ(volume_->allocate(node, vfs::allocate_flag::zero_range, 36864, 4096), 0); },
        [&] {
            EXPECT_EQ(volume_->allocate(
                          node, vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size,
                          36000, 5000),
                      0);
        },
        [&] { EXPECT_EQ(volume_->allocate(node, vfs::allocate_flag::collapse_range, 0, 4096), 0); },
        [&] { EXPECT_EQ(volume_->allocate(node, vfs::allocate_flag::insert_range, 0, 4096), 0); },
        [&] { EXPECT_EQ(volume_->write(node, 0, text('e'), vfs::write_flag::append), 4096); },
    };
    for (const auto& change : changes) {
        ASSERT_EQ(volume_->truncate(node, 0), 0);
        ASSERT_EQ(volume_->write(node, 0, pattern_text(65536, 1)), 65536);
        vfs::WriteGrant grant;
        ASSERT_TRUE(begin(node, 32768, 32768, grant).ok());
        const std::string written(32768, 'x');
        const std::vector<uint32_t> checksums = write_grant(grant, written);
        // Disjoint ones do not wait. (Behind one that waits for the whole file this one would, and so for this thread.)
        EXPECT_EQ(volume_->write(node, 4096, text('d')), 4096);
        std::atomic<bool> changed{false};
        std::thread other([&] {
            change();
            changed = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_FALSE(changed);
        EXPECT_EQ(volume_->text_at(node, 32768, 32768), pattern_text(65536, 1).substr(32768));
        EXPECT_EQ(commit(grant, checksums).value_or(0), 32768U);
        end(grant);
        other.join();
    }
    // The last one was written behind the end.
    EXPECT_EQ(volume_->text_at(node, 32768, 36864), std::string(32768, 'x') + text('e'));
    EXPECT_EQ(volume_->check(), "");
}

// A truncation during a write comes after it: neither does the file grow again, nor does old data show.
TEST_F(DataLower, ATruncationDuringAWriteHolds) {
    uint64_t node = volume_->create("f");
    volume_->write(node, 0, pattern_text(65536, 1));
    uint64_t available = available_blocks();
    vfs::WriteGrant grant;
    ASSERT_TRUE(begin(node, 32768, 65536, grant).ok());
    const std::vector<uint32_t> checksums = write_grant(grant, std::string(65536, 'x'));
    std::thread truncation([&] {
        EXPECT_EQ(volume_->truncate(node, 16384), 0);
        EXPECT_EQ(volume_->truncate(node, 65536), 0);
    });
    ASSERT_TRUE(commit(grant, checksums).ok());
    end(grant);
    truncation.join();
    EXPECT_EQ(volume_->content(node),
              pattern_text(65536, 1).substr(0, 16384) + std::string(49152, '\0'));
    EXPECT_EQ(volume_->attributes(node).allocated_bytes, 16384U);
    EXPECT_GE(available_blocks(), available + 8);
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(DataLower, SmallFilesGetBlocks) {
    for (uint64_t offset : {uint64_t{0}, uint64_t{8192}}) {
        uint64_t node = volume_->create("f" + std::to_string(offset));
        volume_->write(node, 0, "small");
        vfs::WriteGrant grant;
        ASSERT_TRUE(begin(node, offset, 4096, grant).ok());
        EXPECT_FALSE(grant.takes_content);
        const std::string block = pattern_text(4096, 1);
        EXPECT_EQ(commit(grant, write_grant(grant, block)).value_or(0), 4096U);
        end(grant);
        EXPECT_EQ(volume_->content(node),
                  offset == 0 ? block : "small" + std::string(8187, '\0') + block);
    }
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(DataLower, SmallContentIsTakenAsItIs) {
    uint64_t node = volume_->create("f");
    vfs::WriteGrant grant;
    ASSERT_TRUE(begin(node, 10, 5, grant).ok());
    EXPECT_TRUE(grant.takes_content);
    EXPECT_EQ(grant.segment_count, 0U);
    const unsigned char bytes[] = {'s', 'm', 'a', 'l', 'l'};
    EXPECT_EQ(volume_->fs().commit_write(grant, {}, ByteSpan(bytes, 4)).error(), Error::einval);
    ASSERT_TRUE(volume_->fs().grant_write(grant, 10).ok());
    EXPECT_EQ(volume_->fs().commit_write(grant, {}, ByteSpan(bytes, 5)).value_or(0), 5U);
    end(grant);
    EXPECT_EQ(volume_->content(node), std::string(10, '\0') + "small");
    EXPECT_EQ(volume_->attributes(node).allocated_bytes, 512U);
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(DataLower, MistakesAreRefused) {
    uint64_t node = volume_->create("f");
    vfs::WriteGrant grant;
    EXPECT_EQ(begin(node, kMaximumFileBytes, 4096, grant).error(), Error::efbig);
    EXPECT_EQ(begin(node, ~uint64_t{0}, ~uint64_t{0}, grant).error(), Error::efbig);
    EXPECT_EQ(begin(vfs::kRootNode, 0, 4096, grant).error(), Error::eisdir);
    EXPECT_EQ(begin(12345, 0, 4096, grant).error(), Error::estale);
    EXPECT_EQ(volume_->fs().grant_write(grant, 0).error(), Error::einval);
    ASSERT_TRUE(begin(node, 4096, 8192, grant).ok());
    EXPECT_EQ(volume_->fs().grant_write(grant, 0).error(), Error::einval);
    EXPECT_EQ(volume_->fs().grant_write(grant, 12288).error(), Error::einval);
    ASSERT_TRUE(volume_->fs().grant_write(grant, 4096).ok());
    EXPECT_EQ(commit(grant, {1}).error(), Error::einval);
    EXPECT_EQ(commit(grant, {1, 2}).error(), Error::einval);
    end(grant);
    EXPECT_EQ(volume_->content(node), "");
    EXPECT_EQ(volume_->check(), "");
}

// ---- Scrub -------------------------------------------------------------------------------------------

TEST_F(DataDamage, ScrubReadsEverythingAndFindsNothing) {
    for (uint64_t i = 0; i < 50; ++i) {
        uint64_t node = volume_->create("f" + std::to_string(i));
        volume_->write(node, 0, pattern_text(100000, i));
    }
    make_fragments("fragments", 300);
    ASSERT_TRUE(volume_->volume().checkpoint().ok());
    vfs::ScrubProgress progress = volume_->scrub();
    EXPECT_EQ(progress.errors_found, 0U);
    EXPECT_GE(progress.checked_bytes, 50 * 25 * kBlockBytes + 300 * kBlockBytes);
    EXPECT_EQ(progress.total_bytes, progress.checked_bytes);
}

TEST_F(DataDamage, ScrubFindsEachBadBlock) {
    uint64_t node = volume_->create("f");
    volume_->write(node, 0, pattern_text(2 * kMiB, 1));
    std::set<uint64_t> bad{0, 5, 6, 255, 256, 300, 511};
    for (uint64_t block : bad) {
        device_->flip_bit(device_offset(node, block * kBlockBytes) + 4095, 7);
    }
    EXPECT_EQ(volume_->scrub().errors_found, bad.size());
    EXPECT_FALSE(volume_->volume().read_only());
}

TEST_F(DataDamage, ScrubFindsDamagedNodesAndSuperblocks) {
    make_fragments("fragments", 500);
    volume_->remount();
    const TreeRoot root = volume_->volume().tree().root();
    ASSERT_EQ(root.level, 1);
    EXPECT_EQ(volume_->scrub().errors_found, 0U);
    device_->flip_bit(root.block * kBlockBytes + 100, 0);
    EXPECT_GE(volume_->scrub().errors_found, 1U);
    device_->flip_bit(root.block * kBlockBytes + 100, 0);
    EXPECT_EQ(volume_->scrub().errors_found, 0U);
    // The second copy of the superblock of an even generation.
    device_->flip_bit((volume_->volume().superblock().total_blocks - 2) * kBlockBytes + 40, 0);
    EXPECT_EQ(volume_->scrub().errors_found, 1U);
    device_->flip_bit((volume_->volume().superblock().total_blocks - 2) * kBlockBytes + 40, 0);
}

TEST_F(DataDamage, ScrubWhileFilesChange) {
    uint64_t node = volume_->create("f");
    volume_->write(node, 0, pattern_text(kMiB, 1));
    vfs::ScrubProgress progress;
    for (uint64_t i = 0; !progress.finished; ++i) {
        ASSERT_TRUE(volume_->fs().scrub(progress).ok());
        volume_->write(node, (i * 77777) % kMiB, pattern_text(30000, i));
        if (i % 2 == 0) {
            ASSERT_TRUE(volume_->volume().checkpoint().ok());
        }
    }
    EXPECT_EQ(progress.errors_found, 0U);
}

TEST_F(DataDamage, ScrubTakesAnyCursor) {
    for (uint64_t phase : {0, 1, 2, 3, 4, 1000}) {
        for (uint64_t word : {uint64_t{1}, uint64_t{1} << 40, ~uint64_t{0}}) {
            vfs::ScrubProgress progress;
            progress.cursor[0] = phase;
            progress.cursor[1] = word;
            progress.cursor[2] = word;
            progress.cursor[3] = word;
            for (int i = 0; i < 1000 && !progress.finished; ++i) {
                ASSERT_TRUE(volume_->fs().scrub(progress).ok());
            }
            EXPECT_TRUE(progress.finished);
        }
    }
}

// ---- Power failures in the middle of long work ---------------------------------------------------------

struct LongWork {
    const char* name;
    uint32_t mode;  // of allocate; 0: truncate to 5000 bytes
    uint64_t offset;
    uint64_t length;
};

class DataCrash : public testing::TestWithParam<LongWork> {};

// The content is the old or the new one, and nothing is lost.
TEST_P(DataCrash, LongWorkIsDoneOrNotBegun) {
    LongWork work = GetParam();
    auto owned = std::make_unique<test::CrashDevice>(32 * kMiB);
    test::CrashDevice* device = owned.get();
    std::string before;
    std::string after;
    std::optional<test::CrashDevice::Recording> recording;
    {
        DataVolume volume(std::move(owned));
        uint64_t node = volume.create("f");
        for (uint64_t i = 0; i < 200; ++i) {
            volume.write(node, 2 * i * kBlockBytes, pattern_text(kBlockBytes, i));
        }
        before = volume.content(node);
        ASSERT_TRUE(volume.fs().sync(true).ok());
        device->start_recording();
        if (work.mode == 0) {
            ASSERT_EQ(volume.truncate(node, work.length), 0);
        } else {
            ASSERT_EQ(volume.allocate(node, work.mode, work.offset, work.length), 0);
        }
        after = volume.content(node);
        // Each transaction in a frame of its own makes the most crash points; here one sync and a
        // checkpoint must do.
        ASSERT_TRUE(volume.fs().sync(true).ok());
        ASSERT_TRUE(volume.volume().checkpoint().ok());
        recording.emplace(device->take_recording());
    }
    ASSERT_NE(before, after);
    test::CrashReplay replay(std::move(*recording));
    uint64_t seed = 1;
    do {
        for (test::CrashOutcome outcome :
             {test::CrashOutcome::keep_completed, test::CrashOutcome::drop_unflushed,
              test::CrashOutcome::keep_random_units}) {
            std::unique_ptr<test::CrashDevice> crashed = replay.after_crash(outcome, ++seed);
            MountOptions options;
            Result<vfs::FileSystem*> mounted = mount(*crashed, options);
            ASSERT_TRUE(mounted.ok()) << replay.position();
            Result<vfs::Attributes> found = mounted.value()->lookup(vfs::kRootNode, "f");
            ASSERT_TRUE(found.ok());
            std::string text(found->size_bytes, '?');
            vfs::IoVector buffer{text.data(), text.size()};
            Result<size_t> read =
                mounted.value()->read(found->node, 0, 0, Span<const vfs::IoVector>(&buffer, 1));
            ASSERT_TRUE(read.ok());
            EXPECT_TRUE(text == before || text == after) << "crash point " << replay.position();
            EXPECT_TRUE(mounted.value()->unmount().ok());
            destroy(mounted.value());
            EXPECT_EQ(test::findings_of(*crashed), "") << replay.position();
        }
    } while (replay.advance());
}

INSTANTIATE_TEST_SUITE_P(Work, DataCrash,
                         testing::Values(LongWork{"truncate", 0, 0, 5000},
                                         LongWork{"truncate_all", 0, 0, 0},
                                         LongWork{"collapse", vfs::allocate_flag::collapse_range,
                                                  5 * kBlockBytes, 160 * kBlockBytes},
                                         LongWork{"insert", vfs::allocate_flag::insert_range,
                                                  6 * kBlockBytes, 10 * kBlockBytes}),
                         [](const auto& run) { return run.param.name; });

}  // namespace
}  // namespace tiffin::tiffinfs
