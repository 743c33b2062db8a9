// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a mount does to a damaged volume never lowers what fsck.tiffin can save, whatever was done in the mount and
// however it ended.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "fs/tiffinfs/tree/node.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fuse/check/check.h"
#include "fuse/host/log_sink.h"
#include "tests/unit/check/check_support.h"
#include "tests/unit/check/image_editor.h"

namespace tiffin::check {
namespace {

using test::CrashDevice;
using test::CrashOutcome;
using test::SeenTree;
using test::TestVolume;

constexpr uint32_t kFiles = 150;
const std::string kLater = "/written-later";

// The nodes of the newest tree that the older generation does not have.
void add_new_nodes(ImageEditor& editor, uint64_t block, uint32_t level, uint64_t after,
                   std::vector<uint64_t>& nodes) {
    nodes.push_back(block);
    if (level == 0) {
        return;
    }
    Block page;
    editor.read(block, page);
    for (uint32_t i = 0; i < tiffinfs::inner_count(page.bytes); ++i) {
        const tiffinfs::InnerEntry entry = tiffinfs::inner_entry(page.bytes, i);
        if (entry.child_generation > after) {
            add_new_nodes(editor, entry.child_block, level - 1, after, nodes);
        }
    }
}

std::vector<uint64_t> new_nodes(CrashDevice& device) {
    ImageEditor editor(device);
    const tiffinfs::Superblock& newest = editor.superblock();
    std::vector<uint64_t> nodes;
    add_new_nodes(editor, newest.root_block, newest.root_level, newest.generation - 1, nodes);
    return nodes;
}

// What a user sees after a repair, without what the mount in between has added.
SeenTree saved(CrashDevice& device) {
    const Report repaired = run_check(device, {.repair = true});
    EXPECT_EQ(repaired.not_repaired, repaired.count(Code::content_lost)) << text_of(repaired);
    SeenTree tree = see(device);
    tree.erase(kLater);
    tree["/"] = {};  // its times and links change with what is added
    return tree;
}

size_t lost_paths(const SeenTree& sound, const SeenTree& after) {
    return static_cast<size_t>(std::count_if(sound.begin(), sound.end(), [&](const auto& item) {
        const auto found = after.find(item.first);
        return item.first != "/" && (found == after.end() || !(found->second == item.second));
    }));
}

class MountThenRepair : public testing::Test {
  protected:
    MountThenRepair() : device_(kDeviceBytes) {
        make_populated(device_, kFiles);
        sound_ = see(*copy_of(device_));
    }

    static std::unique_ptr<CrashDevice> copy_of(CrashDevice& device) {
        return device.after_crash(CrashOutcome::keep_completed, 0);
    }

    // A volume with three damaged nodes.
    std::unique_ptr<CrashDevice> damaged(uint64_t seed) {
        std::mt19937_64 random(seed);
        auto device = copy_of(device_);
        std::vector<uint64_t> nodes = new_nodes(*device);
        EXPECT_GE(nodes.size(), 4U);
        std::shuffle(nodes.begin(), nodes.end(), random);
        ImageEditor editor(*device);
        for (size_t i = 0; i < 3; ++i) {
            editor.flip_bit(nodes[i], static_cast<uint32_t>(random() % tiffinfs::kBlockBytes),
                            static_cast<uint32_t>(random() % 8));
        }
        return device;
    }

    CrashDevice device_;
    SeenTree sound_;
    fuse::CapturedLog log_;
};

TEST_F(MountThenRepair, DamageInTheNewestGenerationIsLossless) {
    for (uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        auto before = damaged(seed);
        ASSERT_EQ(lost_paths(sound_, saved(*copy_of(*before))), 0U);

        {
            TestVolume volume(*before);
            ASSERT_TRUE(volume.mount().ok());
            ASSERT_TRUE(volume.unmount().ok());
        }
        EXPECT_EQ(lost_paths(sound_, saved(*copy_of(*before))), 0U);
        {
            TestVolume volume(*before);
            ASSERT_TRUE(volume.mount().ok());
            ASSERT_TRUE(volume.write(kLater, 0, std::string(100'000, 'x')).ok());
            ASSERT_TRUE(volume.sync().ok());
            ASSERT_TRUE(volume.unmount().ok());
        }
        EXPECT_EQ(lost_paths(sound_, saved(*before)), 0U);
    }
}

// The power fails at each write of a mount, what is done in it, and its end.
TEST_F(MountThenRepair, AMountThatIsKilledLosesNothingEither) {
    uint64_t step = 0;
    for (bool finished = false; !finished; ++step) {
        SCOPED_TRACE("after " + std::to_string(step) + " writes");
        ASSERT_LT(step, 200U);
        auto device = damaged(7);
        device->stop_after_writes(step);
        {
            TestVolume volume(*device);
            if (volume.mount().ok()) {
                (void)volume.write(kLater, 0, "some").ok();
                (void)volume.sync().ok();
                (void)volume.unmount().ok();
            }
        }
        finished = !device->stopped();
        for (const CrashOutcome outcome :
             {CrashOutcome::drop_unflushed, CrashOutcome::keep_completed}) {
            EXPECT_EQ(lost_paths(sound_, saved(*device->after_crash(outcome, step))), 0U);
        }
    }
    EXPECT_GT(step, 5U);
}

// Damage in both generations: nothing is written, and the mark of the repair stays with the checker.
class DamagedTwice : public MountThenRepair {
  protected:
    // Leaves of the older generation that the newer one has, too, and leaves that it has not.
    std::unique_ptr<CrashDevice> damaged_twice(uint64_t seed) {
        std::mt19937_64 random(seed);
        auto device = copy_of(device_);
        {
            // Both generations have the same tree; then one leaf of it changes.
            (void)see(*device);
            TestVolume volume(*device);
            EXPECT_TRUE(volume.mount().ok());
            EXPECT_TRUE(volume.write(kLater, 0, "content").ok());
            EXPECT_TRUE(volume.unmount().ok());
        }
        const std::vector<uint64_t> fresh = new_nodes(*device);
        ImageEditor editor(*device);
        std::vector<uint64_t> all;
        add_new_nodes(editor, editor.superblock().root_block, editor.superblock().root_level, 0,
                      all);
        std::erase_if(all, [&](uint64_t block) {
            return std::find(fresh.begin(), fresh.end(), block) != fresh.end();
        });
        EXPECT_FALSE(all.empty());
        editor.flip_bit(fresh.back(), 1000, static_cast<uint32_t>(random() % 8));
        editor.flip_bit(all[random() % all.size()], 1000, static_cast<uint32_t>(random() % 8));
        return device;
    }
};

TEST_F(DamagedTwice, MountIsReadOnlyAndWritesNothing) {
    for (uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        auto device = damaged_twice(seed);
        const Bytes before = image_of(*device);
        const size_t lost = lost_paths(sound_, saved(*copy_of(*device)));
        for (const auto errors : {tiffinfs::ErrorsPolicy::remount_read_only,
                                  tiffinfs::ErrorsPolicy::continue_running}) {
            TestVolume volume(*device);
            tiffinfs::MountOptions options = TestVolume::quiet_options();
            options.volume.errors = errors;
            ASSERT_TRUE(volume.mount(options).ok());
            EXPECT_EQ(errno_value(volume.create("/new").error()), errno_value(Error::erofs));
            EXPECT_EQ(errno_value(volume.file_system().remount(false).error()),
                      errno_value(Error::erofs));
            EXPECT_EQ(errno_value(volume.create("/new").error()), errno_value(Error::erofs));
            (void)volume.see().ok();
            EXPECT_TRUE(volume.unmount().ok());
        }
        EXPECT_TRUE(image_of(*device) == before);
        EXPECT_EQ(lost_paths(sound_, saved(*device)), lost);
    }
}

// A read-only mount shows all that a repair would save, and writes nothing, not even for that.
TEST_F(MountThenRepair, ReadOnlyMountShowsAllAndWritesNothing) {
    auto device = damaged(3);
    const Bytes before = image_of(*device);
    device->reset_counts();
    TestVolume volume(*device);
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.read_only = true;
    ASSERT_TRUE(volume.mount(options).ok());
    EXPECT_EQ(lost_paths(sound_, MUST(volume.see())), 0U);
    EXPECT_TRUE(volume.unmount().ok());
    EXPECT_EQ(device->counts().writes, 0U);
    EXPECT_EQ(device->counts().flushes, 0U);
    EXPECT_TRUE(image_of(*device) == before);
}

// What is read for that at a mount is what the last checkpoint has written, not the tree.
TEST_F(MountThenRepair, VerifiesWhatTheLastCheckpointHasWritten) {
    auto device = copy_of(device_);
    (void)see(*device);
    device->reset_counts();
    TestVolume volume(*device);
    tiffinfs::MountOptions options = TestVolume::quiet_options();
    options.volume.read_only = true;
    ASSERT_TRUE(volume.mount(options).ok());
    EXPECT_LT(device->counts().reads, 20U);
}

}  // namespace
}  // namespace tiffin::check
