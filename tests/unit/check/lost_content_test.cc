// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a repair cannot bring back: it reads as an error, never as zeros; every check names it; and writing it
// anew, cutting it off or removing it makes the volume whole again.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fuse/host/log_sink.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using test::TestVolume;
using tiffinfs::kBlockBytes;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::make_key;

constexpr uint64_t kBlocks = 600;
constexpr const char* kScattered = "/directory/scattered";

bool names(const Report& report, Code code, const std::string& path) {
    return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& finding) {
        return finding.code == code && finding.where.find("\"" + path + "\"") != std::string::npos;
    });
}

// A volume with a file that has `content` behind 16 blocks, which are a hole, or reserved.
void make_file_behind_a_gap(CrashDevice& device, const std::string& content, bool is_reserved) {
    TestVolume volume(device);
    ASSERT_TRUE(volume.make().ok());
    ASSERT_TRUE(volume.mount().ok());
    ASSERT_TRUE(volume.create("/file").ok());
    ASSERT_TRUE(!is_reserved || volume.allocate("/file", 0, 0, 16 * kBlockBytes).ok());
    ASSERT_TRUE(volume.write("/file", 16 * kBlockBytes, content).ok());
    ASSERT_TRUE(volume.unmount().ok());
}

// One flipped bit makes reserved space reach over the content behind it, in the file and mostly on the device, too.
TEST(OverlapRepair, ReservedSpaceGivesWayToContent) {
    CrashDevice device(kDeviceBytes);
    const std::string content = test::test_content(1, 300 * kBlockBytes);
    ASSERT_NO_FATAL_FAILURE(make_file_behind_a_gap(device, content, true));
    ImageEditor editor(device);
    const Key first = make_key(editor.node_of("/file"), Kind::extent, 0);
    auto extent = editor.value<tiffinfs::ExtentValue>(first);
    ASSERT_EQ(extent.flags, tiffinfs::extent_flag::unwritten);
    ASSERT_EQ(extent.block_count, 16U);
    extent.block_count |= 512;
    editor.put(first, bytes_of(extent));
    const Report report = repair_completely(device);
    EXPECT_TRUE(report.has(Code::extent_overlap)) << text_of(report);
    EXPECT_TRUE(see(device).at("/file").content == std::string(16 * kBlockBytes, '\0') + content);
}

TEST(OverlapRepair, AMarkOfALossGivesWayToContentAndStaysInTheGaps) {
    CrashDevice device(kDeviceBytes);
    const std::string content = test::test_content(1, 300 * kBlockBytes);
    ASSERT_NO_FATAL_FAILURE(make_file_behind_a_gap(device, content, false));
    ImageEditor editor(device);
    editor.put(make_key(editor.node_of("/file"), Kind::extent, 0),
               bytes_of(tiffinfs::ExtentValue{0, 0, 1000, tiffinfs::extent_flag::lost}));
    (void)repair_completely(device);
    TestVolume volume(device);
    ASSERT_TRUE(volume.mount().ok());
    Result<vfs::NodeId> node = volume.find("/file");
    ASSERT_TRUE(node.ok());
    std::string bytes(content.size(), '\0');
    const vfs::IoVector piece{bytes.data(), bytes.size()};
    const Span<const vfs::IoVector> pieces(&piece, 1);
    Result<size_t> read = volume.file_system().read(node.value(), 0, 16 * kBlockBytes, pieces);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read.value(), bytes.size());
    EXPECT_TRUE(bytes == content);
    EXPECT_EQ(volume.file_system().read(node.value(), 0, 0, pieces).error(), Error::eio);
}

class LostContent : public testing::Test {
  protected:
    LostContent() : device_(kDeviceBytes) {
        make_populated(device_, 60);
        TestVolume volume(device_);
        EXPECT_TRUE(volume.mount().ok());
        // From the end to the beginning, so that each block is an extent of its own.
        for (uint64_t block = kBlocks; block-- > 0;) {
            EXPECT_TRUE(volume.write(kScattered, block * kBlockBytes, content(block)).ok());
        }
        EXPECT_TRUE(volume.unmount().ok());
        ImageEditor editor(device_);
        forget_older_generation(editor);
    }

    static std::string content(uint64_t block) {
        return test::test_content(1000 + block, kBlockBytes);
    }
    // Destroys the leaf that holds `key`, and repairs the volume.
    Report lose_leaf(Key key) {
        ImageEditor editor(device_);
        editor.flip_bit(editor.leaf_block(key), 2000, 3);
        return repair_completely(device_);
    }
    Report lose_extents() {
        ImageEditor editor(device_);
        return lose_leaf(make_key(editor.node_of(kScattered), Kind::extent, 300));
    }

    static Result<std::string> read_block_of(TestVolume& volume, uint64_t block) {
        std::string bytes(kBlockBytes, '\0');
        const vfs::IoVector piece{bytes.data(), bytes.size()};
        const vfs::NodeId node = TRY(volume.find(kScattered));
        Result<size_t> size = volume.file_system().read(node, 0, block * kBlockBytes,
                                                        Span<const vfs::IoVector>(&piece, 1));
        volume.file_system().forget(node, 1);
        bytes.resize(TRY(std::move(size)));
        return bytes;
    }
    // The blocks that give EIO; all others have their content.
    static std::vector<uint64_t> lost_blocks(TestVolume& volume) {
        std::vector<uint64_t> lost;
        for (uint64_t block = 0; block < kBlocks; ++block) {
            const Result<std::string> bytes = read_block_of(volume, block);
            if (bytes.ok()) {
                EXPECT_TRUE(bytes.value() == content(block)) << block;
            } else {
                EXPECT_EQ(errno_value(bytes.error()), errno_value(Error::eio)) << block;
                lost.push_back(block);
            }
        }
        return lost;
    }

    CrashDevice device_;
    fuse::CapturedLog log_;
};

TEST_F(LostContent, ReadsAsAnErrorAndIsNamedByPath) {
    const Report report = lose_extents();
    EXPECT_TRUE(names(report, Code::content_missing, kScattered)) << text_of(report);
    const Report later = run_check(device_);
    EXPECT_TRUE(names(later, Code::content_lost, kScattered)) << text_of(later);
    EXPECT_EQ(later.not_repaired, 1U);

    TestVolume volume(device_);
    ASSERT_TRUE(volume.mount().ok());
    const std::vector<uint64_t> lost = lost_blocks(volume);
    EXPECT_GT(lost.size(), 20U);
    EXPECT_LT(lost.size(), kBlocks / 2);
    EXPECT_EQ(lost.back() - lost.front() + 1, lost.size());
    EXPECT_TRUE(volume.unmount().ok());
}

TEST_F(LostContent, IsNoHole) {
    (void)lose_extents();
    TestVolume volume(device_);
    ASSERT_TRUE(volume.mount().ok());
    const Result<vfs::NodeId> node = volume.find(kScattered);
    ASSERT_TRUE(node.ok());
    const Result<uint64_t> hole = volume.file_system().seek(node.value(), 0, vfs::SeekTarget::hole);
    ASSERT_TRUE(hole.ok());
    EXPECT_EQ(hole.value(), kBlocks * kBlockBytes);
    volume.file_system().forget(node.value(), 1);
}

// A partial write would have to make up the rest of the block.
TEST_F(LostContent, IsNotFilledUpByAPartialWrite) {
    (void)lose_extents();
    TestVolume volume(device_);
    ASSERT_TRUE(volume.mount().ok());
    const std::vector<uint64_t> lost = lost_blocks(volume);
    ASSERT_FALSE(lost.empty());
    const Result<void> written =
        volume.write(kScattered, lost.front() * kBlockBytes + 10, "some bytes");
    EXPECT_EQ(errno_value(written.error()), errno_value(Error::eio));
    const Result<void> cut = volume.truncate(kScattered, lost.front() * kBlockBytes + 10);
    EXPECT_EQ(errno_value(cut.error()), errno_value(Error::eio));
    EXPECT_EQ(lost_blocks(volume), lost);
}

TEST_F(LostContent, IsHealedByWritingItAnew) {
    (void)lose_extents();
    {
        TestVolume volume(device_);
        ASSERT_TRUE(volume.mount().ok());
        for (const uint64_t block : lost_blocks(volume)) {
            ASSERT_TRUE(volume.write(kScattered, block * kBlockBytes, content(block)).ok());
        }
        EXPECT_TRUE(lost_blocks(volume).empty());
        ASSERT_TRUE(volume.unmount().ok());
    }
    const Report report = run_check(device_, {.verify_data = true});
    EXPECT_TRUE(report.clean()) << text_of(report);
}

TEST_F(LostContent, IsHealedByHolesZerosAndTruncation) {
    (void)lose_extents();
    {
        TestVolume volume(device_);
        ASSERT_TRUE(volume.mount().ok());
        std::vector<uint64_t> lost = lost_blocks(volume);
        ASSERT_GT(lost.size(), 6U);
        const uint64_t first = lost.front() * kBlockBytes;
        ASSERT_TRUE(volume
                        .allocate(kScattered,
                                  vfs::allocate_flag::punch_hole | vfs::allocate_flag::keep_size,
                                  first, kBlockBytes)
                        .ok());
        ASSERT_TRUE(volume
                        .allocate(kScattered, vfs::allocate_flag::zero_range, first + kBlockBytes,
                                  kBlockBytes)
                        .ok());
        const std::string zeros(kBlockBytes, '\0');
        EXPECT_TRUE(read_block_of(volume, lost[0]).value() == zeros);
        EXPECT_TRUE(read_block_of(volume, lost[1]).value() == zeros);
        // What lies behind moves along, lost or not.
        ASSERT_TRUE(
            volume.allocate(kScattered, vfs::allocate_flag::collapse_range, first, 2 * kBlockBytes)
                .ok());
        EXPECT_FALSE(read_block_of(volume, lost[0]).ok());
        ASSERT_TRUE(
            volume.allocate(kScattered, vfs::allocate_flag::insert_range, first, 2 * kBlockBytes)
                .ok());
        EXPECT_TRUE(read_block_of(volume, lost[0]).value() == zeros);
        EXPECT_FALSE(read_block_of(volume, lost[2]).ok());
        // The part in front of the cut stays lost.
        ASSERT_TRUE(volume.truncate(kScattered, lost[4] * kBlockBytes).ok());
        EXPECT_FALSE(read_block_of(volume, lost[3]).ok());
        ASSERT_TRUE(volume.truncate(kScattered, lost[2] * kBlockBytes).ok());
        ASSERT_TRUE(volume.unmount().ok());
    }
    const Report report = run_check(device_, {.verify_data = true});
    EXPECT_TRUE(report.clean()) << text_of(report);
}

TEST_F(LostContent, ThatWasInTheTreeReadsAsAnErrorToo) {
    ImageEditor editor(device_);
    const uint64_t long_link = editor.node_of("/long-link");
    const uint64_t last = editor.node_of("/many/file-50");
    EXPECT_TRUE(editor.has(make_key(last, Kind::inline_data, 0)));
    (void)lose_leaf(make_key(long_link, Kind::symlink, 1));
    (void)lose_leaf(make_key(last, Kind::inline_data, 0));
    TestVolume volume(device_);
    ASSERT_TRUE(volume.mount().ok());
    Result<test::SeenTree> seen = volume.see(TestVolume::Unreadable::shown);
    ASSERT_TRUE(seen.ok());
    const auto link = seen.value().find("/long-link");
    if (link != seen.value().end()) {
        EXPECT_EQ(link->second.content, test::kUnreadable);
    }
    uint32_t intact = 0;
    for (const auto& [path, object] : seen.value()) {
        const std::string prefix = "/many/file-";
        if (path.rfind(prefix, 0) == 0 && object.content != test::kUnreadable) {
            const uint64_t i = std::stoull(path.substr(prefix.size()));
            EXPECT_TRUE(object.content == test::test_content(100 + i, i % 7 * 200)) << path;
            ++intact;
        }
    }
    EXPECT_GT(intact, 30U);
}

// One run without a yes leaves everything as it is: files with holes are not called repaired.
TEST_F(LostContent, IsNotWrittenWithoutItsMark) {
    ImageEditor editor(device_);
    editor.flip_bit(editor.leaf_block(make_key(editor.node_of(kScattered), Kind::extent, 300)),
                    2000, 3);
    const Bytes before = image_of(device_);
    const Report report =
        run_check(device_, {.repair = true, .may_repair = [](const Finding& finding) {
                                return finding.code != Code::content_missing;
                            }});
    EXPECT_TRUE(report.has(Code::content_missing)) << text_of(report);
    EXPECT_FALSE(report.changed);
    EXPECT_TRUE(image_of(device_) == before);
}

// An extent that reaches over the border of two others loses both its ends to them, and takes nothing from the second.
TEST(OverlapRepair, LeavesWhatBeginsInItAlone) {
    test::CrashDevice device(kDeviceBytes);
    const std::string content = test::test_content(1, 301 * tiffinfs::kBlockBytes);
    {
        test::TestVolume volume(device);
        MUST(volume.make());
        MUST(volume.mount());
        MUST(volume.write("/file", 0, content));
        MUST(volume.unmount());
    }
    ImageEditor editor(device);
    const uint64_t node = editor.node_of("/file");
    const auto key = [&](uint64_t block) {
        return tiffinfs::make_key(node, tiffinfs::Kind::extent, block);
    };
    ASSERT_EQ(editor.value<tiffinfs::ExtentValue>(key(0)).block_count, 256U);
    ASSERT_EQ(editor.value<tiffinfs::ExtentValue>(key(256)).block_count, 45U);
    editor.put(key(230), bytes_of(tiffinfs::ExtentValue{editor.superblock().total_blocks - 200, 1,
                                                        45, tiffinfs::extent_flag::unwritten}));
    const Report report = repair_completely(device);
    EXPECT_TRUE(report.has(Code::extent_overlap)) << text_of(report);
    EXPECT_EQ(see(device).at("/file").content, content);
}

}  // namespace
}  // namespace tiffin::check
