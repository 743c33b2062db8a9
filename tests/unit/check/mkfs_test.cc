// SPDX-License-Identifier: MIT OR GPL-2.0-only
// mkfs.tiffin as a program: what it prints, what it returns, what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "tests/unit/check/tools_support.h"

namespace tiffin::check {
namespace {

namespace files = std::filesystem;

TEST_F(Tools, MkfsMakesAnImageAndSaysSo) {
    const Outcome made =
        run("mkfs.tiffin",
            "-L books -U 01234567-89ab-cdef-0123-456789abcdef -J 4M " + image_ + " 100M");
    EXPECT_EQ(made.status, 0);
    expect_contains(made, "uuid     01234567-89ab-cdef-0123-456789abcdef");
    expect_contains(made, "label    \"books\"");
    expect_contains(made, "25600 blocks of 4096 bytes");
    expect_contains(made, "journal  4 MiB");
    EXPECT_EQ(files::file_size(image_), 100U << 20);
    const Outcome checked = run("fsck.tiffin", "-n " + image_);
    EXPECT_EQ(checked.status, 0) << checked.output;
}

TEST_F(Tools, MkfsRefusesWhatItWouldDestroy) {
    make();
    const Outcome again = run("mkfs.tiffin", image_);
    EXPECT_EQ(again.status, 1);
    expect_contains(again, "holds tiffinfs; nothing was written");
    EXPECT_EQ(run("mkfs.tiffin", "-f -q " + image_).status, 0);
}

std::string little(uint64_t value, size_t bytes) {
    std::string text;
    for (size_t i = 0; i < bytes; ++i) {
        text += static_cast<char>(value >> 8 * i & 0xff);
    }
    return text;
}

// The least that makes libblkid sure.
struct Contents {
    std::string type;
    struct Piece {
        uint64_t offset;
        std::string bytes;
    };
    std::vector<Piece> pieces;

    friend void PrintTo(const Contents& contents, std::ostream* out) { *out << contents.type; }
};

constexpr uint64_t kImageBytes = 64U << 20;
constexpr uint64_t kEnd = kImageBytes;
const std::string kRaidMagic = "\xfc\x4e\x2b\xa9";

const std::vector<Contents> kContents = {
    {"ext2", {{1080, "\x53\xef"}}},
    {"btrfs", {{65600, "_BHRfS_M"}}},
    {"f2fs", {{1024, little(0xf2f52010, 4) + little(1, 2)}}},
    {"squashfs", {{0, "hsqs"}, {28, "\x04"}}},
    {"iso9660",
     {{32768,
       "\x01"
       "CD001"}}},
    {"exfat", {{3, "EXFAT   "}}},
    {"ocfs2", {{8192, "OCFSV2"}}},
    {"gfs2",
     {{65536, std::string("\x01\x16\x19\x70\0\0\0\1", 8)},
      {65536 + 24, std::string("\0\0\x07\x09\0\0\x07\x6c", 8)}}},
    {"hfsplus",
     {{1024, std::string("H+\0\4", 4)}, {1024 + 40, std::string("\0\0\x10\0\0\0\x40\0", 8)}}},
    {"apfs",
     {{8, little(1, 8) + little(1, 8) + little(0x80000001, 4) + little(0, 4) + "NXSB" +
              little(4096, 4)}}},
    {"udf",
     {{32769, "BEA01\1"},
      {34817, "NSR02\1"},
      {36865, "TEA01\1"},
      {uint64_t{256} * 2048, little(2, 2) + little(2, 2) + little(0, 8) + little(256, 4)}}},
    {"bcachefs", {{4120, "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"}}},
    {"bcache",
     {{4104, "\x08"}, {4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"}}},
    {"ceph_bluestore", {{0, "bluestore block device\n"}}},
    {"swap", {{1024, little(1, 4) + little(1000, 4)}, {4086, "SWAPSPACE2"}}},
    {"crypto_LUKS", {{0, std::string("LUKS\xba\xbe\0\2", 8)}}},
    {"LVM2_member", {{512, "LABELONE" + little(1, 8) + little(0, 4) + little(32, 4) + "LVM2 001"}}},
    // RAID with its superblock at the start, and at the end: versions 1.2, 1.0 and 0.90.
    {"linux_raid_member", {{4096, kRaidMagic + little(1, 4)}, {4096 + 144, little(8, 8)}}},
    {"linux_raid_member",
     {{kEnd - 8192, kRaidMagic + little(1, 4)},
      {kEnd - 8192 + 144, little((kEnd - 8192) / 512, 8)}}},
    {"linux_raid_member", {{kEnd - 65536, kRaidMagic + little(0, 4) + little(90, 4)}}},
    {"dos", {{510, "\x55\xaa"}}},
};

class MkfsOver : public Tools, public testing::WithParamInterface<Contents> {};

TEST_P(MkfsOver, IsRefused) {
    make_empty(kImageBytes);
    for (const Contents::Piece& piece : GetParam().pieces) {
        put_text(piece.offset, piece.bytes);
    }
    const Outcome refused = run("mkfs.tiffin", image_);
    EXPECT_EQ(refused.status, 1);
    expect_contains(refused, "(" + GetParam().type + "); nothing was written");
    EXPECT_EQ(run("mkfs.tiffin", "-f -q " + image_).status, 0);
    EXPECT_EQ(run("fsck.tiffin", "-n " + image_).status, 0);
    const Outcome left = run_shell("blkid -p " + image_);
    EXPECT_EQ(left.status, 2) << left.output;  // it finds nothing
}
INSTANTIATE_TEST_SUITE_P(Contents, MkfsOver, testing::ValuesIn(kContents));

// ZFS is believed with several labels, of which half are at the end.
TEST_F(Tools, MkfsSeesZfsAtTheEnd) {
    make_empty(kImageBytes);
    for (const uint64_t label :
         {uint64_t{0}, uint64_t{256} << 10, kEnd - (512U << 10), kEnd - (256U << 10)}) {
        for (uint64_t i = 0; i < 128; ++i) {
            put_text(label + (128U << 10) + i * 1024, little(0x00bab10c, 8));
        }
    }
    const Outcome refused = run("mkfs.tiffin", image_);
    EXPECT_EQ(refused.status, 1);
    expect_contains(refused, "(zfs_member); nothing was written");
    EXPECT_EQ(run("mkfs.tiffin", "-f -q " + image_).status, 0);
    EXPECT_EQ(run_shell("blkid -p " + image_).status, 2);
}

// Somebody has to look before any of them is lost.
TEST_F(Tools, MkfsSeesSeveralThingsAtOnce) {
    make_empty(kImageBytes);
    put_text(1080, "\x53\xef");
    put_text(65600, "_BHRfS_M");
    const Outcome refused = run("mkfs.tiffin", image_);
    EXPECT_EQ(refused.status, 1);
    expect_contains(refused, "holds traces of several file systems");
}

TEST_F(Tools, MkfsSaysWhatIsWrong) {
    const Outcome missing = run("mkfs.tiffin", image_);
    EXPECT_EQ(missing.status, 1);
    expect_contains(missing, "there is no such file or device");
    const Outcome small = run("mkfs.tiffin", image_ + " 1M");
    EXPECT_EQ(small.status, 2);
    expect_contains(small, "at least 8M");
    EXPECT_FALSE(files::exists(image_));
    const Outcome blocks = run("mkfs.tiffin", "-b 1024 " + image_ + " 64M");
    EXPECT_EQ(blocks.status, 2);
    expect_contains(blocks, "the block size is 4096");
    const Outcome uuid = run("mkfs.tiffin", "-U nonsense " + image_ + " 64M");
    EXPECT_EQ(uuid.status, 2);
    expect_contains(uuid, "is not a UUID");
    const Outcome label = run("mkfs.tiffin", "-L " + std::string(64, 'x') + " " + image_ + " 64M");
    EXPECT_EQ(label.status, 2);
    expect_contains(label, "at most 63");
    const Outcome journal = run("mkfs.tiffin", "-J 60M " + image_ + " 64M");
    EXPECT_EQ(journal.status, 1);
    expect_contains(journal, "a journal of 60 MiB is not possible");
    EXPECT_EQ(run("mkfs.tiffin", "--nonsense").status, 2);
    EXPECT_EQ(run("mkfs.tiffin", "").status, 2);
    EXPECT_EQ(run("mkfs.tiffin", "--help").status, 0);
    EXPECT_EQ(run("mkfs.tiffin", "--version").status, 0);
}

TEST_F(Tools, MkfsThatFailsLeavesNoNewImage) {
    EXPECT_EQ(run("mkfs.tiffin", "-J 60M " + image_ + " 64M").status, 1);
    EXPECT_FALSE(files::exists(image_));
    const Outcome again = run("mkfs.tiffin", "-J 16M " + image_ + " 64M");
    EXPECT_EQ(again.status, 0) << again.output;
    EXPECT_EQ(run("mkfs.tiffin", "-f -J 60M " + image_).status, 1);
    EXPECT_TRUE(files::exists(image_)) << "it was there before";
    EXPECT_EQ(run("fsck.tiffin", "-n " + image_).status, 0);
}

TEST_F(Tools, MkfsSizeIsForNewFilesOnly) {
    make();
    const Outcome sized = run("mkfs.tiffin", "-f " + image_ + " 128M");
    EXPECT_EQ(sized.status, 1);
    expect_contains(sized, "exists already");
    EXPECT_EQ(files::file_size(image_), 64U << 20);
}

TEST_F(Tools, MkfsDryRunWritesNothing) {
    const Outcome created = run("mkfs.tiffin", "-n " + image_ + " 64M");
    EXPECT_EQ(created.status, 0) << created.output;
    expect_contains(created, "would make");
    EXPECT_FALSE(files::exists(image_));
    make_empty(64U << 20);
    EXPECT_EQ(run("mkfs.tiffin", "-n " + image_).status, 0);
    EXPECT_EQ(run("fsck.tiffin", "-n " + image_).status, 8);
}

TEST_F(Tools, MkfsOfManySizes) {
    for (const char* size : {"8M", "65M", "67112960", "1G", "16G", "3T"}) {
        files::remove(image_);
        const Outcome made = run("mkfs.tiffin", image_ + " " + size);
        EXPECT_EQ(made.status, 0) << size << ": " << made.output;
        const Outcome checked = run("fsck.tiffin", "-n " + image_);
        EXPECT_EQ(checked.status, 0) << size << ": " << checked.output;
    }
}

}  // namespace
}  // namespace tiffin::check
