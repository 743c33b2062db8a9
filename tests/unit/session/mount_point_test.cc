// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Mount points from outside: what is mounted, and which folders can be used.
#include "fuse/session/mount_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tiffin::fuse {
namespace {

using ::testing::HasSubstr;

class MountPoint : public ::testing::Test {
  protected:
    MountPoint() {
        std::string pattern = ::testing::TempDir() + "mount_point_XXXXXX";
        folder_ = mkdtemp(pattern.data());
    }
    ~MountPoint() override { std::filesystem::remove_all(folder_); }

    std::string folder_;
};

TEST_F(MountPoint, ProcIsFound) {
    std::optional<MountEntry> entry = find_mount("/proc");
    ASSERT_TRUE(entry.has_value());
    EXPECT_EQ(entry->type, "proc");
    EXPECT_FALSE(find_mount(folder_).has_value());
}

TEST_F(MountPoint, AFolderCanBeUsed) {
    std::string link = folder_ + "/link";
    std::filesystem::create_directory(folder_ + "/real");
    std::filesystem::create_symlink("real", link);
    auto checked = check_mount_point(link);
    ASSERT_TRUE(checked.ok()) << checked.problem().text;
    EXPECT_EQ(checked.value(), std::filesystem::canonical(folder_ + "/real").string());
}

TEST_F(MountPoint, OthersCannot) {
    EXPECT_THAT(check_mount_point(folder_ + "/missing").problem().text,
                HasSubstr("does not exist"));
    std::ofstream(folder_ + "/file") << "x";
    EXPECT_THAT(check_mount_point(folder_ + "/file").problem().text, HasSubstr("not a directory"));
    EXPECT_THAT(check_mount_point("/proc").problem().text, HasSubstr("in use"));
}

TEST_F(MountPoint, InsideIsSeenThroughLinks) {
    std::filesystem::create_directories(folder_ + "/mnt/sub");
    std::filesystem::create_symlink(folder_ + "/mnt", folder_ + "/link");
    std::string mount_point = std::filesystem::canonical(folder_ + "/mnt");
    EXPECT_TRUE(is_inside(folder_ + "/mnt/image", mount_point));
    EXPECT_TRUE(is_inside(folder_ + "/mnt/sub/image", mount_point));
    EXPECT_TRUE(is_inside(folder_ + "/link/sub/image", mount_point));
    EXPECT_FALSE(is_inside(folder_ + "/image", mount_point));
    EXPECT_FALSE(is_inside(folder_ + "/mnt2", mount_point));
    EXPECT_FALSE(is_inside(folder_ + "/missing/image", mount_point));
    EXPECT_TRUE(is_inside(folder_ + "/image", "/"));
}

}  // namespace
}  // namespace tiffin::fuse
