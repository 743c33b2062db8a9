// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What happens to a mount that meets a damaged tree node, by its errors policy.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fs/tiffinfs/tiffinfs.h"
#include "fs/tiffinfs/tree/node.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/host/log_sink.h"
#include "tests/support/crash_device.h"
#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

class ErrorsPolicyTest : public testing::TestWithParam<ErrorsPolicy> {
  protected:
    // A volume whose second leaf, with entries of the root directory, has a flipped bit.
    ErrorsPolicyTest() {
        auto device = std::make_unique<test::CrashDevice>(32U << 20);
        test::CrashDevice& crash_device = *device;
        DataVolume volume(std::move(device));
        for (int i = 0; i < 300; ++i) {
            volume.create("file " + std::to_string(i));
        }
        // So that the older generation has that leaf, too: else a mount would go back to it.
        volume.remount();
        volume.unmount();
        crash_device.flip_bit(second_leaf(crash_device) * kBlockBytes + kBlockBytes - 100, 3);
        device_ = crash_device.after_crash(test::CrashOutcome::keep_completed, 0);
    }

    uint64_t second_leaf(test::CrashDevice& device) {
        Superblock superblock;
        EXPECT_TRUE(read_superblock(device, superblock).ok());
        EXPECT_EQ(superblock.root_level, 1U);
        alignas(8) unsigned char page[kBlockBytes];
        EXPECT_TRUE(device.read(superblock.root_block * kBlockBytes, page, kBlockBytes).ok());
        const InnerEntry& second = inner_entries(page)[1];
        EXPECT_TRUE(second.key.node == vfs::kRootNode && second.key.kind() == Kind::entry);
        cookie_ = second.key.offset();
        return second.child_block;
    }

    fuse::CapturedLog log_;
    std::unique_ptr<test::CrashDevice> device_;
    uint64_t cookie_ = 0;
};

class NoEntries final : public vfs::DirectorySink {
  public:
    bool add(const vfs::DirectoryEntry& /*entry*/) override { return true; }
};

TEST_P(ErrorsPolicyTest, IsAppliedToADamagedNodeOfTheTree) {
    const bool goes_on = GetParam() == ErrorsPolicy::continue_running;
    MountOptions options;
    options.volume.errors = GetParam();
    vfs::FileSystem* file_system = MUST(mount(*device_, options));

    // From where the damaged leaf begins, since what comes before it would be a good answer.
    NoEntries sink;
    Result<void> read = file_system->read_directory(vfs::kRootNode, 0, cookie_, false, sink);
    EXPECT_EQ(read.error(), Error::euclean);

    // What is whole can be read in any case.
    EXPECT_TRUE(file_system->get_attributes(vfs::kRootNode).ok());
    vfs::AttributeChange change;
    change.valid = vfs::AttributeChange::mode_bit;
    Result<vfs::Attributes> changed = file_system->set_attributes({}, vfs::kRootNode, change);
    EXPECT_EQ(changed.ok(), goes_on);
    if (!goes_on) {
        EXPECT_EQ(changed.error(), Error::erofs);
    }
    EXPECT_TRUE(file_system->unmount().ok());
    destroy(file_system);

    Superblock superblock;
    ASSERT_TRUE(read_superblock(*device_, superblock).ok());
    // A volume that became read-only is not clean; the mark is written all the same.
    EXPECT_EQ(superblock.state, goes_on ? superblock_state::clean | superblock_state::errors
                                        : superblock_state::errors);
}

// Damage ends changes, but takes nothing back that had been completed before.
TEST_P(ErrorsPolicyTest, KeepsWhatWasCompletedBefore) {
    MountOptions options;
    options.volume.errors = GetParam();
    options.volume.commit_interval_ms = 0;
    vfs::FileSystem* file_system = MUST(mount(*device_, options));
    vfs::AttributeChange change;
    change.valid = vfs::AttributeChange::mode_bit;
    change.mode = 0711;
    EXPECT_TRUE(file_system->set_attributes({}, vfs::kRootNode, change).ok());
    NoEntries sink;
    EXPECT_EQ(file_system->read_directory(vfs::kRootNode, 0, cookie_, false, sink).error(),
              Error::euclean);
    EXPECT_TRUE(file_system->unmount().ok());
    destroy(file_system);

    options.volume.read_only = true;
    file_system = MUST(mount(*device_, options));
    EXPECT_EQ(MUST(file_system->get_attributes(vfs::kRootNode)).mode & 07777, 0711U);
    EXPECT_TRUE(file_system->unmount().ok());
    destroy(file_system);
}

INSTANTIATE_TEST_SUITE_P(Policies, ErrorsPolicyTest,
                         testing::Values(ErrorsPolicy::remount_read_only,
                                         ErrorsPolicy::continue_running));

// Hosts lock devices; where that fails, the mount that was there first stops before it does harm.
TEST(TakenAway, NothingMoreIsWritten) {
    fuse::CapturedLog log;
    test::CrashDevice device(32U << 20);
    ASSERT_TRUE(make_file_system(device, {}).ok());
    MountOptions options;
    options.volume.commit_interval_ms = 0;
    auto* first = static_cast<TiffinFileSystem*>(MUST(mount(device, options)));
    vfs::FileSystem* second = MUST(mount(device, options));
    vfs::AttributeChange change;
    change.valid = vfs::AttributeChange::mode_bit;
    change.mode = 0711;
    EXPECT_TRUE(first->set_attributes({}, vfs::kRootNode, change).ok());
    EXPECT_EQ(first->volume().checkpoint().error(), Error::eio);

    const uint64_t writes = device.counts().writes;
    EXPECT_EQ(first->set_attributes({}, vfs::kRootNode, change).error(), Error::erofs);
    EXPECT_EQ(first->fsync(vfs::kRootNode, false).error(), Error::eio);
    EXPECT_EQ(first->sync(true).error(), Error::eio);
    EXPECT_EQ(first->unmount().error(), Error::eio);  // a change was lost
    EXPECT_EQ(device.counts().writes, writes);
    destroy(first);
    EXPECT_TRUE(second->unmount().ok());
    destroy(second);
    EXPECT_EQ(test::findings_of(device), "");
}

// What a volume has written itself is not taken for another mount's.
void expect_no_other_mount(const fuse::CapturedLog& log) {
    for (const std::string& line : log.lines()) {
        EXPECT_EQ(line.find("mounted elsewhere"), std::string::npos) << line;
    }
}

// The first checkpoint of a mount that becomes writable raises the incarnation, too.
TEST(FailedFirstCheckpoint, IsMarkedAndNoOtherMount) {
    fuse::CapturedLog log;
    bool has_failed = true;
    uint64_t number = 1;
    for (; has_failed && number < 100; ++number) {
        test::CrashDevice device(32U << 20);
        ASSERT_TRUE(make_file_system(device, {}).ok());
        MountOptions options;
        options.volume.read_only = true;
        vfs::FileSystem* fs = MUST(mount(device, options));
        device.fail_write(number);
        has_failed = !fs->remount(false).ok();
        device.fail_write(0);
        EXPECT_TRUE(fs->unmount().ok()) << number;
        destroy(fs);
        Superblock superblock;
        ASSERT_TRUE(read_superblock(device, superblock).ok());
        EXPECT_EQ((superblock.state & superblock_state::errors) != 0, has_failed) << number;
        options.volume.read_only = false;
        fs = MUST(mount(device, options));
        EXPECT_TRUE(fs->unmount().ok());
        destroy(fs);
        EXPECT_EQ(test::findings_of(device, check::Severity::damage), "");
    }
    EXPECT_GT(number, 2U);
    EXPECT_LT(number, 100U);
    expect_no_other_mount(log);
}

// Whichever write or flush of a checkpoint fails: what the volume itself has left of it is no other mount, what comes
// afterwards is kept as promised, and the next mount learns of it.
class FailedCheckpoint : public testing::TestWithParam<bool> {};

TEST_P(FailedCheckpoint, IsMarked) {
    const bool fails_flush = GetParam();
    fuse::CapturedLog log;
    bool has_failed = true;
    uint64_t number = 1;
    for (; has_failed && number < 100; ++number) {
        test::CrashDevice device(32U << 20);
        ASSERT_TRUE(make_file_system(device, {}).ok());
        MountOptions options;
        options.volume.commit_interval_ms = 0;
        auto* fs = static_cast<TiffinFileSystem*>(MUST(mount(device, options)));
        vfs::AttributeChange change;
        change.valid = vfs::AttributeChange::mode_bit;
        change.mode = 0711;
        ASSERT_TRUE(fs->set_attributes({}, vfs::kRootNode, change).ok());
        ASSERT_TRUE(fs->sync(true).ok());
        fails_flush ? device.fail_flush(number) : device.fail_write(number);
        has_failed = !fs->volume().checkpoint().ok();
        device.fail_flush(0);
        device.fail_write(0);
        EXPECT_TRUE(fs->sync(true).ok());
        EXPECT_TRUE(fs->unmount().ok());
        destroy(fs);
        Superblock superblock;
        ASSERT_TRUE(read_superblock(device, superblock).ok());
        EXPECT_EQ((superblock.state & superblock_state::errors) != 0, has_failed) << number;
        fs = static_cast<TiffinFileSystem*>(MUST(mount(device, options)));
        EXPECT_EQ(MUST(fs->get_attributes(vfs::kRootNode)).mode & 07777, 0711U);
        EXPECT_TRUE(fs->unmount().ok());
        destroy(fs);
        EXPECT_EQ(test::findings_of(device, check::Severity::damage), "");
    }
    EXPECT_GT(number, fails_flush ? 2U : 4U);
    EXPECT_LT(number, 100U);
    expect_no_other_mount(log);
}

INSTANTIATE_TEST_SUITE_P(WritesAndFlushes, FailedCheckpoint, testing::Bool());

// Features that an older version may read, but not write.
TEST(ReadOnlyFeatures, ForbidToBecomeWritable) {
    fuse::CapturedLog log;
    test::CrashDevice device(32U << 20);
    ASSERT_TRUE(make_file_system(device, {}).ok());
    Superblock superblock;
    ASSERT_TRUE(read_superblock(device, superblock).ok());
    superblock.read_only_compat_features = 1ULL << 63;
    superblock.generation++;
    ASSERT_TRUE(write_superblock(device, superblock).ok());
    MountOptions options;
    EXPECT_EQ(mount(device, options).error(), Error::eopnotsupp);
    options.volume.read_only = true;
    vfs::FileSystem* file_system = MUST(mount(device, options));
    const uint64_t writes = device.counts().writes;
    EXPECT_EQ(file_system->remount(false).error(), Error::erofs);
    EXPECT_TRUE(file_system->unmount().ok());
    destroy(file_system);
    EXPECT_EQ(device.counts().writes, writes);
}

}  // namespace
}  // namespace tiffin::tiffinfs
