// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: the map of a file says block by block what was mapped last, in as few extents as it can, through
// splits, replacements, checkpoints and replays. Method: random changes against one entry for each block.
#include "fs/tiffinfs/volume/extents.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fs/tiffinfs/volume/transaction.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fuse/host/memory_device.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kNode = 1000;
constexpr uint64_t kFileBlocks = 3000;

struct MappedBlock {
    uint64_t physical_block = 0;  // 0: not mapped
    bool unwritten = false;
    uint32_t checksum = 0;

    bool operator==(const MappedBlock&) const = default;
};
using Model = std::vector<MappedBlock>;

// Extents by their first block, and the one behind.
struct ExtentList final : ExtentVisitor {
    std::vector<std::pair<uint64_t, uint64_t>> seen;
    std::pair<uint64_t, uint64_t> before;
    bool visit(const MappedExtent& extent) override {
        seen.emplace_back(extent.file_block, extent.end_block());
        return true;
    }
    void visit_before(const MappedExtent& extent) override {
        EXPECT_TRUE(seen.empty());
        before = {extent.file_block, extent.end_block()};
    }
};

class MapCollector final : public ExtentVisitor {
  public:
    explicit MapCollector(Model& model) : model_(model) {}
    bool visit(const MappedExtent& extent) override {
        extents += 1;
        for (uint64_t block = extent.file_block; block < extent.end_block(); ++block) {
            EXPECT_LT(block, model_.size());
            EXPECT_EQ(model_[block].physical_block, 0U);
            model_[block] = {extent.physical_of(block), extent.unwritten(),
                             extent.unwritten() ? 0 : extent.checksum_of(block)};
        }
        bool joinable = extent.file_block == last_.end_block() &&
                        extent.physical_block == last_.physical_block + last_.block_count &&
                        extent.flags == last_.flags &&
                        extent.birth_generation == last_.birth_generation &&
                        extent.block_count + last_.block_count <= kWrittenExtentMaximumBlocks;
        joinable_neighbours += joinable && last_.block_count > 0 ? 1 : 0;
        last_ = extent;
        return true;
    }
    uint32_t extents = 0;
    uint32_t joinable_neighbours = 0;

  private:
    Model& model_;
    MappedExtent last_;
};

class ExtentMap {
  public:
    ExtentMap() {
        auto device = fuse::MemoryDevice::create(256U << 20);
        EXPECT_TRUE(device.ok());
        device_ = std::move(device.value());
        EXPECT_TRUE(make_file_system(*device_, {}).ok());
        open();
    }
    ~ExtentMap() {
        EXPECT_TRUE(volume_->close().ok());
        Volume::destroy(volume_);
    }

    void open() {
        VolumeOptions options;
        options.commit_interval_ms = 0;
        Result<Volume*> volume = Volume::open(*device_, options);
        ASSERT_TRUE(volume.ok());
        volume_ = volume.value();
    }
    // Everything is replayed from the journal.
    void crash() {
        ASSERT_TRUE(volume_->sync().ok());
        Volume::destroy(volume_);
        open();
    }
    Volume& volume() { return *volume_; }

    Model look(uint32_t* joinable = nullptr, uint32_t* extents = nullptr) {
        Model model(kFileBlocks + kUnwrittenExtentMaximumBlocks);
        MapCollector collector(model);
        EXPECT_TRUE(walk_extents(*volume_, kNode, 0, kMaximumFileBlocks, collector).ok());
        model.resize(kFileBlocks);
        if (joinable != nullptr) {
            *joinable = collector.joinable_neighbours;
        }
        if (extents != nullptr) {
            *extents = collector.extents;
        }
        return model;
    }

    // What a walk over a part shows, and what it shows in front of it, is what the whole walk has there.
    void expect_parts(std::mt19937_64& random) {
        ExtentList all;
        ASSERT_TRUE(walk_extents(*volume_, kNode, 0, kMaximumFileBlocks, all).ok());
        for (int i = 0; i < 20; ++i) {
            uint64_t first = random() % kFileBlocks;
            if (i % 2 == 0 && !all.seen.empty()) {
                first = all.seen[random() % all.seen.size()].first;  // where an extent begins
            }
            const uint64_t end = first + 1 + random() % 40;
            ExtentList expected;
            for (const auto& [begin, behind] : all.seen) {
                if (behind > first && begin < end) {
                    expected.seen.push_back({begin, behind});
                } else if (begin < first) {
                    expected.before = {begin, behind};
                }
            }
            if (!expected.seen.empty() && expected.seen[0].first <= first) {
                expected.before = {};
            }
            ExtentList part;
            ASSERT_TRUE(walk_extents(*volume_, kNode, first, end, part).ok());
            ASSERT_EQ(part.seen, expected.seen) << first << " to " << end;
            ASSERT_EQ(part.before, expected.before) << first << " to " << end;
        }
    }

    // Maps blocks [first, first + count) in one transaction; several ranges when the device says so.
    Result<void> write(uint64_t first, uint32_t count, bool unwritten, uint64_t seed,
                       Model& model) {
        std::vector<BlockRange> ranges;
        for (uint32_t done = 0; done < count;) {
            BlockRange range =
                TRY(volume_->allocator().allocate(goal_, count - done, SpacePriority::normal));
            goal_ = range.first_block + range.block_count;
            ranges.push_back(range);
            done += static_cast<uint32_t>(range.block_count);
        }
        CountedRange counted = TRY(count_extents(*volume_, kNode, first, first + count, ~0U));
        Transaction transaction(*volume_);
        TRY(transaction.begin(
            SpacePriority::normal,
            extent_change_size(counted.usage, static_cast<uint32_t>(ranges.size()), count, 0)));
        uint64_t block = first;
        for (BlockRange range : ranges) {
            std::vector<uint32_t> checksums;
            for (uint64_t i = 0; i < range.block_count; ++i) {
                auto checksum = static_cast<uint32_t>(seed * 1000 + block + i);
                model[block + i] = {range.first_block + i, unwritten, unwritten ? 0 : checksum};
                checksums.push_back(checksum);
            }
            TRY(transaction.write_extent(
                kNode, block, range.first_block, static_cast<uint32_t>(range.block_count),
                unwritten ? extent_flag::unwritten : 0,
                unwritten ? Span<const uint32_t>()
                          : Span<const uint32_t>(checksums.data(), checksums.size())));
            block += range.block_count;
        }
        TRY(transaction.prepare());
        transaction.commit();
        return {};
    }

    // Writes unwritten blocks where they are, as far as they are contiguous.
    Result<void> convert(uint64_t first, uint32_t count, uint64_t seed, Model& model) {
        uint32_t run = 0;
        while (run < count && model[first + run].unwritten &&
               model[first + run].physical_block == model[first].physical_block + run) {
            ++run;
        }
        if (run == 0) {
            return {};
        }
        CountedRange counted = TRY(count_extents(*volume_, kNode, first, first + run, ~0U));
        Transaction transaction(*volume_);
        TRY(transaction.begin(SpacePriority::normal, extent_change_size(counted.usage, 1, run, 0)));
        std::vector<uint32_t> checksums;
        for (uint32_t i = 0; i < run; ++i) {
            checksums.push_back(static_cast<uint32_t>(seed * 7 + i));
            model[first + i].unwritten = false;
            model[first + i].checksum = checksums.back();
        }
        TRY(transaction.write_extent(kNode, first, model[first].physical_block, run, 0,
                                     Span<const uint32_t>(checksums.data(), checksums.size())));
        TRY(transaction.prepare());
        transaction.commit();
        return {};
    }

    Result<void> unmap(uint64_t first, uint64_t count, Model& model) {
        CountedRange counted = TRY(count_extents(*volume_, kNode, first, first + count, ~0U));
        Transaction transaction(*volume_);
        TRY(transaction.begin(SpacePriority::privileged,
                              extent_change_size(counted.usage, 0, 0, 0)));
        TRY(transaction.unmap(kNode, first, count));
        TRY(transaction.prepare());
        transaction.commit();
        for (uint64_t i = 0; i < count; ++i) {
            model[first + i] = {};
        }
        return {};
    }

  private:
    std::unique_ptr<vfs::BlockDevice> device_;
    Volume* volume_ = nullptr;
    uint64_t goal_ = 0;
};

void expect_no_block_twice(const Model& model) {
    std::map<uint64_t, uint64_t> owners;
    for (uint64_t block = 0; block < model.size(); ++block) {
        if (model[block].physical_block != 0) {
            ASSERT_TRUE(owners.emplace(model[block].physical_block, block).second)
                << "block " << block;
        }
    }
}

class ExtentsRandom : public testing::TestWithParam<uint64_t> {};

TEST_P(ExtentsRandom, MatchesOneEntryForEachBlock) {
    SCOPED_TRACE("seed " + std::to_string(GetParam()));
    std::mt19937_64 random(GetParam());
    ExtentMap map;
    Model model(kFileBlocks);
    for (uint64_t i = 0; i < 3000; ++i) {
        uint64_t first = random() % kFileBlocks;
        uint64_t most = random() % 4 == 0 ? kWrittenExtentMaximumBlocks : 8;
        auto count = static_cast<uint32_t>(std::min(1 + random() % most, kFileBlocks - first));
        switch (random() % 8) {
            case 0:
                ASSERT_TRUE(map.unmap(first, count, model).ok());
                break;
            case 1:
            case 2:
                ASSERT_TRUE(map.write(first, count, true, i, model).ok());
                break;
            case 3:
            case 4:
                ASSERT_TRUE(map.convert(first, count, i, model).ok());
                break;
            default:
                ASSERT_TRUE(map.write(first, count, false, i, model).ok());
        }
        uint64_t dice = random() % 500;
        if (dice == 0) {
            ASSERT_TRUE(map.volume().checkpoint().ok());
        } else if (dice == 1) {
            map.crash();
        }
        if (i % 100 == 0 || dice < 2) {
            ASSERT_EQ(map.look(), model) << "operation " << i;
            map.expect_parts(random);
        }
    }
    ASSERT_EQ(map.look(), model);
    expect_no_block_twice(model);
    ASSERT_TRUE(map.unmap(0, kFileBlocks, model).ok());
    ASSERT_EQ(map.look(), model);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExtentsRandom, testing::Values(1, 2, 3, 4));

TEST(Extents, AppendedBlocksBecomeLargeExtents) {
    ExtentMap map;
    Model model(kFileBlocks);
    for (uint64_t block = 0; block < 1024; ++block) {
        ASSERT_TRUE(map.write(block, 1, false, 1, model).ok());
    }
    uint32_t joinable = 0;
    uint32_t extents = 0;
    ASSERT_EQ(map.look(&joinable, &extents), model);
    EXPECT_EQ(joinable, 0U);
    EXPECT_LE(extents, 6U);
}

TEST(Extents, UnmappedBlocksAreFreeAgain) {
    ExtentMap map;
    Model model(kFileBlocks);
    uint64_t used_before = map.volume().allocator().used_blocks();
    ASSERT_TRUE(map.write(0, 256, false, 1, model).ok());
    ASSERT_TRUE(map.write(100, 50, false, 2, model).ok());
    ASSERT_TRUE(map.write(1000, 500, true, 3, model).ok());
    EXPECT_GE(map.volume().allocator().used_blocks(), used_before + 756);
    ASSERT_TRUE(map.unmap(0, kFileBlocks, model).ok());
    // Nodes of the tree may have come on top.
    EXPECT_LE(map.volume().allocator().used_blocks(), used_before + 16);
}

// ---- What is not an extent --------------------------------------------------------------------

std::vector<unsigned char> extent_bytes(uint64_t physical_block, uint32_t count, uint32_t flags,
                                        size_t checksum_bytes) {
    ExtentValue value{physical_block, 1, count, flags};
    std::vector<unsigned char> bytes(sizeof(value) + checksum_bytes);
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
}

bool accepted(const std::vector<unsigned char>& bytes, uint64_t total_blocks = 65536) {
    return check_extent(ByteSpan(bytes.data(), bytes.size()), total_blocks);
}

TEST(Extents, OnlyWellFormedValuesAreAccepted) {
    EXPECT_TRUE(accepted(extent_bytes(100, 1, 0, 4)));
    EXPECT_TRUE(accepted(extent_bytes(100, 256, 0, 1024)));
    EXPECT_TRUE(accepted(extent_bytes(100, 8192, extent_flag::unwritten, 0)));
    EXPECT_FALSE(accepted({}));
    EXPECT_FALSE(accepted(std::vector<unsigned char>(23)));
    EXPECT_FALSE(accepted(extent_bytes(100, 0, 0, 0)));
    EXPECT_FALSE(accepted(extent_bytes(100, 257, 0, 1028)));
    EXPECT_FALSE(accepted(extent_bytes(100, 2, 0, 4)));
    EXPECT_FALSE(accepted(extent_bytes(100, 2, 0, 12)));
    EXPECT_FALSE(accepted(extent_bytes(100, 1, extent_flag::unwritten, 4)));
    EXPECT_FALSE(accepted(extent_bytes(100, 8193, extent_flag::unwritten, 0)));
    EXPECT_FALSE(accepted(extent_bytes(100, 1, extent_flag::shared, 4)));
    EXPECT_FALSE(accepted(extent_bytes(100, 1, 0x80000000, 4)));
}

TEST(Extents, OnlyBlocksThatCanHoldDataAreAccepted) {
    // Superblocks and bitmaps at the beginning, at the start of groups, and the last two blocks.
    EXPECT_FALSE(accepted(extent_bytes(0, 1, 0, 4)));
    EXPECT_FALSE(accepted(extent_bytes(3, 1, 0, 4)));
    EXPECT_TRUE(accepted(extent_bytes(4, 1, 0, 4)));
    EXPECT_FALSE(accepted(extent_bytes(16384, 1, 0, 4)));
    EXPECT_FALSE(accepted(extent_bytes(16385, 1, 0, 4)));
    EXPECT_TRUE(accepted(extent_bytes(16386, 1, 0, 4)));
    EXPECT_TRUE(accepted(extent_bytes(16380, 4, 0, 16)));
    EXPECT_FALSE(accepted(extent_bytes(16380, 5, 0, 20)));
    EXPECT_TRUE(accepted(extent_bytes(65533, 1, 0, 4)));
    EXPECT_FALSE(accepted(extent_bytes(65533, 2, 0, 8)));
    EXPECT_FALSE(accepted(extent_bytes(65536, 1, 0, 4)));
    EXPECT_FALSE(accepted(extent_bytes(~uint64_t{0}, 2, 0, 8)));
    EXPECT_FALSE(accepted(extent_bytes(~uint64_t{0} - 1, 256, extent_flag::unwritten, 0)));
}

TEST(Extents, FileBlocksBeyondTheLargestFileAreRefused) {
    auto bytes = extent_bytes(100, 2, 0, 8);
    ByteSpan value(bytes.data(), bytes.size());
    MappedExtent extent;
    EXPECT_TRUE(parse_extent(make_key(5, Kind::extent, 7), value, 65536, extent));
    EXPECT_EQ(extent.file_block, 7U);
    EXPECT_EQ(extent.end_block(), 9U);
    EXPECT_TRUE(
        parse_extent(make_key(5, Kind::extent, kMaximumFileBlocks - 2), value, 65536, extent));
    EXPECT_FALSE(
        parse_extent(make_key(5, Kind::extent, kMaximumFileBlocks - 1), value, 65536, extent));
    EXPECT_FALSE(parse_extent(make_key(5, Kind::extent, kKeyOffsetMask), value, 65536, extent));
    EXPECT_FALSE(parse_extent(make_key(5, Kind::xattr, 7), value, 65536, extent));
}

// A transaction over a map that cannot be is refused and changes nothing.
TEST(Extents, OverlappingExtentsAreDamage) {
    ExtentMap map;
    Model model(kFileBlocks);
    ASSERT_TRUE(map.write(10, 20, false, 1, model).ok());
    auto overlapping = extent_bytes(5000, 4, 0, 16);
    {
        Transaction transaction(map.volume());
        ASSERT_TRUE(transaction.begin(SpacePriority::normal).ok());
        ASSERT_TRUE(transaction
                        .put(make_key(kNode, Kind::extent, 15),
                             ByteSpan(overlapping.data(), overlapping.size()))
                        .ok());
        ASSERT_TRUE(transaction.prepare().ok());
        transaction.commit();
    }
    for (auto [first, count] : {std::pair<uint64_t, uint64_t>{0, 100}, {12, 1}, {12, 4}, {5, 20}}) {
        Transaction transaction(map.volume());
        ASSERT_TRUE(transaction.begin(SpacePriority::normal).ok());
        ASSERT_TRUE(transaction.unmap(kNode, first, count).ok());
        Result<void> prepared = transaction.prepare();
        ASSERT_FALSE(prepared.ok()) << first << "+" << count;
        EXPECT_EQ(prepared.error(), Error::euclean);
    }
}

TEST(Extents, FreedRangesAreJoinedAndKept) {
    FreedRanges freed;
    ASSERT_TRUE(freed.reserve(20).ok());
    ASSERT_TRUE(freed.reserve(20).ok());
    freed.add({100, 10});
    freed.add({90, 10});
    freed.add({110, 5});
    ASSERT_EQ(freed.size(), 1U);
    EXPECT_EQ(freed[0].first_block, 90U);
    EXPECT_EQ(freed[0].block_count, 25U);
    for (uint64_t i = 1; i < 40; ++i) {
        freed.add({1000 * i, 1});
    }
    ASSERT_EQ(freed.size(), 40U);
    EXPECT_EQ(freed[39].first_block, 39000U);
    freed.clear();
    EXPECT_EQ(freed.size(), 0U);
}

}  // namespace
}  // namespace tiffin::tiffinfs
