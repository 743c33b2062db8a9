// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Options of a remount: what a mount has may be named again, what it cannot get is refused.
#include "fuse/session/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tiffin::fuse {
namespace {

using ::testing::HasSubstr;

const MountEntry kShown{.device_number = "0:50",
                        .root = "/",
                        .mount_point = "/mnt",
                        .options = "rw,nodev,relatime",
                        .type = "fuse.tiffin",
                        .source = "/srv/image",
                        .super_options = "rw,user_id=0,group_id=0,default_permissions,allow_other"};

std::string problem_with(const char* asked, const char* running) {
    std::optional<Problem> problem = check_remount_options(asked, running, kShown);
    return problem.has_value() ? problem->text : "";
}

TEST(RemountOptions, WhatARemountCanChange) {
    EXPECT_EQ(problem_with("remount", ""), "");
    EXPECT_EQ(problem_with("remount,ro,nosuid,dev,noexec,nosymfollow", "cache=1M"), "");
}

TEST(RemountOptions, WhatTheMountHasMayBeNamedAgain) {
    const char* fstab = "rw,noatime,nodev,sync,cache=32M,commit=7,log=/log,x-a=b,user,_netdev";
    EXPECT_EQ(problem_with(fstab, fstab), "");
    EXPECT_EQ(problem_with("ro,remount,cache=32768K", fstab), "");
    EXPECT_EQ(problem_with("remount,fsname=/srv/image", ""), "");
    // Without a line in the fstab mount(8) repeats what the kernel shows, which knows no strictatime.
    EXPECT_EQ(
        problem_with("ro,relatime,remount,user_id=0,group_id=0,default_permissions,allow_other",
                     "strictatime"),
        "");
}

TEST(RemountOptions, OthersAreRefusedByName) {
    for (const char* asked :
         {"sync", "noatime", "commit=8", "cache=64M", "log=/other", "dirsync", "strict_flags",
          "errors=continue", "noallow_other", "max_threads=3", "busy_poll_us=3", "cpu_latency_us=0",
          "norecovery", "fsname=other", "io_uring", "context=a", "cache_directories"}) {
        std::string name = asked;
        name = name.substr(0, name.find('='));
        name = name == "noallow_other" ? "allow_other" : name;
        EXPECT_THAT(problem_with(asked, "cache=32M,commit=7"), HasSubstr(name)) << asked;
    }
    EXPECT_THAT(problem_with("remount,async", "sync"), HasSubstr("sync"));
    EXPECT_THAT(problem_with("remount,color", ""), HasSubstr("unknown mount option"));
}

}  // namespace
}  // namespace tiffin::fuse
