// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: files hold what was written, whatever is done to their size and their map, on devices that are
// memory and on others. Method: directed cases and random operations against a text, with printed seeds;
// the checker runs over every volume at the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fs/vfs/content_reader.h"
#include "fs/vfs/forwarding_file_system.h"
#include "tests/support/units.h"
#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint32_t kPunch = vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size;
constexpr uint32_t kZero = vfs::allocate_flag::zero_range;
constexpr uint32_t kCollapse = vfs::allocate_flag::collapse_range;
constexpr uint32_t kInsert = vfs::allocate_flag::insert_range;

enum class DeviceKind { memory, requests };

std::unique_ptr<vfs::BlockDevice> make_device(DeviceKind kind, uint64_t size_bytes) {
    if (kind == DeviceKind::memory) {
        return make_memory_device(size_bytes);
    }
    return std::make_unique<test::CrashDevice>(size_bytes);
}

class Data : public testing::TestWithParam<DeviceKind> {
  protected:
    Data() : volume_(make_device(GetParam(), 64 * kMiB)) {}
    void TearDown() override { EXPECT_EQ(volume_.check(), ""); }

    DataVolume volume_;
};

INSTANTIATE_TEST_SUITE_P(Devices, Data, testing::Values(DeviceKind::memory, DeviceKind::requests),
                         [](const auto& run) {
                             return run.param == DeviceKind::memory ? "Memory" : "Requests";
                         });

// ---- Reading and writing ------------------------------------------------------------------------

TEST_P(Data, AllAlignmentsOfSmallWrites) {
    uint64_t node = volume_.create("f");
    std::string expected = pattern_text(20000, 1);
    ASSERT_EQ(volume_.write(node, 0, expected), 20000);
    uint64_t seed = 2;
    for (uint64_t offset : {0, 1, 4095, 4096, 4097, 8000, 12287, 16384, 19999}) {
        for (size_t size : {1, 2, 100, 4095, 4096, 4097, 8192, 9000}) {
            std::string text = pattern_text(size, ++seed);
            ASSERT_EQ(volume_.write(node, offset, text), static_cast<int64_t>(size));
            expected.resize(std::max<size_t>(expected.size(), offset + size), '\0');
            expected.replace(offset, size, text);
            ASSERT_EQ(volume_.content(node), expected) << offset << "+" << size;
        }
    }
    volume_.remount();
    EXPECT_EQ(volume_.content(volume_.lookup("f")), expected);
}

TEST_P(Data, SmallFilesGrowOutOfTheTree) {
    for (size_t first : {0, 1, 500, 1023, 1024}) {
        for (uint64_t offset : {0, 100, 1000, 1024, 3000, 4095, 4096, 5000, 100000}) {
            uint64_t node =
                volume_.create("f" + std::to_string(first) + "." + std::to_string(offset));
            std::string expected = pattern_text(first, 7);
            ASSERT_EQ(volume_.write(node, 0, expected), static_cast<int64_t>(first));
            EXPECT_LE(volume_.attributes(node).allocated_bytes, 1024U);
            std::string text = pattern_text(3000, 8);
            ASSERT_EQ(volume_.write(node, offset, text), 3000);
            expected.resize(std::max<size_t>(first, offset + 3000), '\0');
            expected.replace(offset, 3000, text);
            ASSERT_EQ(volume_.content(node), expected) << first << " " << offset;
        }
    }
}

TEST_P(Data, BuffersOfAnySize) {
    uint64_t node = volume_.create("f");
    for (size_t piece : {1, 3, 100, 1000, 4096, 5000}) {
        std::string text = pattern_text(300000, piece);
        ASSERT_EQ(volume_.write_pieces(node, 77, text, piece), 300000);
        std::string read(300000, '?');
        ASSERT_EQ(volume_.read(node, 77, read, piece), 300000);
        ASSERT_EQ(read, text) << "pieces of " << piece;
        std::string shifted(299000, '?');
        ASSERT_EQ(volume_.read(node, 78, shifted, piece), 299000);
        ASSERT_EQ(shifted, text.substr(1, 299000));
    }
}

TEST_P(Data, LargeWritesOverSeveralTransactions) {
    uint64_t node = volume_.create("f");
    std::string text = pattern_text(5 * kMiB + 12345, 1);
    ASSERT_EQ(volume_.write(node, 1000, text), static_cast<int64_t>(text.size()));
    EXPECT_EQ(volume_.text_at(node, 1000, text.size() + 5), text);
    EXPECT_EQ(volume_.text_at(node, 0, 1000), std::string(1000, '\0'));
    EXPECT_EQ(volume_.text_at(node, 1000 + text.size(), 10), "");
}

TEST_P(Data, AppendGoesToTheEndWhateverTheOffset) {
    uint64_t node = volume_.create("f");
    std::string expected;
    for (uint64_t i = 0; i < 200; ++i) {
        std::string text = pattern_text(1 + i % 150, i);
        ASSERT_EQ(volume_.write(node, i * 17, text, vfs::write_flag::append),
                  static_cast<int64_t>(text.size()));
        expected += text;
    }
    EXPECT_EQ(volume_.content(node), expected);
}

TEST_P(Data, LimitsOfSizeAndPlace) {
    uint64_t node = volume_.create("f");
    EXPECT_EQ(volume_.write(node, kMaximumFileBytes - 5, "abcdefgh"), 5);
    EXPECT_EQ(volume_.write(node, kMaximumFileBytes, "a"), -EFBIG);
    EXPECT_EQ(volume_.write(node, ~uint64_t{0}, "a"), -EFBIG);
    EXPECT_EQ(volume_.text_at(node, kMaximumFileBytes - 6, 10), std::string("\0abcde", 6));
    EXPECT_EQ(volume_.text_at(node, ~uint64_t{0}, 10), "");
    EXPECT_EQ(volume_.truncate(node, kMaximumFileBytes + 1), -EFBIG);
    EXPECT_EQ(volume_.truncate(node, kMaximumFileBytes), 0);
    EXPECT_EQ(volume_.allocate(node, 0, kMaximumFileBytes - 10, 11), -EFBIG);
    EXPECT_EQ(volume_.truncate(node, 0), 0);
    EXPECT_EQ(volume_.write(vfs::kRootNode, 0, "a"), -EISDIR);
    EXPECT_EQ(volume_.write(12345678, 0, "a"), -ESTALE);
}

TEST_P(Data, AllocatedBytesAreExact) {
    uint64_t node = volume_.create("f");
    auto allocated = [&] { return volume_.attributes(node).allocated_bytes; };
    volume_.write(node, 0, pattern_text(10000, 1));
    EXPECT_EQ(allocated(), 12288U);
    volume_.write(node, 4096, pattern_text(4096, 2));
    EXPECT_EQ(allocated(), 12288U);
    volume_.write(node, 100000, "x");
    EXPECT_EQ(allocated(), 16384U);
    EXPECT_EQ(volume_.allocate(node, vfs::allocate_flag::keep_size, 0, kMiB), 0);
    EXPECT_EQ(allocated(), kMiB);
    EXPECT_EQ(volume_.allocate(node, kPunch, 4096, 8192), 0);
    EXPECT_EQ(allocated(), kMiB - 8192);
    volume_.write(node, 5000, "y");
    EXPECT_EQ(allocated(), kMiB - 4096);
    EXPECT_EQ(volume_.truncate(node, 4097), 0);
    EXPECT_EQ(allocated(), 8192U);
    EXPECT_EQ(volume_.truncate(node, 0), 0);
    EXPECT_EQ(allocated(), 0U);
}

// ---- Seeking and unwritten blocks ------------------------------------------------------------------

TEST_P(Data, UnwrittenBlocksAreHolesUntilTheyAreWritten) {
    uint64_t node = volume_.create("f");
    ASSERT_EQ(volume_.allocate(node, 0, 0, kMiB), 0);
    EXPECT_EQ(volume_.seek(node, 0, vfs::SeekTarget::data), -ENXIO);
    EXPECT_EQ(volume_.seek(node, 5, vfs::SeekTarget::hole), 5);
    EXPECT_EQ(volume_.content(node), std::string(kMiB, '\0'));
    uint64_t used = volume_.volume().allocator().used_blocks();
    volume_.write(node, 500000, pattern_text(1000, 1));
    EXPECT_EQ(volume_.attributes(node).allocated_bytes, kMiB);
    EXPECT_LE(volume_.volume().allocator().used_blocks(), used + 4);
    EXPECT_EQ(volume_.seek(node, 0, vfs::SeekTarget::data), 499712);
    EXPECT_EQ(volume_.seek(node, 500000, vfs::SeekTarget::hole), 503808);
    EXPECT_EQ(volume_.seek(node, kMiB, vfs::SeekTarget::hole), -ENXIO);
    std::string expected(kMiB, '\0');
    expected.replace(500000, 1000, pattern_text(1000, 1));
    EXPECT_EQ(volume_.content(node), expected);
}

TEST_P(Data, MappingsTellUnwrittenBlocksFromHoles) {
    uint64_t node = volume_.create("f");
    ASSERT_EQ(volume_.truncate(node, 100 * kBlockBytes), 0);
    ASSERT_EQ(volume_.allocate(node, 0, 10 * kBlockBytes, 20 * kBlockBytes), 0);
    volume_.write(node, 15 * kBlockBytes, pattern_text(2 * kBlockBytes, 1));
    auto mapping = std::make_unique<vfs::ReadMapping>();
    ASSERT_TRUE(volume_.fs().map_read(node, 0, kMiB, *mapping).ok());
    volume_.fs().release_read(*mapping);
    using Kind = vfs::SegmentKind;
    std::vector<std::pair<Kind, uint64_t>> found;  // neighbours of a kind together
    for (uint32_t i = 0; i < mapping->segment_count; ++i) {
        const vfs::ReadSegment& segment = mapping->segments[i];
        EXPECT_EQ(segment.device_offset_bytes == 0, segment.kind == Kind::zeros);
        if (found.empty() || found.back().first != segment.kind) {
            found.emplace_back(segment.kind, 0);
        }
        found.back().second += segment.length_bytes / kBlockBytes;
    }
    std::vector<std::pair<Kind, uint64_t>> expected = {{Kind::zeros, 10},
                                                       {Kind::unwritten, 5},
                                                       {Kind::device, 2},
                                                       {Kind::unwritten, 13},
                                                       {Kind::zeros, 70}};
    EXPECT_EQ(found, expected);
    EXPECT_EQ(mapping->length_bytes, 100 * kBlockBytes);
}

// ---- Everything at random -----------------------------------------------------------------------------

struct Change {
    uint64_t offset;
    uint64_t length;
    uint64_t seed;
};

class RandomFile {
  public:
    RandomFile(DataVolume& volume, uint64_t limit) : volume_(volume), limit_(limit) {
        node_ = volume_.create("random");
    }

    void step(std::mt19937_64& random) {
        Change change{random() % limit_, 1 + random() % (random() % 8 == 0 ? 300000 : 9000),
                      random()};
        if (random() % 4 == 0) {
            change.offset -= change.offset % kBlockBytes;
        }
        switch (random() % 12) {
            case 0:
                truncate(change.offset);
                break;
            case 1:
                punch(change);
                break;
            case 2:
                zero(change, random() % 2 == 0);
                break;
            case 3:
                allocate(change, random() % 2 == 0);
                break;
            case 4:
                shift(change);
                break;
            case 5:
                copy(change, random() % limit_);
                break;
            case 6:
                write_below(change);
                break;
            default:
                write(change);
        }
    }

    void check() {
        node_ = volume_.lookup("random");
        std::string content = volume_.content(node_);
        ASSERT_EQ(content.size(), expected_.size());
        ASSERT_TRUE(content == expected_);
        check_holes();
    }

  private:
    void grow(uint64_t size) {
        if (size > expected_.size()) {
            expected_.resize(size, '\0');
        }
    }
    void fill_zeros(uint64_t offset, uint64_t end) {
        end = std::min<uint64_t>(end, expected_.size());
        if (offset < end) {
            expected_.replace(offset, end - offset, end - offset, '\0');
        }
    }
    void write(const Change& change) {
        std::string text = pattern_text(change.length, change.seed);
        ASSERT_EQ(volume_.write_pieces(node_, change.offset, text, 1 + change.seed % 20000),
                  static_cast<int64_t>(text.size()));
        grow(change.offset + text.size());
        expected_.replace(change.offset, text.size(), text);
    }
    void truncate(uint64_t size) {
        ASSERT_EQ(volume_.truncate(node_, size), 0);
        expected_.resize(size, '\0');
    }
    void punch(const Change& change) {
        ASSERT_EQ(volume_.allocate(node_, kPunch, change.offset, change.length), 0);
        fill_zeros(change.offset, change.offset + change.length);
    }
    void zero(const Change& change, bool keep_size) {
        ASSERT_EQ(volume_.allocate(node_, kZero | (keep_size ? vfs::allocate_flag::keep_size : 0),
                                   change.offset, change.length),
                  0);
        if (!keep_size) {
            grow(change.offset + change.length);
        }
        fill_zeros(change.offset, change.offset + change.length);
    }
    void allocate(const Change& change, bool keep_size) {
        ASSERT_EQ(volume_.allocate(node_, keep_size ? vfs::allocate_flag::keep_size : 0,
                                   change.offset, change.length),
                  0);
        if (!keep_size) {
            grow(change.offset + change.length);
        }
    }
    void shift(const Change& change) {
        uint64_t offset = change.offset / kBlockBytes * kBlockBytes;
        uint64_t length = (1 + change.length / kBlockBytes) * kBlockBytes;
        bool insert = expected_.size() + length < limit_ && change.seed % 2 == 0;
        int64_t answer = volume_.allocate(node_, insert ? kInsert : kCollapse, offset, length);
        bool legal = insert ? offset < expected_.size() : offset + length < expected_.size();
        ASSERT_EQ(answer, legal ? 0 : -EINVAL);
        if (legal && insert) {
            expected_.insert(offset, length, '\0');
        } else if (legal) {
            expected_.erase(offset, length);
        }
    }
    void copy(const Change& change, uint64_t to) {
        bool overlaps = change.offset < to + change.length && to < change.offset + change.length;
        if (overlaps) {
            return;
        }
        Result<uint64_t> copied =
            volume_.fs().copy_range(node_, change.offset, node_, to, change.length);
        ASSERT_TRUE(copied.ok());
        uint64_t available =
            change.offset < expected_.size() ? expected_.size() - change.offset : 0;
        ASSERT_EQ(copied.value(), std::min(available, change.length));
        if (copied.value() > 0) {
            std::string text = expected_.substr(change.offset, copied.value());
            grow(to + text.size());
            expected_.replace(to, text.size(), text);
        }
    }
    // As a page cache would: whole blocks, but for the end of the file.
    void write_below(const Change& change) {
        uint64_t offset = change.offset / kBlockBytes * kBlockBytes;
        uint64_t length = (1 + change.length / kBlockBytes) * kBlockBytes;
        std::string text = pattern_text(length, change.seed);
        if (offset + length > expected_.size() && change.seed % 2 == 0) {
            length -= change.seed % kBlockBytes;
        }
        text.resize(length);
        if (change.seed % 5 == 0) {
            vfs::WriteGrant grant;
            ASSERT_TRUE(volume_.fs().begin_write(node_, offset, length, 0, grant).ok());
            ASSERT_TRUE(volume_.fs().grant_write(grant, offset).ok());
            ASSERT_TRUE(volume_.fs().end_write(grant).ok());
            return;
        }
        ASSERT_EQ(volume_.write(node_, offset, text,
                                vfs::write_flag::write_back | vfs::write_flag::unstable_buffers),
                  static_cast<int64_t>(length));
        grow(offset + length);
        expected_.replace(offset, length, text);
    }

    // Data that seeking does not show is zero.
    void check_holes() {
        uint64_t position = 0;
        while (position < expected_.size()) {
            int64_t data = volume_.seek(node_, position, vfs::SeekTarget::data);
            uint64_t hole_end = data < 0 ? expected_.size() : static_cast<uint64_t>(data);
            ASSERT_EQ(expected_.find_first_not_of('\0', position) >= hole_end, true);
            if (data < 0) {
                ASSERT_EQ(data, -ENXIO);
                return;
            }
            int64_t hole = volume_.seek(node_, hole_end, vfs::SeekTarget::hole);
            ASSERT_GT(hole, data);
            position = static_cast<uint64_t>(hole);
        }
    }

    DataVolume& volume_;
    uint64_t limit_;
    uint64_t node_ = 0;
    std::string expected_;
};

struct RandomRun {
    DeviceKind device;
    uint64_t seed;
    uint64_t limit;
    int steps;
};

class DataRandom : public testing::TestWithParam<RandomRun> {};

TEST_P(DataRandom, MatchesAText) {
    RandomRun run = GetParam();
    SCOPED_TRACE("seed " + std::to_string(run.seed));
    DataVolume volume(make_device(run.device, 64 * kMiB));
    RandomFile file(volume, run.limit);
    std::mt19937_64 random(run.seed);
    for (int i = 0; i < run.steps; ++i) {
        file.step(random);
        if (testing::Test::HasFatalFailure()) {
            FAIL() << "step " << i;
        }
        uint64_t dice = random() % 200;
        if (dice == 0) {
            volume.remount();
        } else if (dice == 1) {
            ASSERT_TRUE(volume.fs().sync(true).ok());
            volume.crash();
        } else if (dice == 2) {
            ASSERT_TRUE(volume.volume().checkpoint().ok());
        }
        if (i % 10 == 0 || dice < 3) {
            file.check();
            if (testing::Test::HasFatalFailure()) {
                FAIL() << "after step " << i;
            }
        }
    }
    file.check();
    EXPECT_EQ(volume.check(), "");
}

INSTANTIATE_TEST_SUITE_P(Runs, DataRandom,
                         testing::Values(RandomRun{DeviceKind::memory, 1, 2000, 600},
                                         RandomRun{DeviceKind::memory, 2, 40000, 800},
                                         RandomRun{DeviceKind::memory, 3, 3 * kMiB, 400},
                                         RandomRun{DeviceKind::requests, 4, 40000, 500},
                                         RandomRun{DeviceKind::requests, 5, 1 * kMiB, 300}));

// ---- Threads -------------------------------------------------------------------------------------------

// Writers replace whole blocks; a reader sees each block as some writer left it, never a mixture.
TEST_P(Data, ReadersSeeBlocksBeforeOrAfterAWrite) {
    uint64_t node = volume_.create("f");
    constexpr uint64_t kBlocks = 16;
    ASSERT_EQ(volume_.write(node, 0, std::string(kBlocks * kBlockBytes, 'a')),
              static_cast<int64_t>(kBlocks * kBlockBytes));
    std::atomic<bool> stop{false};
    std::atomic<int> failures{0};
    auto write = [&](char letter, uint64_t seed) {
        std::mt19937_64 random(seed);
        for (int i = 0; i < 300; ++i) {
            uint64_t first = random() % kBlocks;
            uint64_t count = 1 + random() % (kBlocks - first);
            std::string text(count * kBlockBytes, letter);
            failures += volume_.write(node, first * kBlockBytes, text) < 0 ? 1 : 0;
        }
    };
    auto read = [&] {
        while (!stop) {
            std::string text = volume_.text_at(node, 0, kBlocks * kBlockBytes);
            for (uint64_t block = 0; block < kBlocks; ++block) {
                std::string one = text.substr(block * kBlockBytes, kBlockBytes);
                bool whole = one == std::string(kBlockBytes, one.empty() ? '?' : one[0]);
                failures += whole ? 0 : 1;
            }
        }
    };
    auto sync = [&] {
        while (!stop) {
            failures += volume_.fs().fsync(node, true).ok() ? 0 : 1;
        }
    };
    std::thread readers[2] = {std::thread(read), std::thread(sync)};
    std::thread writers[2] = {std::thread(write, 'b', 1), std::thread(write, 'c', 2)};
    for (std::thread& writer : writers) {
        writer.join();
    }
    stop = true;
    for (std::thread& reader : readers) {
        reader.join();
    }
    EXPECT_EQ(failures, 0);
}

// All that changes a map at once, on two files; the checker has the last word.
TEST_P(Data, ManyThreadsChangeTheSameFiles) {
    uint64_t nodes[2] = {volume_.create("a"), volume_.create("b")};
    std::atomic<int> failures{0};
    auto expect = [&](int64_t answer) { failures += answer < 0 && answer != -EINVAL ? 1 : 0; };
    auto work = [&](uint64_t seed) {
        std::mt19937_64 random(seed);
        for (int i = 0; i < 250; ++i) {
            uint64_t node = nodes[random() % 2];
            uint64_t offset = random() % kMiB;
            uint64_t aligned = offset / kBlockBytes * kBlockBytes;
            uint64_t length = 1 + random() % 60000;
            switch (random() % 9) {
                case 0:
                    expect(volume_.truncate(node, offset));
                    break;
                case 1:
                    expect(volume_.allocate(node, kPunch, offset, length));
                    break;
                case 2:
                    expect(volume_.allocate(node, kZero, offset, length));
                    break;
                case 3:
                    expect(volume_.allocate(node, i % 2 == 0 ? kCollapse : kInsert, aligned, 8192));
                    break;
                case 4:
                    expect(volume_.allocate(node, 0, offset, length));
                    break;
                case 5:
                    failures +=
                        volume_.fs().copy_range(nodes[0], offset, nodes[1], aligned, length).ok()
                            ? 0
                            : 1;
                    break;
                case 6: {
                    std::string text(length, '?');
                    expect(volume_.read(node, offset, text));
                    break;
                }
                default:
                    expect(volume_.write(node, offset, std::string(length, 'w')));
            }
        }
    };
    std::atomic<bool> stop{false};
    std::thread maintenance([&] {
        vfs::ScrubProgress progress;
        while (!stop) {
            failures += volume_.fs().scrub(progress).ok() ? 0 : 1;
            failures += static_cast<int>(progress.errors_found);
            if (progress.finished) {
                progress = {};
            }
            failures += volume_.volume().checkpoint().ok() ? 0 : 1;
        }
    });
    std::vector<std::thread> threads;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
        threads.emplace_back(work, seed);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    stop = true;
    maintenance.join();
    EXPECT_EQ(failures, 0);
}

// ---- The default of the contract ------------------------------------------------------------------------

// A file system that maps less at a time than it is asked for.
class ShortMappings final : public vfs::ForwardingFileSystem {
  public:
    using ForwardingFileSystem::ForwardingFileSystem;

    Result<size_t> read(vfs::NodeId node, vfs::Handle handle, uint64_t offset_bytes,
                        Span<const vfs::IoVector> buffers) override {
        return FileSystem::read(node, handle, offset_bytes, buffers);
    }
    Result<void> map_read(vfs::NodeId node, uint64_t offset_bytes, uint64_t length_bytes,
                          vfs::ReadMapping& mapping) override {
        return below().map_read(node, offset_bytes, std::min(length_bytes, longest_mapping_bytes),
                                mapping);
    }
    uint64_t longest_mapping_bytes = ~uint64_t{0};
};

TEST_P(Data, TheDefaultReadGoesThroughMappings) {
    uint64_t node = volume_.create("f");
    std::string expected(3 * kMiB, '\0');
    for (uint64_t offset : {100, 50000, 1048570, 2000000, 3000000}) {
        std::string text = pattern_text(70000, offset);
        ASSERT_EQ(volume_.write(node, offset, text), 70000);
        expected.replace(offset, text.size(), text);
    }
    expected.resize(3070000);
    ShortMappings lower(volume_.fs());
    // Also where a file system maps only a block at a time.
    for (uint64_t longest_bytes : {~uint64_t{0}, uint64_t{kBlockBytes}}) {
        lower.longest_mapping_bytes = longest_bytes;
        for (uint64_t offset : {0, 99, 4096, 1000001, 3069999, 3070000, 5000000}) {
            std::string text(2 * kMiB, '?');
            vfs::IoVector buffer{text.data(), text.size()};
            Result<size_t> read =
                lower.read(node, 0, offset, Span<const vfs::IoVector>(&buffer, 1));
            ASSERT_TRUE(read.ok());
            text.resize(read.value());
            EXPECT_TRUE(text == (offset < expected.size() ? expected.substr(offset, 2 * kMiB) : ""))
                << offset;
        }
    }
}

}  // namespace
}  // namespace tiffin::tiffinfs
