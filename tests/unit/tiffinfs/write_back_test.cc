// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: what a host writes back from its cache is written or answered with an error, on volumes that fill
// up, without memory, and with a device that fails. Method: a host that behaves as the kernel does.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fuse/host/allocation_hooks.h"
#include "fuse/host/memory_reserve.h"
#include "tests/support/test_size.h"
#include "tests/support/units.h"
#include "tests/support/write_back_run.h"
#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint32_t kWriteBack = vfs::write_flag::write_back | vfs::write_flag::keep_times;

// Somebody else has taken the whole memory reserve.
class ReserveThatIsUsedUp {
  public:
    ReserveThatIsUsedUp() {
        const host::MemoryReserveScope scope;
        while (void* page = fuse::take_from_reserve(kBlockBytes)) {
            pages_.push_back(page);
        }
    }
    ~ReserveThatIsUsedUp() {
        for (void* page : pages_) {
            EXPECT_TRUE(fuse::return_to_reserve(page, kBlockBytes));
        }
    }
    ReserveThatIsUsedUp(const ReserveThatIsUsedUp&) = delete;
    ReserveThatIsUsedUp& operator=(const ReserveThatIsUsedUp&) = delete;

  private:
    std::vector<void*> pages_;
};

class WriteBack : public testing::Test {
  protected:
    WriteBack() {
        auto device = std::make_unique<test::CrashDevice>(32 * kMiB);
        device_ = device.get();
        volume_ = std::make_unique<DataVolume>(std::move(device));
    }
    // Writes with `flags` to a new file until not even a block goes in.
    uint64_t fill_volume(const std::string& name, uint32_t flags) {
        const uint64_t node = volume_->create(name);
        uint64_t offset = 0;
        for (uint64_t piece : {kMiB, uint64_t{65536}, uint64_t{4096}}) {
            while (volume_->write(node, offset, pattern_text(piece, offset), flags) ==
                   static_cast<int64_t>(piece)) {
                offset += piece;
            }
        }
        return node;
    }

    test::CrashDevice* device_ = nullptr;
    std::unique_ptr<DataVolume> volume_;
};

TEST_F(WriteBack, IsInFullOrAnErrorOnAVolumeThatFillsUp) {
    const uint64_t node = volume_->create("copies");
    bool failed = false;
    for (uint64_t offset = 0; !failed && offset < 64 * kMiB; offset += 700'000) {
        const std::string text = pattern_text(700'000, offset);
        const int64_t written = volume_->write(node, offset, text, kWriteBack);
        failed = written < 0;
        if (failed) {
            EXPECT_EQ(written, -ENOSPC);
        } else {
            ASSERT_EQ(written, 700'000);
            ASSERT_EQ(volume_->text_at(node, offset, text.size()), text);
        }
    }
    EXPECT_TRUE(failed);
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(WriteBack, HasASpaceClassOfItsOwn) {
    const uint64_t node = volume_->create("kept");
    fill_volume("filler", 0);
    // Creating, allocating and direct writes are refused first.
    EXPECT_EQ(volume_->allocate(node, 0, 0, 64 * kBlockBytes), -ENOSPC);
    EXPECT_EQ(volume_->write(node, 0, pattern_text(kBlockBytes, 1)), -ENOSPC);
    EXPECT_LT(volume_->fs().statistics().value().available_blocks, 64U);
    const std::string text = pattern_text(64 * kBlockBytes, 1);
    EXPECT_EQ(volume_->write(node, 0, text, kWriteBack), static_cast<int64_t>(text.size()));
    EXPECT_EQ(volume_->content(node), text);
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(WriteBack, GoesOnBehindABlockThatHasNoRoom) {
    const uint64_t node = volume_->create("f");
    const std::string old = pattern_text(8 * kBlockBytes, 1);
    // Blocks 8 to 15 are mapped, 0 to 7 and 16 to 23 are not; so are 24 to 31, by fallocate.
    ASSERT_EQ(volume_->write(node, 8 * kBlockBytes, old), static_cast<int64_t>(old.size()));
    ASSERT_EQ(volume_->allocate(node, 0, 24 * kBlockBytes, 8 * kBlockBytes), 0);
    fill_volume("filler", kWriteBack);

    const std::string text = pattern_text(32 * kBlockBytes, 2);
    EXPECT_EQ(volume_->write(node, 0, text, kWriteBack), -ENOSPC);
    const std::string zeros(8 * kBlockBytes, '\0');
    const auto part = [&](uint64_t block) {
        return text.substr(block * kBlockBytes, zeros.size());
    };
    EXPECT_EQ(volume_->text_at(node, 0, zeros.size()), zeros);
    EXPECT_EQ(volume_->text_at(node, 8 * kBlockBytes, zeros.size()), part(8));
    EXPECT_EQ(volume_->text_at(node, 16 * kBlockBytes, zeros.size()), zeros);
    EXPECT_EQ(volume_->text_at(node, 24 * kBlockBytes, zeros.size()), part(24));
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(WriteBack, WaitsForMemory) {
    const uint64_t node = volume_->create("f");
    const std::string text = pattern_text(kMiB, 1);
    uint64_t failures = 0;
    for (uint64_t number = 1; number <= 12; ++number) {
        // Nothing in memory, so that much has to be allocated.
        volume_->remount(0);
        (void)volume_->lookup("f");
        fuse::AllocationWatch watch;
        watch.fail_allocation(number);
        EXPECT_EQ(volume_->write(node, (number - 1) * kMiB, text, kWriteBack),
                  static_cast<int64_t>(kMiB));
        failures += watch.failed_allocations();
    }
    EXPECT_GT(failures, 0U);
    // For ever it does not wait.
    volume_->remount(0);
    (void)volume_->lookup("f");
    fuse::AllocationWatch watch;
    watch.fail_allocations_from(1);
    {
        const ReserveThatIsUsedUp used_up;
        EXPECT_EQ(volume_->write(node, 0, text, kWriteBack), -ENOMEM);
    }
    watch.stop_failing();
    EXPECT_EQ(volume_->write(node, 0, text, kWriteBack), static_cast<int64_t>(kMiB));
}

// What a host has accepted is written although the system has no memory at all, with what was set aside for that.
TEST_F(WriteBack, NeedsNoMemoryOfTheHost) {
    const uint64_t node = volume_->create("f");
    volume_->remount(0);
    ASSERT_EQ(volume_->lookup("f"), node);
    const std::string text = pattern_text(kMiB, 1);
    fuse::AllocationWatch watch;
    watch.fail_allocations_from(1);
    for (uint64_t i = 0; i < 20; ++i) {
        ASSERT_EQ(volume_->write(node, i * kMiB, text, kWriteBack), static_cast<int64_t>(kMiB))
            << i;
    }
    EXPECT_GT(watch.failed_allocations(), 0U);
    EXPECT_GT(fuse::reserve_used_bytes(), 0U);
    EXPECT_LT(fuse::reserve_used_bytes(), fuse::kReserveBytes / 4);
    watch.stop_failing();
    for (uint64_t i = 0; i < 20; ++i) {
        EXPECT_EQ(volume_->text_at(node, i * kMiB, kMiB), text);
    }
    EXPECT_EQ(volume_->check(), "");
}

TEST_F(WriteBack, WritesWhatADeviceTakes) {
    const uint64_t node = volume_->create("f");
    const std::string old = pattern_text(3 * kMiB, 1);
    ASSERT_EQ(volume_->write(node, 0, old), static_cast<int64_t>(old.size()));
    const std::string text = pattern_text(3 * kMiB, 2);
    // Once: the second attempt, block by block, succeeds.
    device_->fail_write(1);
    EXPECT_EQ(volume_->write(node, 0, text, kWriteBack), static_cast<int64_t>(text.size()));
    EXPECT_EQ(volume_->text_at(node, 0, text.size()), text);
}

// In space that fallocate has reserved, a second attempt goes to the same place.
TEST_F(WriteBack, ABlockThatCannotBeWrittenTakesNoOtherAlong) {
    constexpr uint64_t kBad = 10;
    const uint64_t node = volume_->create("f");
    ASSERT_EQ(volume_->allocate(node, 0, 0, 16 * kBlockBytes), 0);
    auto mapping = std::make_unique<vfs::ReadMapping>();
    ASSERT_TRUE(volume_->fs().map_read(node, 0, 16 * kBlockBytes, *mapping).ok());
    ASSERT_EQ(mapping->segments[0].length_bytes, 16 * kBlockBytes);
    const uint64_t bad_bytes = mapping->segments[0].device_offset_bytes + kBad * kBlockBytes;
    volume_->fs().release_read(*mapping);
    device_->fail_writes_at(bad_bytes);
    const std::string text = pattern_text(16 * kBlockBytes, 3);
    EXPECT_EQ(volume_->write(node, 0, text, kWriteBack), -EIO);
    std::string expected = text;
    expected.replace(kBad * kBlockBytes, kBlockBytes, std::string(kBlockBytes, '\0'));
    EXPECT_TRUE(volume_->text_at(node, 0, text.size()) == expected);
    EXPECT_EQ(volume_->check(), "");
}

// The last page of a file is written back up to the end of file only. What else its block holds are zeros: it need not be
// read, so its damage loses nothing.
TEST_F(WriteBack, ADamagedLastBlockIsReplaced) {
    constexpr uint64_t kBytes = 10 * kBlockBytes + 100;
    const uint64_t node = volume_->create("f");
    ASSERT_EQ(volume_->write(node, 0, pattern_text(kBytes, 1)), static_cast<int64_t>(kBytes));
    auto mapping = std::make_unique<vfs::ReadMapping>();
    ASSERT_TRUE(volume_->fs().map_read(node, 10 * kBlockBytes, kBlockBytes, *mapping).ok());
    const uint64_t place = mapping->segments[0].device_offset_bytes;
    volume_->fs().release_read(*mapping);
    device_->flip_bit(place, 3);
    ASSERT_EQ(volume_->write(node, 10 * kBlockBytes, "x", kWriteBack), -EIO);
    const std::string text = pattern_text(kBytes, 2);
    EXPECT_EQ(volume_->write(node, 0, text, kWriteBack), static_cast<int64_t>(kBytes));
    EXPECT_EQ(volume_->content(node), text);
    EXPECT_EQ(volume_->check(), "");
}

// ... and where a part of it has to be read, only that block fails.
TEST_F(WriteBack, ABlockThatCannotBeReadTakesNoOtherAlong) {
    const uint64_t node = volume_->create("f");
    const std::string old = pattern_text(12 * kBlockBytes, 1);
    ASSERT_EQ(volume_->write(node, 0, old), static_cast<int64_t>(old.size()));
    auto mapping = std::make_unique<vfs::ReadMapping>();
    ASSERT_TRUE(volume_->fs().map_read(node, 10 * kBlockBytes, kBlockBytes, *mapping).ok());
    const uint64_t place = mapping->segments[0].device_offset_bytes;
    volume_->fs().release_read(*mapping);
    device_->flip_bit(place, 3);
    const std::string text = pattern_text(10 * kBlockBytes + 100, 2);
    EXPECT_EQ(volume_->write(node, 0, text, kWriteBack), -EIO);
    EXPECT_TRUE(volume_->text_at(node, 0, 10 * kBlockBytes) == text.substr(0, 10 * kBlockBytes));
}

// Files come and go on a volume that is nearly full. What fsync has said to be there is there, also after
// a crash.
class WriteBackModel : public testing::TestWithParam<uint64_t> {};

TEST_P(WriteBackModel, KeepsWhatFsyncHasPromised) {
    const uint64_t steps = test::test_size(1500, 800);
    test::RandomChoices choices(GetParam());
    const test::WriteBackResult result = test::run_write_back(choices, 16 * kMiB, steps);
    EXPECT_EQ(result.failure, "");
    EXPECT_GT(result.refused, 0U);
    EXPECT_GT(result.kept, steps / 20);
}

INSTANTIATE_TEST_SUITE_P(Seeds, WriteBackModel, testing::Range<uint64_t>(1, 5));

// What is run again when there is room must not be made twice: on a full volume, with readers that keep
// freed blocks from being used, a shift is finished and not made again.
TEST_F(WriteBack, ShiftsOnAFullVolumeHappenOnce) {
    constexpr uint64_t kPieces = 600;
    const uint64_t node = volume_->create("f");
    std::string text;
    for (uint64_t i = 0; i < kPieces; ++i) {
        // Every block an extent of its own, so that a shift takes many steps.
        const std::string block = pattern_text(kBlockBytes, i);
        ASSERT_EQ(volume_->write(node, i * kBlockBytes, block), static_cast<int64_t>(kBlockBytes));
        (void)volume_->create("between" + std::to_string(i));
        ASSERT_EQ(volume_->write(volume_->lookup("between" + std::to_string(i)), 0,
                                 pattern_text(kBlockBytes, i)),
                  static_cast<int64_t>(kBlockBytes));
        text += block;
    }
    fill_volume("filler", kWriteBack);
    auto mapping = std::make_unique<vfs::ReadMapping>();
    for (uint64_t round = 0; round < 30; ++round) {
        const bool inserts = round % 2 == 0;
        ASSERT_TRUE(volume_->fs().map_read(node, 0, kBlockBytes, *mapping).ok());
        std::thread reader([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
            volume_->fs().release_read(*mapping);
        });
        const int64_t answer = volume_->allocate(
            node, inserts ? vfs::allocate_flag::insert_range : vfs::allocate_flag::collapse_range,
            kBlockBytes, kBlockBytes);
        reader.join();
        ASSERT_TRUE(answer == 0 || answer == -ENOSPC) << answer;
        if (answer == 0 && inserts) {
            text.insert(kBlockBytes, std::string(kBlockBytes, '\0'));
        } else if (answer == 0) {
            text.erase(kBlockBytes, kBlockBytes);
        }
        ASSERT_EQ(volume_->content(node), text) << "round " << round << ", answer " << answer;
    }
}

// Who waits for readers holds no lock that they could want: a reader that has blocks mapped maps more,
// while another thread, which needs room, waits for it.
TEST_F(WriteBack, ReadersMapWhileOthersWaitForThem) {
    const uint64_t read = volume_->create("read");
    ASSERT_EQ(volume_->write(read, 0, pattern_text(kMiB, 1)), static_cast<int64_t>(kMiB));
    const uint64_t gone = volume_->create("gone");
    ASSERT_EQ(volume_->write(gone, 0, pattern_text(4 * kMiB, 1)), static_cast<int64_t>(4 * kMiB));
    fill_volume("filler", 0);
    // An extended attribute needs nodes while it has the file's state locked.
    const std::string value(60'000, 'x');
    const auto set = [&](const std::string& name) {
        return volume_->fs().set_xattr(
            {}, read, vfs::Name(name.data(), name.size()),
            ByteSpan(reinterpret_cast<const unsigned char*>(value.data()), value.size()), 0);
    };
    for (int i = 0; set("user." + std::to_string(i)).ok(); ++i) {
        ASSERT_LT(i, 1000);
    }

    auto first = std::make_unique<vfs::ReadMapping>();
    auto second = std::make_unique<vfs::ReadMapping>();
    ASSERT_TRUE(volume_->fs().map_read(read, 0, kBlockBytes, *first).ok());
    // The room that there will be when the reader leaves.
    ASSERT_EQ(volume_->truncate(gone, 0), 0);
    Result<void> added;
    std::thread writer([&] { added = set("user.late"); });
    for (int i = 0; i < 50; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ASSERT_TRUE(volume_->fs().map_read(read, kBlockBytes, kBlockBytes, *second).ok());
        volume_->fs().release_read(*second);
    }
    volume_->fs().release_read(*first);
    writer.join();
    EXPECT_TRUE(added.ok()) << errno_value(added.error());
}

}  // namespace
}  // namespace tiffin::tiffinfs
