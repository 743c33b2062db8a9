// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Access times of files that are read through mappings, where the host says that somebody reads.
#include <gtest/gtest.h>

#include "tests/unit/tiffinfs/data_fixture.h"

namespace tiffin::tiffinfs {
namespace {

constexpr vfs::Timestamp kLongAgo{1'000'000'000, 5};

class AccessTime : public testing::TestWithParam<AccessTimePolicy> {
  protected:
    static std::unique_ptr<vfs::BlockDevice> make_volume() {
        auto device = make_memory_device(16U << 20);
        EXPECT_TRUE(make_file_system(*device, {}).ok());
        return device;
    }
    static MountOptions mount_options() {
        MountOptions options;
        options.access_time = GetParam();
        return options;
    }

    // What the file's times become when a read is noted, from times that lie in the past; the change time does for a moment.
    vfs::Attributes after_a_read(vfs::Timestamp modification_time) {
        vfs::AttributeChange change;
        change.valid =
            vfs::AttributeChange::access_time_bit | vfs::AttributeChange::modification_time_bit;
        change.access_time = kLongAgo;
        change.modification_time = modification_time;
        const auto before = MUST(volume_.fs().set_attributes({}, file_, change));
        while (Volume::now() == before.change_time) {
        }
        volume_.fs().note_read(file_);
        const auto after = MUST(volume_.fs().get_attributes(file_));
        EXPECT_EQ(after.change_time, before.change_time);
        return after;
    }

    DataVolume volume_{make_volume(), mount_options()};
    uint64_t file_ = volume_.create("file");
};

TEST_P(AccessTime, MovesWithANotedRead) {
    const vfs::Attributes attributes = after_a_read(kLongAgo);
    const bool moves = GetParam() != AccessTimePolicy::noatime;
    EXPECT_EQ(kLongAgo < attributes.access_time, moves);
    EXPECT_EQ(attributes.modification_time, kLongAgo);
}

// The times of a write come behind a change that was made after it.
TEST_P(AccessTime, TheChangeTimeDoesNotGoBack) {
    vfs::AttributeChange change;
    change.valid =
        vfs::AttributeChange::modification_time_bit | vfs::AttributeChange::change_time_bit;
    change.modification_time = kLongAgo;
    change.change_time = kLongAgo;
    const auto before = MUST(volume_.fs().get_attributes(file_));
    const auto after = MUST(volume_.fs().set_attributes({}, file_, change));
    EXPECT_EQ(after.modification_time, kLongAgo);
    EXPECT_EQ(after.change_time, before.change_time);
    EXPECT_GT(after.change_counter, before.change_counter);
}

TEST_P(AccessTime, RelativeOnesMoveOnlyWhenSomethingHasChanged) {
    (void)after_a_read(kLongAgo);
    const vfs::Timestamp first = MUST(volume_.fs().get_attributes(file_)).access_time;
    while (Volume::now() == first) {
    }
    volume_.fs().note_read(file_);
    const vfs::Timestamp second = MUST(volume_.fs().get_attributes(file_)).access_time;
    EXPECT_EQ(first < second, GetParam() == AccessTimePolicy::strictatime);
}

TEST_P(AccessTime, NotingAReadOfNothingDoesNoHarm) {
    volume_.fs().note_read(12345);
    volume_.fs().note_read(vfs::kRootNode);
    ASSERT_TRUE(volume_.fs().shutdown(vfs::ShutdownMode::discard).ok());
    volume_.fs().note_read(file_);
    volume_.abandon();
}

INSTANTIATE_TEST_SUITE_P(Policies, AccessTime,
                         testing::Values(AccessTimePolicy::relatime, AccessTimePolicy::strictatime,
                                         AccessTimePolicy::noatime));

}  // namespace
}  // namespace tiffin::tiffinfs
