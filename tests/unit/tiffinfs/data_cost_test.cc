// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: operations on data cost the device I/O, transactions and allocations that they must, and no more.
// Method: counts on a device that counts, with warm metadata; nothing is timed.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "fs/vfs/content_reader.h"
#include "fs/vfs/content_writer.h"
#include "fuse/host/allocation_hooks.h"
#include "tests/support/units.h"
#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

class DataCost : public testing::Test {
  protected:
    DataCost() {
        auto device = std::make_unique<test::CrashDevice>(256 * kMiB);
        device_ = device.get();
        volume_ = std::make_unique<DataVolume>(std::move(device));
        node_ = volume_->create("f");
    }

    // What `operation` asks of the device.
    template <typename Operation>
    test::IoCounts cost_of(Operation operation) {
        device_->reset_counts();
        operation();
        return device_->counts();
    }
    uint64_t transactions() const {
        return static_cast<uint64_t>(volume_->volume().counters().transactions.sum());
    }
    // A file of 4 MiB whose metadata is in memory.
    void fill() {
        ASSERT_EQ(volume_->write(node_, 0, pattern_text(4 * kMiB, 1)),
                  static_cast<int64_t>(4 * kMiB));
        ASSERT_EQ(volume_->content(node_).size(), 4 * kMiB);
    }

    test::CrashDevice* device_ = nullptr;
    std::unique_ptr<DataVolume> volume_;
    uint64_t node_ = 0;
};

TEST_F(DataCost, ReadOfOneBlockIsOneRead) {
    fill();
    std::string text(4096, '?');
    test::IoCounts cost = cost_of([&] { volume_->read(node_, 2 * kMiB, text); });
    EXPECT_EQ(cost.reads, 1U);
    EXPECT_EQ(cost.bytes_read, 4096U);
    EXPECT_EQ(cost.writes, 0U);
    EXPECT_EQ(cost.flushes, 0U);
}

TEST_F(DataCost, ReadInsideOneBlockIsOneReadOfTheBlock) {
    fill();
    std::string text(100, '?');
    test::IoCounts cost = cost_of([&] { volume_->read(node_, 2 * kMiB + 50, text); });
    EXPECT_EQ(cost.reads, 1U);
    EXPECT_EQ(cost.bytes_read, 4096U);
}

TEST_F(DataCost, ReadOfOneMebibyteIsOneRead) {
    fill();
    std::string text(kMiB, '?');
    test::IoCounts aligned = cost_of([&] { volume_->read(node_, kMiB, text); });
    EXPECT_EQ(aligned.reads, 1U);
    EXPECT_EQ(aligned.bytes_read, kMiB);
    // A thread that is moved to another processor between two parts may get them apart, with blocks for the tree between.
    uint64_t least_reads = kMiB;
    for (uint64_t part = 0; part < 3; part++) {
        test::IoCounts shifted = cost_of([&] { volume_->read(node_, part * kMiB + 5, text); });
        EXPECT_LE(shifted.reads, 2U);
        EXPECT_EQ(shifted.bytes_read, kMiB + 4096);
        least_reads = std::min(least_reads, shifted.reads);
    }
    EXPECT_EQ(least_reads, 1U);
}

TEST_F(DataCost, ReadOfAHoleOrOfASmallFileIsNone) {
    ASSERT_EQ(volume_->truncate(node_, 4 * kMiB), 0);
    std::string text(kMiB, '?');
    EXPECT_EQ(cost_of([&] { volume_->read(node_, 5, text); }).reads, 0U);
    uint64_t small = volume_->create("small");
    volume_->write(small, 0, "some text");
    EXPECT_EQ(cost_of([&] { volume_->read(small, 0, text); }).reads, 0U);
}

TEST_F(DataCost, WriteOfOneMebibyteIsOneWriteAndOneTransaction) {
    fill();
    std::string text = pattern_text(kMiB, 2);
    uint64_t before = transactions();
    test::IoCounts cost = cost_of([&] { volume_->write(node_, 4 * kMiB, text); });
    EXPECT_EQ(transactions() - before, 1U);
    EXPECT_EQ(cost.writes, 1U);
    EXPECT_EQ(cost.bytes_written, kMiB);
    EXPECT_EQ(cost.reads, 0U);
    EXPECT_EQ(cost.flushes, 0U);
    // Overwriting costs the same.
    cost = cost_of([&] { volume_->write(node_, kMiB, text); });
    EXPECT_EQ(cost.writes, 1U);
    EXPECT_EQ(cost.bytes_written, kMiB);
    EXPECT_EQ(cost.reads, 0U);
}

TEST_F(DataCost, WriteInsideABlockReadsThatBlock) {
    fill();
    uint64_t before = transactions();
    test::IoCounts cost = cost_of([&] { volume_->write(node_, 5000, "some text"); });
    EXPECT_EQ(transactions() - before, 1U);
    EXPECT_EQ(cost.reads, 1U);
    EXPECT_EQ(cost.writes, 1U);
    EXPECT_EQ(cost.bytes_read, 4096U);
    EXPECT_EQ(cost.bytes_written, 4096U);
}

TEST_F(DataCost, AppendingBehindAFullBlockReadsNothing) {
    fill();
    test::IoCounts cost = cost_of([&] { volume_->write(node_, 4 * kMiB, "some text"); });
    EXPECT_EQ(cost.reads, 0U);
    EXPECT_EQ(cost.writes, 1U);
}

TEST_F(DataCost, WriteOfASmallFileTouchesNoDevice) {
    uint64_t before = transactions();
    test::IoCounts cost = cost_of([&] { volume_->write(node_, 0, std::string(1000, 'x')); });
    EXPECT_EQ(transactions() - before, 1U);
    EXPECT_EQ(cost.reads, 0U);
    EXPECT_EQ(cost.writes, 0U);
}

TEST_F(DataCost, WriteAndFsyncIsDataAndOneFrame) {
    fill();
    ASSERT_TRUE(volume_->fs().fsync(node_, true).ok());
    std::string text = pattern_text(4096, 2);
    test::IoCounts cost = cost_of([&] {
        volume_->write(node_, 8192, text);
        ASSERT_TRUE(volume_->fs().fsync(node_, true).ok());
    });
    EXPECT_EQ(cost.writes, 2U);
    EXPECT_LE(cost.bytes_written, 4096U + 1024U);
    EXPECT_LE(cost.flushes, 2U);
    // Nothing is left to do.
    cost = cost_of([&] { ASSERT_TRUE(volume_->fs().fsync(node_, true).ok()); });
    EXPECT_EQ(cost.writes, 0U);
    EXPECT_EQ(cost.flushes, 0U);
}

TEST_F(DataCost, FilledInPlaceUnwrittenBlocksTakeNoSpace) {
    ASSERT_EQ(volume_->allocate(node_, 0, 0, 8 * kMiB), 0);
    uint64_t free_before = volume_->volume().allocator().free_blocks();
    test::IoCounts cost = cost_of([&] { volume_->write(node_, kMiB, pattern_text(kMiB, 1)); });
    EXPECT_EQ(cost.writes, 1U);
    EXPECT_EQ(cost.reads, 0U);
    // Spare nodes of the tree may come out of the free blocks.
    EXPECT_GE(volume_->volume().allocator().free_blocks() + 128, free_before);
}

TEST_F(DataCost, ReadingAndWritingAllocateNothingInTheSteadyState) {
    fill();
    std::string block = pattern_text(4096, 2);
    std::string large = pattern_text(kMiB, 3);
    const auto reader = std::make_unique<vfs::ContentReader>();
    const auto read = [&](uint64_t offset, std::string& text) {
        const vfs::IoVector buffer{text.data(), text.size()};
        EXPECT_EQ(MUST(vfs::read_content(*reader, volume_->fs(), node_, offset,
                                         Span<const vfs::IoVector>(&buffer, 1))),
                  text.size());
    };
    const auto writer = std::make_unique<vfs::ContentWriter>();
    const auto write = [&](uint64_t offset, std::string text) {
        const vfs::IoVector buffer{text.data(), text.size()};
        EXPECT_EQ(MUST(vfs::write_content(*writer, volume_->fs(), node_, offset,
                                          Span<const vfs::IoVector>(&buffer, 1), 0)),
                  text.size());
    };
    auto work = [&] {
        write(8192, block);
        write(kMiB, large);
        write(5000, "text");
        read(8192, block);
        read(100, large);
    };
    for (int i = 0; i < 20; ++i) {
        work();
    }
    // A checkpoint in the background, or a pool of nodes that it fills again, may fall into a few rounds. What an
    // operation took for itself would be seen in all of them.
    constexpr int kRounds = 20;
    int rounds_without = 0;
    for (int i = 0; i < kRounds; ++i) {
        fuse::AllocationWatch watch;
        work();
        rounds_without += watch.allocations() == 0 ? 1 : 0;
    }
    EXPECT_GE(rounds_without, kRounds - 3);
}

}  // namespace
}  // namespace tiffin::tiffinfs
