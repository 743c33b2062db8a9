// SPDX-License-Identifier: MIT OR GPL-2.0-only
// fsck.tiffin as a program: what it prints, what it returns, what it refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/check.h"
#include "fuse/check/superblocks.h"
#include "fuse/check/tree_reader.h"
#include "tests/unit/check/tools_support.h"

namespace tiffin::check {
namespace {

namespace files = std::filesystem;

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
    make_empty(64U << 20);
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

// What was shown before a question is not shown again; something else at the same place is.
TEST_F(Tools, FsckShowsAllThatIsAtThePlaceOfAQuestion) {
    make();
    with_volume([](test::TestVolume& volume) {
        for (int i = 0; i < 20; ++i) {
            ASSERT_TRUE(volume.write("/file", 0, test::test_content(i, 3000)).ok());
            ASSERT_TRUE(volume.sync().ok());
        }
        volume.abandon();
    });
    // In the middle of what the journal has.
    const std::string image = content();
    const size_t begin = tiffinfs::kJournalFirstBlock * tiffinfs::kBlockBytes;
    size_t end = begin + (1U << 20);
    while (image[end - 1] == 0) {
        --end;
    }
    damage(begin + (end - begin) / 2);
    const auto line_with = [](const Outcome& outcome, const char* code) {
        const size_t at = outcome.output.find(code);
        EXPECT_NE(at, std::string::npos) << code << " in " << outcome.output;
        const size_t from = outcome.output.rfind('\n', at);
        return at == std::string::npos ? std::string()
                                       : outcome.output.substr(from + 1, at - from - 1);
    };
    const Outcome looked = run("fsck.tiffin", "-n " + image_);
    const Outcome asked = run_shell("yes y | head -n 50 | script --quiet --return --command '" +
                                    program("fsck.tiffin") + " " + image_ + "' /dev/null 2>&1");
    for (const char* code : {"[journal-damaged]", "[journal-pending]"}) {
        EXPECT_NE(line_with(looked, code), "");
        EXPECT_NE(line_with(asked, code), "");
    }
}

// An image whose end is missing is lengthened where that is asked for; else nothing is changed.
TEST_F(Tools, FsckLengthensAnImageThatWasCut) {
    make();
    with_volume([](test::TestVolume& volume) {
        ASSERT_TRUE(test::populate(volume, 50).ok());
        ASSERT_TRUE(volume.unmount().ok());
    });
    const auto size = files::file_size(image_);
    files::resize_file(image_, size - 8192);
    const std::string cut = content();
    for (const char* options : {"-n ", "-p ", ""}) {
        const Outcome checked = run("fsck.tiffin", options + image_);
        EXPECT_EQ(checked.status, 8) << checked.output;
        expect_contains(checked, "its end has been cut off");
        EXPECT_TRUE(content() == cut);
    }
    const Outcome repaired = run("fsck.tiffin", "-y " + image_);
    EXPECT_EQ(repaired.status, 1) << repaired.output;
    expect_contains(repaired, "8192 of " + std::to_string(size) + " bytes are missing");
    EXPECT_EQ(files::file_size(image_), size);
    // Nothing is missing but zeros.
    files::resize_file(image_, size - 1000);
    EXPECT_EQ(run("fsck.tiffin", "-y " + image_).status, 1);
    EXPECT_EQ(files::file_size(image_), size);
    EXPECT_EQ(run("fsck.tiffin", "-f -n " + image_).status, 0);
    // What a cut in the middle takes along is named.
    files::resize_file(image_, 9U << 20);
    const Outcome worse = run("fsck.tiffin", "-y --data " + image_);
    EXPECT_TRUE(worse.status == 1 || worse.status == 4) << worse.output;
    const Outcome after = run("fsck.tiffin", "-f -n " + image_);
    EXPECT_TRUE(after.status == 0 || after.status == 4) << after.output;
}

// Without an order to read all data: what was cut off is known.
TEST_F(Tools, FsckNamesTheFilesThatACutTookAlong) {
    make();
    with_volume([](test::TestVolume& volume) {
        ASSERT_TRUE(test::populate(volume, 50).ok());
        ASSERT_TRUE(volume.create("/whole").ok());
        ASSERT_TRUE(volume.write("/whole", 0, test::test_content(1, 100000)).ok());
        ASSERT_TRUE(volume.create("/halved").ok());
        ASSERT_TRUE(volume.write("/halved", 0, test::test_content(2, 24U << 20)).ok());
        ASSERT_TRUE(volume.unmount().ok());
    });
    files::resize_file(image_, 16U << 20);
    const Outcome repaired = run("fsck.tiffin", "-y " + image_);
    EXPECT_EQ(repaired.status, 4) << repaired.output;
    expect_contains(repaired, "\"/halved\"");
    EXPECT_EQ(repaired.output.find("whole"), std::string::npos) << repaired.output;
    EXPECT_EQ(run("fsck.tiffin", "-f -n " + image_).status, 0);
}

// A check that is cancelled, or repairs nothing, leaves the length that tells what is missing.
TEST_F(Tools, FsckLengthensNothingInVain) {
    make();
    with_volume([](test::TestVolume& volume) {
        ASSERT_TRUE(test::populate(volume, 50).ok());
        ASSERT_TRUE(volume.unmount().ok());
    });
    files::resize_file(image_, (20U << 20) + 100);
    const std::string cut = content();
    const std::string terminal = "script --quiet --return --command '" + program("fsck.tiffin") +
                                 " " + image_ + "' /dev/null 2>&1";
    const Outcome declined = run_shell("(echo y; yes n | head -n 50) | " + terminal);
    expect_contains(declined, "Lengthen the image with zeros");
    EXPECT_EQ(declined.status, 4) << declined.output;
    EXPECT_TRUE(content() == cut);
    const Outcome refused = run_shell("yes n | head -n 50 | " + terminal);
    EXPECT_EQ(refused.status, 8) << refused.output;
    EXPECT_TRUE(content() == cut);
}

// The end of a grown volume is missing, and the superblocks of the time before it grew are there: they are not gone back to.
TEST_F(Tools, FsckDoesNotGoBackToBeforeTheVolumeGrew) {
    make();
    const auto change = [&](const std::string& name, bool grows) {
        with_volume([&](test::TestVolume& volume) {
            if (grows) {
                EXPECT_EQ(MUST(volume.file_system().grow()).to_bytes, 128U << 20);
            }
            ASSERT_TRUE(volume.write(name, 0, test::test_content(3, 100000)).ok());
            ASSERT_TRUE(volume.unmount().ok());
        });
    };
    change("/before", false);
    files::resize_file(image_, 128U << 20);
    change("/grown", true);
    change("/after", false);
    files::resize_file(image_, 64U << 20);
    const std::string cut = content();
    for (const char* options : {"-n ", "-p ", "-p -f ", ""}) {
        const Outcome checked = run("fsck.tiffin", options + image_);
        EXPECT_EQ(checked.status, 8) << options << checked.output;
        expect_contains(checked, "its end has been cut off");
        EXPECT_TRUE(content() == cut) << options;
    }
    EXPECT_EQ(try_mount().error(), Error::euclean);
    EXPECT_TRUE(content() == cut);
    const Outcome repaired = run("fsck.tiffin", "-y " + image_);
    EXPECT_EQ(repaired.status, 1) << repaired.output;
    EXPECT_EQ(files::file_size(image_), 128U << 20);
    with_volume([](test::TestVolume& volume) {
        for (const char* name : {"/before", "/grown", "/after"}) {
            EXPECT_EQ(MUST(volume.read(name)), test::test_content(3, 100000)) << name;
        }
    });
}

// Another version has written what this one would take for damage, or does not know at all.
TEST_F(Tools, FsckOfAnotherVersionsVolumeChangesNothing) {
    for (int kind = 0; kind < 3; ++kind) {
        files::remove(image_);
        make();
        {
            auto device = fuse::open_device(image_, {});
            ASSERT_TRUE(device.ok());
            tiffinfs::Superblock superblock = read_superblock_copies(**device).generations.front();
            superblock.generation++;
            superblock.state = 0;
            superblock.version += kind == 0 ? 1 : 0;
            superblock.incompat_features |= kind == 1 ? 1ULL << 63 : 0;
            superblock.read_only_compat_features |= kind == 2 ? 1ULL << 63 : 0;
            ASSERT_TRUE(tiffinfs::write_superblock(**device, superblock).ok());
        }
        const std::string before = content();
        for (const char* options : {"-n ", "-p ", "-y -f "}) {
            const Outcome checked = run("fsck.tiffin", options + image_);
            EXPECT_EQ(checked.status, 8) << options << checked.output;
            expect_contains(checked, "not known to this program");
            EXPECT_TRUE(content() == before) << options;
        }
        EXPECT_FALSE(try_mount().ok());
    }
}

TEST_F(Tools, FsckFindsAndRepairs) {
    make();
    const Outcome clean = run("fsck.tiffin", image_);
    EXPECT_EQ(clean.status, 0) << clean.output;
    EXPECT_EQ(clean.output.find("not a terminal"), std::string::npos) << clean.output;
    damage((64U << 20) - 4096 + 100);  // the second copy of the newest superblock
    const Outcome asked = run("fsck.tiffin", image_);
    EXPECT_EQ(asked.status, 4) << asked.output;
    expect_contains(asked, "stdin is not a terminal: no changes (as with -n)");
    const Outcome found = run("fsck.tiffin", "-n " + image_);
    EXPECT_EQ(found.status, 4) << found.output;
    expect_contains(found, "harmless: superblock B, second copy");
    expect_contains(found, "fsck.tiffin -f -p " + image_ + " repairs that, and nothing is lost");
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
    expect_contains(clean, "marked clean, 2 objects");
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

// The mark says how the volume was left, not what the device has done to it since.
TEST_F(Tools, FsckRepairsDamageThoughTheVolumeIsMarkedClean) {
    make();
    tiffinfs::Superblock superblock{};
    {
        auto device = fuse::open_device(image_, {});
        ASSERT_TRUE(device.ok()) << device.problem().text;
        ASSERT_TRUE(is_marked_clean(**device, superblock));
    }
    damage(superblock.root_block * tiffinfs::kBlockBytes + 100);
    EXPECT_EQ(run("fsck.tiffin", "-n " + image_).status, 4);
    const Outcome at_boot = run("fsck.tiffin", "-p " + image_);
    EXPECT_EQ(at_boot.status, 4) << at_boot.output;
    expect_contains(at_boot, "[node-invalid]");
    const Outcome repaired = run("fsck.tiffin", "-y " + image_);
    EXPECT_EQ(repaired.status, 1) << repaired.output;
    expect_contains(repaired, "[node-invalid] (to be repaired)");
    EXPECT_EQ(run("fsck.tiffin", "-n " + image_).status, 0);
}

// A leaf is damaged that only the newest generation has, and one that only the generation before has: a mount works, and
// finds both damaged.
TEST_F(Tools, FsckAtBootChecksWhatAMountFindsDamaged) {
    make();
    with_volume([](test::TestVolume& volume) {
        ASSERT_TRUE(test::populate(volume, 500).ok());
        ASSERT_TRUE(volume.write("/last", 0, "content").ok());
        ASSERT_TRUE(volume.unmount().ok());
    });
    // Not the leaf with the root directory, without which nothing mounts.
    with_volume([](test::TestVolume& volume) {
        ASSERT_TRUE(volume.write("/last", 0, "CONTENT").ok());
        ASSERT_TRUE(volume.unmount().ok());
    });
    std::vector<std::set<uint64_t>> leaves;
    {
        auto device = fuse::open_device(image_, {});
        ASSERT_TRUE(device.ok()) << device.problem().text;
        for (const auto& superblock : read_superblock_copies(**device).generations) {
            std::set<uint64_t>& of_generation = leaves.emplace_back();
            TreeReader(**device, superblock)
                .visit_nodes([&](uint64_t block, uint32_t level, const Block&, const std::string&) {
                    if (level == 0) {
                        of_generation.insert(block);
                    }
                });
        }
    }
    ASSERT_EQ(leaves.size(), 2U);
    const auto only_in = [&](size_t one, size_t other) {
        std::vector<uint64_t> blocks;
        std::set_difference(leaves[one].begin(), leaves[one].end(), leaves[other].begin(),
                            leaves[other].end(), std::back_inserter(blocks));
        return blocks;
    };
    const auto newest = only_in(0, 1);
    const auto before = only_in(1, 0);
    ASSERT_FALSE(newest.empty());
    ASSERT_FALSE(before.empty());
    expect_contains(run("fsck.tiffin", "-p " + image_), "; not checked");
    damage(newest.front() * tiffinfs::kBlockBytes + 1000);
    damage(before.front() * tiffinfs::kBlockBytes + 1000);
    with_volume([](test::TestVolume& volume) {
        EXPECT_EQ(errno_value(volume.create("/new").error()), errno_value(Error::erofs));
        ASSERT_TRUE(volume.unmount().ok());
    });
    const std::string damaged = content();
    const Outcome at_boot = run("fsck.tiffin", "-p " + image_);
    EXPECT_EQ(at_boot.status, 4) << at_boot.output;
    expect_contains(at_boot, "[node-invalid]");
    EXPECT_TRUE(content() == damaged);
}

}  // namespace
}  // namespace tiffin::check
