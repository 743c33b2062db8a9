// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What operations cost in device I/O: a lost fast path fails here, without any clock.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "fs/tiffinfs/volume/superblock.h"
#include "tests/support/crash_device.h"
#include "tests/support/test_volume.h"

namespace tiffin::test {

void PrintTo(const IoCounts& counts, std::ostream* out) {
    *out << counts.reads << " reads (" << counts.bytes_read << " bytes), " << counts.writes
         << " writes (" << counts.bytes_written << " bytes), " << counts.flushes << " flushes";
}

namespace {

constexpr uint32_t kFiles = 5000;

std::string name_of(uint32_t number) { return "/directory/file-" + std::to_string(number); }

class Cost : public testing::Test {
  protected:
    Cost() : device_(geometry()), volume_(device_) {}

    static vfs::DeviceGeometry geometry() {
        vfs::DeviceGeometry geometry;
        geometry.size_bytes = 256U << 20;
        geometry.write_unit_bytes = 512;
        geometry.volatile_cache = true;
        geometry.supports_discard = true;
        return geometry;
    }

    // A directory of files, so that the tree has inner nodes, all in memory and on the device.
    void SetUp() override {
        ASSERT_TRUE(volume_.make(8U << 20).ok());
        ASSERT_TRUE(volume_.mount().ok());
        ASSERT_TRUE(volume_.make_directory("/directory").ok());
        for (uint32_t i = 0; i < kFiles; ++i) {
            ASSERT_TRUE(volume_.create(name_of(i)).ok());
        }
        ASSERT_TRUE(volume_.write("/large", 0, test_content(1, 1U << 20)).ok());
        ASSERT_TRUE(volume_.unmount().ok());
        ASSERT_TRUE(volume_.mount().ok());
    }

    void warm_up() {
        ASSERT_TRUE(volume_.see().ok());
        // The bitmaps and spare nodes that a first change needs.
        ASSERT_TRUE(volume_.write("/warm", 0, test_content(2, 8192)).ok());
        ASSERT_TRUE(volume_.unlink("/warm").ok());
        ASSERT_TRUE(volume_.create("/warm-too").ok());
        ASSERT_TRUE(volume_.sync().ok());
    }

    IoCounts cost_of(const std::function<bool()>& operation) {
        device_.reset_counts();
        EXPECT_TRUE(operation());
        return device_.counts();
    }

    void expect_free(const std::string& name, const std::function<bool()>& operation) {
        const IoCounts counts = cost_of(operation);
        EXPECT_TRUE(counts.reads == 0 && counts.writes == 0 && counts.flushes == 0)
            << name << " costs " << testing::PrintToString(counts);
    }

    uint32_t tree_height() {
        tiffinfs::Superblock superblock{};
        EXPECT_TRUE(tiffinfs::read_superblock(device_, superblock).ok());
        return superblock.root_level + 1;
    }

    CrashDevice device_;
    TestVolume volume_;
};

TEST_F(Cost, ChangesOfNamesAndAttributesAreFreeUntilTheCommit) {
    warm_up();
    expect_free("create", [&] { return volume_.create("/directory/new").ok(); });
    expect_free("rename", [&] { return volume_.rename("/directory/new", "/other").ok(); });
    expect_free("link", [&] { return volume_.link("/other", "/directory/link").ok(); });
    expect_free("unlink of one of two names", [&] { return volume_.unlink("/other").ok(); });
    expect_free("unlink", [&] { return volume_.unlink("/directory/link").ok(); });
    expect_free("mkdir", [&] { return volume_.make_directory("/directory/d").ok(); });
    expect_free("rmdir", [&] { return volume_.remove_directory("/directory/d").ok(); });
    expect_free("symlink", [&] { return volume_.make_symlink("/symlink", "target").ok(); });
    expect_free("setxattr", [&] { return volume_.set_xattr("/large", "user.name", "v").ok(); });
    expect_free("removexattr", [&] { return volume_.remove_xattr("/large", "user.name").ok(); });
    expect_free("write of a small file",
                [&] { return volume_.write(name_of(7), 0, "small").ok(); });
    expect_free("truncate", [&] { return volume_.truncate(name_of(7), 2).ok(); });
}

TEST_F(Cost, LookingAtWhatIsInMemoryIsFree) {
    warm_up();
    expect_free("stat", [&] { return volume_.attributes(name_of(11)).ok(); });
    expect_free("stat of what is missing",
                [&] { return volume_.attributes("/directory/missing").error() == Error::enoent; });
    expect_free("readdir", [&] { return volume_.list("/directory").value().size() >= kFiles; });
    expect_free("read of a small file", [&] { return volume_.read(name_of(3)).ok(); });
}

TEST_F(Cost, FsyncOfASmallFileIsOneJournalWrite) {
    warm_up();
    ASSERT_TRUE(volume_.create("/small").ok());
    ASSERT_TRUE(volume_.sync().ok());
    const IoCounts counts = cost_of([&] {
        return volume_.write("/small", 0, std::string(100, 'x')).ok() &&
               volume_.fsync("/small").ok();
    });
    EXPECT_EQ(counts.reads, 0U);
    EXPECT_EQ(counts.writes, 1U);
    EXPECT_LE(counts.bytes_written, 1024U);
    EXPECT_EQ(counts.flushes, 1U);
}

TEST_F(Cost, FsyncOfABlockIsOneDataWriteAndOneJournalWrite) {
    warm_up();
    const IoCounts counts = cost_of([&] {
        return volume_.write("/block", 0, test_content(3, 4096)).ok() &&
               volume_.fsync("/block").ok();
    });
    EXPECT_EQ(counts.reads, 0U);
    EXPECT_EQ(counts.writes, 2U);
    EXPECT_LE(counts.bytes_written, 4096U + 1024U);
    // The data before the record that names it, and the record.
    EXPECT_EQ(counts.flushes, 2U);
}

TEST_F(Cost, SecondFsyncIsFree) {
    warm_up();
    ASSERT_TRUE(volume_.write("/block", 0, test_content(3, 4096)).ok());
    ASSERT_TRUE(volume_.fsync("/block").ok());
    expect_free("fsync", [&] { return volume_.fsync("/block").ok(); });
}

TEST_F(Cost, ReadOfABlockIsOneRead) {
    warm_up();
    const vfs::NodeId node = volume_.find("/large").value();
    std::string buffer(4096, '\0');
    const vfs::IoVector piece{buffer.data(), buffer.size()};
    const IoCounts counts = cost_of([&] {
        return volume_.file_system()
                   .read(node, 0, 64 * 4096, Span<const vfs::IoVector>(&piece, 1))
                   .value() == 4096;
    });
    EXPECT_EQ(counts.reads, 1U);
    EXPECT_EQ(counts.bytes_read, 4096U);
    EXPECT_EQ(counts.writes, 0U);
}

TEST_F(Cost, ReadOfAMegabyteIsOneReadForEachExtent) {
    warm_up();
    std::string buffer(1U << 20, '\0');
    const vfs::NodeId node = volume_.find("/large").value();
    const vfs::IoVector piece{buffer.data(), buffer.size()};
    const IoCounts counts = cost_of([&] {
        return volume_.file_system()
                   .read(node, 0, 0, Span<const vfs::IoVector>(&piece, 1))
                   .value() == buffer.size();
    });
    EXPECT_EQ(counts.reads, 1U);
    EXPECT_EQ(counts.bytes_read, 1U << 20);
}

TEST_F(Cost, ColdLookupReadsOneNodeForEachLevel) {
    const uint32_t height = tree_height();
    ASSERT_GE(height, 2U);
    // The name, and the object: two keys, and the root is in memory since the mount.
    const IoCounts counts = cost_of([&] { return volume_.attributes(name_of(2500)).ok(); });
    RecordProperty("reads", static_cast<int>(counts.reads));
    EXPECT_LE(counts.reads, 2 * (height - 1) + 1);
    EXPECT_EQ(counts.bytes_read, counts.reads * 4096);
}

TEST_F(Cost, MountReadsWhatItNeeds) {
    ASSERT_TRUE(volume_.unmount().ok());
    const IoCounts counts = cost_of([&] { return volume_.mount().ok(); });
    // Four superblocks, twice: for the volume, and for its owner; the root; the journal's end. Not
    // one for each bitmap or node.
    EXPECT_LE(counts.reads, 24U);
    EXPECT_LE(counts.writes, 8U);
}

}  // namespace
}  // namespace tiffin::test
