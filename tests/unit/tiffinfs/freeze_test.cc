// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Goal: what is on the device of a frozen file system is a clean volume with everything in it, and stays as it is.
// Method: a copy of the device is checked and mounted, read-only and with writes, while the original is frozen; then both
// go on.
#include <cstring>

#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/host/allocation_hooks.h"
#include "fuse/host/log_sink.h"
#include "tests/support/test_volume.h"
#include "tests/unit/tiffinfs/data_fixture.h"
#include "tests/unit/tiffinfs/names_fixture.h"

namespace tiffin::tiffinfs {
namespace {

class Freeze : public ::testing::Test {
  protected:
    static constexpr uint64_t kBytes = 64U << 20;

    void SetUp() override {
        ASSERT_TRUE(volume_.make().ok());
        ASSERT_TRUE(volume_.mount().ok());
        ASSERT_TRUE(test::populate(volume_, 200).ok());
    }
    std::string content() const {
        std::string bytes(kBytes, '\0');
        EXPECT_TRUE(device_->read(0, bytes.data(), bytes.size()).ok());
        return bytes;
    }
    vfs::FileSystem& fs() { return volume_.file_system(); }
    // Once more, as after a mount that has met damage.
    void mount_with_errors() {
        ASSERT_TRUE(volume_.unmount().ok());
        Superblock superblock;
        ASSERT_TRUE(read_superblock(*device_, superblock).ok());
        superblock.state |= superblock_state::errors;
        ASSERT_TRUE(write_superblock(*device_, superblock).ok());
        ASSERT_TRUE(volume_.mount().ok());
    }

    std::unique_ptr<vfs::BlockDevice> device_ = make_memory_device(kBytes);
    test::TestVolume volume_{*device_};
};

TEST_F(Freeze, ACopyIsACleanVolume) {
    ASSERT_TRUE(volume_.write("/not synced", 0, test::test_content(1, 300000)).ok());
    ASSERT_TRUE(fs().freeze().ok());
    const std::string frozen = content();
    auto copy = make_memory_device(kBytes);
    ASSERT_TRUE(copy->write(0, frozen.data(), frozen.size()).ok());

    Superblock superblock;
    ASSERT_TRUE(read_superblock(*copy, superblock).ok());
    EXPECT_NE(superblock.state & superblock_state::clean, 0U);
    EXPECT_TRUE(check::check_file_system(*copy, {}).findings.empty());
    const test::SeenTree original = volume_.see().release_value();
    test::TestVolume second(*copy);
    MountOptions read_only = test::TestVolume::quiet_options();
    read_only.volume.read_only = true;
    read_only.volume.no_recovery = true;
    ASSERT_TRUE(second.mount(read_only).ok());
    EXPECT_EQ(test::difference(original, second.see().release_value()), "");
    ASSERT_TRUE(second.unmount().ok());
    ASSERT_TRUE(second.mount().ok());
    EXPECT_TRUE(second.write("/only here", 0, "x").ok());
    ASSERT_TRUE(second.unmount().ok());

    ASSERT_TRUE(fs().thaw().ok());
    EXPECT_TRUE(volume_.write("/after", 0, "thawed").ok());
    ASSERT_TRUE(volume_.sync().ok());
    volume_.abandon();
    ASSERT_TRUE(volume_.mount().ok()) << "the journal of what came after the thaw is replayed";
    EXPECT_EQ(volume_.read("/after").value_or(""), "thawed");
}

TEST_F(Freeze, NothingIsWrittenMeanwhile) {
    // A large file without links, which is deleted in the background as soon as nobody uses it.
    ASSERT_TRUE(volume_.write("/large", 0, test::test_content(2, 8U << 20)).ok());
    const vfs::NodeId node = volume_.find("/large").value();
    ASSERT_TRUE(fs().lookup(vfs::kRootNode, "large").ok());  // a reference
    ASSERT_TRUE(volume_.unlink("/large").ok());
    ASSERT_TRUE(fs().freeze().ok());
    const std::string frozen = content();
    fs().forget(node, 1);
    EXPECT_EQ(volume_.write("/refused", 0, "x").error(), Error::erofs);
    EXPECT_EQ(volume_.unlink("/large").error(), Error::erofs);
    EXPECT_TRUE(volume_.see().ok()) << "reading goes on";
    EXPECT_TRUE(fs().sync(true).ok());
    (void)fs().shrink(64U << 20);
    EXPECT_TRUE(frozen == content());
    ASSERT_TRUE(fs().thaw().ok());
    ASSERT_TRUE(volume_.unmount().ok());
    EXPECT_TRUE(check::check_file_system(*device_, {}).findings.empty());
    ASSERT_TRUE(volume_.mount().ok());
    EXPECT_EQ(fs().get_attributes(node).error(), Error::estale);
}

TEST_F(Freeze, OnceAndBack) {
    EXPECT_EQ(fs().thaw().error(), Error::einval);
    ASSERT_TRUE(fs().freeze().ok());
    EXPECT_EQ(fs().freeze().error(), Error::ebusy);
    ASSERT_TRUE(fs().thaw().ok());
    EXPECT_EQ(fs().thaw().error(), Error::einval);
    ASSERT_TRUE(fs().remount(true).ok());
    ASSERT_TRUE(fs().freeze().ok()) << "what is read-only is as good as frozen";
    ASSERT_TRUE(fs().thaw().ok());
    EXPECT_EQ(volume_.write("/refused", 0, "x").error(), Error::erofs) << "and stays read-only";
    ASSERT_TRUE(fs().remount(false).ok());
    ASSERT_TRUE(fs().freeze().ok());
    ASSERT_TRUE(volume_.unmount().ok()) << "while it is frozen";
    EXPECT_TRUE(check::check_file_system(*device_, {}).findings.empty());
}

// A thaw that fails would leave the writers of a kernel asleep for ever.
TEST_F(Freeze, ThawsWithErrorsThatWereSeenBefore) {
    ASSERT_NO_FATAL_FAILURE(mount_with_errors());
    ASSERT_TRUE(volume_.write("/before", 0, "x").ok());
    ASSERT_TRUE(fs().freeze().ok());
    EXPECT_EQ(volume_.write("/refused", 0, "x").error(), Error::erofs);
    ASSERT_TRUE(fs().thaw().ok());
    EXPECT_TRUE(volume_.write("/after", 0, "x").ok());
    ASSERT_TRUE(volume_.unmount().ok());
    Superblock superblock;
    ASSERT_TRUE(read_superblock(*device_, superblock).ok());
    EXPECT_NE(superblock.state & superblock_state::errors, 0U);
}

// What is met while it is frozen counts, whatever had been seen before.
TEST_F(Freeze, DoesNotThawAfterDamageThatWasMetMeanwhile) {
    const uint64_t directory = MUST(volume_.find("/many"));
    ASSERT_NO_FATAL_FAILURE(mount_with_errors());
    ASSERT_TRUE(fs().freeze().ok());
    static_cast<TiffinFileSystem&>(fs()).volume().report_damage("as a test says", directory, 0);
    EXPECT_EQ(fs().thaw().error(), Error::erofs);
    EXPECT_EQ(volume_.write("/refused", 0, "x").error(), Error::erofs);
}

// A damaged bitmap makes no volume read-only, frozen or not.
TEST_F(Freeze, ThawsAfterDamageThatIsAvoided) {
    ASSERT_NO_FATAL_FAILURE(mount_with_errors());
    ASSERT_TRUE(fs().freeze().ok());
    fuse::CapturedLog log;
    const std::string junk(2 * kBlockBytes, 'x');
    ASSERT_TRUE(device_->write(bitmap_block(0, 0) * kBlockBytes, junk.data(), junk.size()).ok());
    Volume& volume = static_cast<TiffinFileSystem&>(fs()).volume();
    ASSERT_TRUE(volume.allocator().load({1000, 1}).ok());
    ASSERT_TRUE(log.contains("bitmap of group 0 is damaged"));
    EXPECT_TRUE(fs().thaw().ok());
    EXPECT_FALSE(volume.read_only());
}

TEST_F(Freeze, IsStillFrozenWhereAThawFindsNoMemory) {
    fuse::AllocationWatch watch;
    uint64_t failures = 0;
    ASSERT_TRUE(fs().freeze().ok());
    while (true) {
        watch.fail_allocation(failures + 1);
        const Result<void> thawed = fs().thaw();
        watch.stop_failing();
        if (thawed.ok()) {
            break;
        }
        ++failures;
        ASSERT_EQ(thawed.error(), Error::enomem);
        ASSERT_EQ(fs().freeze().error(), Error::ebusy);
        ASSERT_LT(failures, 1000U);
    }
    EXPECT_GT(failures, 0U);
    EXPECT_TRUE(volume_.write("/after", 0, "x").ok());
}

}  // namespace
}  // namespace tiffin::tiffinfs
