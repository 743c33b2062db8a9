// SPDX-License-Identifier: MIT OR GPL-2.0-only
// mkfs.tiffin as a program: what it prints, what it returns, what it refuses.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

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
    expect_contains(again, "holds tiffinfs: use -f to overwrite it");
    EXPECT_EQ(run("mkfs.tiffin", "-f -q " + image_).status, 0);

    struct Other {
        uint64_t offset;
        std::string magic;
        std::string name;
    };
    for (const Other& other :
         {Other{1080, "\x53\xef", "ext2, ext3 or ext4"}, Other{0, "XFSB", "XFS"},
          Other{65600, "_BHRfS_M", "Btrfs"}, Other{4086, "SWAPSPACE2", "swap space"},
          Other{0, "LUKS\xba\xbe", "a LUKS volume"}, Other{3, "NTFS    ", "NTFS"},
          Other{82, "FAT32   ", "FAT"}, Other{0, "hsqs", "SquashFS"}}) {
        make_empty(64U << 20);
        put_text(other.offset, other.magic);
        const Outcome refused = run("mkfs.tiffin", image_);
        EXPECT_EQ(refused.status, 1);
        expect_contains(refused, "holds " + other.name);
        EXPECT_EQ(run("mkfs.tiffin", "-f -q " + image_).status, 0);
    }
}

TEST_F(Tools, MkfsSaysWhatIsWrong) {
    const Outcome missing = run("mkfs.tiffin", image_);
    EXPECT_EQ(missing.status, 1);
    expect_contains(missing, "there is no such file or device");
    const Outcome small = run("mkfs.tiffin", image_ + " 1M");
    EXPECT_EQ(small.status, 1);
    expect_contains(small, "at least 8M");
    EXPECT_FALSE(files::exists(image_));
    const Outcome blocks = run("mkfs.tiffin", "-b 1024 " + image_ + " 64M");
    EXPECT_EQ(blocks.status, 1);
    expect_contains(blocks, "the block size is 4096");
    const Outcome uuid = run("mkfs.tiffin", "-U nonsense " + image_ + " 64M");
    EXPECT_EQ(uuid.status, 1);
    expect_contains(uuid, "is not a UUID");
    const Outcome label = run("mkfs.tiffin", "-L " + std::string(64, 'x') + " " + image_ + " 64M");
    EXPECT_EQ(label.status, 1);
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
