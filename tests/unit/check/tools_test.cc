// SPDX-License-Identifier: MIT OR GPL-2.0-only
// mkfs.tiffin and fsck.tiffin as programs: what they print, what they return, what they refuse.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "fs/tiffinfs/format.h"
#include "fuse/check/check.h"
#include "fuse/host/device_address.h"
#include "tests/support/test_volume.h"

namespace tiffin::check {
namespace {

namespace files = std::filesystem;

struct Outcome {
    int status = -1;
    std::string output;  // standard output and standard error
};

// The programs are built beside the tests: BUILD/bin and BUILD/tests.
std::string program(const std::string& name) {
    const files::path self = files::read_symlink("/proc/self/exe");
    return (self.parent_path().parent_path() / "bin" / name).string();
}

Outcome run(const std::string& name, const std::string& arguments) {
    const std::string command = program(name) + " " + arguments + " 2>&1 </dev/null";
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) {
        return outcome;
    }
    char buffer[4096];
    while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) {
        outcome.output.append(buffer, got);
    }
    const int status = pclose(pipe);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
}

class Tools : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/tiffin-tools-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder_ = name;
        image_ = folder_ + "/image";
        ASSERT_TRUE(files::exists(program("mkfs.tiffin"))) << "build mkfs.tiffin first";
        ASSERT_TRUE(files::exists(program("fsck.tiffin"))) << "build fsck.tiffin first";
    }
    void TearDown() override { files::remove_all(folder_); }

    void make() {
        const Outcome made = run("mkfs.tiffin", "-q " + image_ + " 64M");
        ASSERT_EQ(made.status, 0) << made.output;
        ASSERT_EQ(made.output, "");
    }

    // Changes a byte of the image.
    void damage(uint64_t offset) {
        std::fstream file(image_, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(static_cast<std::streamoff>(offset));
        const char byte = static_cast<char>(file.get() ^ 0x10);
        file.seekp(static_cast<std::streamoff>(offset));
        file.put(byte);
        ASSERT_TRUE(file.good());
    }

    void put_text(uint64_t offset, const std::string& text) {
        std::fstream file(image_, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(offset));
        file << text;
        ASSERT_TRUE(file.good());
    }

    template <typename Use>
    void with_volume(Use use) {
        auto device = fuse::open_device(image_, {});
        ASSERT_TRUE(device.ok()) << device.problem().text;
        test::TestVolume volume(**device);
        ASSERT_TRUE(volume.mount().ok());
        use(volume);
    }

    std::string folder_;
    std::string image_;
};

void expect_contains(const Outcome& outcome, const std::string& text) {
    EXPECT_NE(outcome.output.find(text), std::string::npos) << outcome.output;
}

// ---- mkfs.tiffin --------------------------------------------------------------------------------

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
        files::remove(image_);
        std::ofstream(image_).put('\0');
        files::resize_file(image_, 64U << 20);
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
    std::ofstream(image_).put('\0');
    files::resize_file(image_, 64U << 20);
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

// ---- fsck.tiffin --------------------------------------------------------------------------------

TEST_F(Tools, FsckOfACleanVolume) {
    make();
    for (const char* options :
         {"", "-n ", "-y ", "-p ", "-a ", "-f -y ", "-n --data -v ", "-C -n ", "-C0 -n "}) {
        const Outcome checked = run("fsck.tiffin", options + image_);
        EXPECT_EQ(checked.status, 0) << options << checked.output;
        expect_contains(checked, "clean, 1 objects");
    }
}

TEST_F(Tools, FsckUsage) {
    EXPECT_EQ(run("fsck.tiffin", "").status, 16);
    EXPECT_EQ(run("fsck.tiffin", "-n -y " + image_).status, 16);
    EXPECT_EQ(run("fsck.tiffin", "--nonsense " + image_).status, 16);
    EXPECT_EQ(run("fsck.tiffin", "--help").status, 0);
    const Outcome missing = run("fsck.tiffin", "-n " + image_);
    EXPECT_EQ(missing.status, 8);
    expect_contains(missing, "there is no such file or device");
    std::ofstream(image_).put('\0');
    files::resize_file(image_, 64U << 20);
    const Outcome nothing = run("fsck.tiffin", "-y " + image_);
    EXPECT_EQ(nothing.status, 8);
    expect_contains(nothing, "[superblock-missing]");
}

TEST_F(Tools, FsckOfADeviceInUse) {
    make();
    with_volume([&](test::TestVolume&) {
        for (const char* options : {"-n ", "-y "}) {
            const Outcome checked = run("fsck.tiffin", options + image_);
            EXPECT_EQ(checked.status, 8);
            expect_contains(checked, "is in use by another process");
        }
        const Outcome made = run("mkfs.tiffin", "-f " + image_);
        EXPECT_EQ(made.status, 1);
        expect_contains(made, "is in use by another process");
    });
}

TEST_F(Tools, FsckFindsAndRepairs) {
    make();
    damage((64U << 20) - 4096 + 100);  // the second copy of the newest superblock
    const Outcome asked = run("fsck.tiffin", image_);
    EXPECT_EQ(asked.status, 4) << asked.output;
    expect_contains(asked, "changing nothing, as with -n");
    const Outcome found = run("fsck.tiffin", "-n " + image_);
    EXPECT_EQ(found.status, 4) << found.output;
    expect_contains(found, "harmless: superblock B, second copy");
    expect_contains(found, "fsck.tiffin -f -y repairs");
    const Outcome repaired = run("fsck.tiffin", "-p " + image_);
    EXPECT_EQ(repaired.status, 1) << repaired.output;
    expect_contains(repaired, "1 problem repaired");
    EXPECT_EQ(run("fsck.tiffin", "-n " + image_).status, 0);
}

TEST_F(Tools, FsckPreensOnlyWhatIsSafe) {
    make();
    // The root leaf of a new volume: there is no older generation to go back to.
    damage(tiffinfs::kBlockBytes * (4 + 1024) + 200);
    const Outcome safe = run("fsck.tiffin", "-p -f " + image_);
    EXPECT_EQ(safe.status, 4) << safe.output;
    expect_contains(safe, "[node-invalid]");
    const Outcome all = run("fsck.tiffin", "-y -f " + image_);
    EXPECT_EQ(all.status, 1) << all.output;
    EXPECT_EQ(run("fsck.tiffin", "-n " + image_).status, 0);
}

TEST_F(Tools, FsckReplaysTheJournal) {
    make();
    with_volume([](test::TestVolume& volume) {
        ASSERT_TRUE(volume.write("/file", 0, "content").ok());
        ASSERT_TRUE(volume.sync().ok());
        volume.abandon();
    });
    const Outcome looked = run("fsck.tiffin", "-n " + image_);
    EXPECT_EQ(looked.status, 0) << looked.output;
    expect_contains(looked, "[journal-pending]");
    const Outcome replayed = run("fsck.tiffin", "-p " + image_);
    EXPECT_EQ(replayed.status, 0) << replayed.output;
    const Outcome clean = run("fsck.tiffin", "-p " + image_);
    EXPECT_EQ(clean.status, 0);
    expect_contains(clean, "clean, 2 objects");
    with_volume([](test::TestVolume& volume) {
        EXPECT_EQ(volume.read("/file").value_or(""), "content");
        ASSERT_TRUE(volume.unmount().ok());
    });
}

TEST_F(Tools, FsckReportsProgressToPrograms) {
    make();
    const Outcome checked = run("fsck.tiffin", "-n -C 3 " + image_ + " 3>" + folder_ + "/progress");
    EXPECT_EQ(checked.status, 0) << checked.output;
    std::ifstream progress(folder_ + "/progress");
    int phase = 0;
    int done = 0;
    int total = 0;
    std::string device;
    ASSERT_TRUE(progress >> phase >> done >> total >> device);
    EXPECT_EQ(phase, 1);
    EXPECT_EQ(total, 1000);
    EXPECT_EQ(device, image_);
}

}  // namespace
}  // namespace tiffin::check
