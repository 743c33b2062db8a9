// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The options of -o: what they set, what of them the kernel gets, and what is said about mistakes.
#include "fuse/session/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "fuse/host/processor_latency.h"
#include "fuse/session/option_table.h"

namespace tiffin::fuse {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

MountOptions parsed(const char* text) {
    MountOptions options;
    std::optional<Problem> problem = add_mount_options(text, options);
    EXPECT_FALSE(problem.has_value()) << problem->text;
    return options;
}

std::string problem_with(const char* text) {
    MountOptions options;
    std::optional<Problem> problem = add_mount_options(text, options);
    return problem.has_value() ? problem->text : "no problem";
}

std::vector<std::string> for_kernel(const char* text, bool is_root) {
    auto options = kernel_mount_options(parsed(text), is_root);
    EXPECT_TRUE(options.ok());
    return options.ok() ? options.value() : std::vector<std::string>();
}

TEST(MountOptions, NothingIsTheDefault) {
    MountOptions options = parsed("");
    EXPECT_FALSE(options.file_system.read_only);
    EXPECT_FALSE(options.file_system.synchronous);
    EXPECT_EQ(options.file_system.access_times, AccessTimeUpdates::relative);
    EXPECT_FALSE(options.file_system.cache_bytes.has_value());
    EXPECT_EQ(options.max_threads, kDefaultMaxThreads);
    EXPECT_FALSE(options.busy_poll_us.has_value());
    EXPECT_FALSE(options.cpu_latency_us.has_value());
}

TEST(MountOptions, OfTheFileSystem) {
    MountOptions options = parsed(
        "ro,noatime,sync,cache=64M,commit=3,errors=continue,max_threads=5,busy_poll_us=7,cpu_"
        "latency_us=20,"
        "strict_flags,write_through,cache_directories");
    EXPECT_TRUE(options.file_system.read_only);
    EXPECT_TRUE(options.file_system.synchronous);
    EXPECT_EQ(options.file_system.access_times, AccessTimeUpdates::never);
    EXPECT_EQ(options.file_system.cache_bytes, uint64_t{64} << 20);
    EXPECT_EQ(options.file_system.commit_interval_ms, 3000U);
    EXPECT_EQ(options.file_system.errors, ErrorsPolicy::continue_running);
    EXPECT_EQ(options.max_threads, 5U);
    EXPECT_TRUE(options.write_through);
    EXPECT_TRUE(options.cache_directories);
    EXPECT_EQ(options.busy_poll_us, 7U);
    EXPECT_EQ(options.cpu_latency_us, 20U);
    EXPECT_TRUE(options.strict_flags);
}

TEST(MountOptions, ProcessorsMaySleep) {
    EXPECT_EQ(parsed("cpu_latency_us=none").cpu_latency_us, kNoProcessorLatencyUs);
}

TEST(MountOptions, RecoveryCanBeLeftOut) {
    EXPECT_FALSE(parsed("ro").file_system.no_recovery);
    EXPECT_TRUE(parsed("ro,norecovery").file_system.no_recovery);
    EXPECT_TRUE(parsed("noload,ro").file_system.no_recovery);
}

TEST(MountOptions, TheLastOneCounts) {
    EXPECT_FALSE(parsed("ro,rw").file_system.read_only);
    EXPECT_TRUE(parsed("rw,ro").file_system.read_only);
    EXPECT_EQ(parsed("noatime,strictatime").file_system.access_times, AccessTimeUpdates::always);
    EXPECT_THAT(for_kernel("nosuid,suid", true), Contains("suid"));
    EXPECT_THAT(for_kernel("suid,nosuid", true), Not(Contains("suid")));
}

TEST(MountOptions, UnknownOnesCanBeSkippedAndTheOthersCount) {
    MountOptions options;
    EXPECT_FALSE(
        add_mount_options("color=red,ro,size,nosuid", options, UnknownOptions::skip).has_value());
    EXPECT_TRUE(options.file_system.read_only);
    EXPECT_EQ(options.suid, false);
    EXPECT_TRUE(add_mount_options("color,commit=soon", options, UnknownOptions::skip).has_value());
}

TEST(MountOptions, WhatMountAddsIsIgnored) {
    MountOptions options = parsed(
        "rw,defaults,noauto,user,user=ann,_netdev,nofail,x-systemd.automount,X-mount.mkdir,"
        "comment=systemd.automount,uhelper=udisks2,default_permissions,,");
    EXPECT_FALSE(options.file_system.read_only);
}

TEST(MountOptions, ABackslashKeepsAComma) {
    EXPECT_EQ(parsed("fsname=a\\,b\\\\c,ro").source, "a,b\\c");
    EXPECT_EQ(parsed("ro,fsname=last\\").source, "last\\");
}

TEST(MountOptions, QuotesKeepCommas) {
    EXPECT_THAT(split_mount_options("ro,context=\"a:b:c1,c2\",noatime"),
                ElementsAre("ro", "context=a:b:c1,c2", "noatime"));
    EXPECT_THAT(for_kernel("context=\"a:b:c1,c2\"", true), testing::Contains("context=a:b:c1,c2"));
    EXPECT_EQ(quoted_mount_option("context=a:b:c1,c2"), "context=\"a:b:c1,c2\"");
    EXPECT_EQ(quoted_mount_option("context=a:b:c1"), "context=a:b:c1");
    // Elsewhere, and alone, it is a character like others.
    EXPECT_THAT(split_mount_options("log=/a\"b,ro,log=\"c"),
                ElementsAre("log=/a\"b", "ro", "log=\"c"));
}

TEST(MountOptions, MistakesAreNamed) {
    EXPECT_THAT(problem_with("ro,color=red"), HasSubstr("\"color=red\""));
    EXPECT_THAT(problem_with("cache"), HasSubstr("cache=SIZE"));
    EXPECT_THAT(problem_with("cache=big"), HasSubstr("\"big\""));
    EXPECT_THAT(problem_with("cache=0"), HasSubstr("from 1M to 1T"));
    EXPECT_THAT(problem_with("cache=9T"), HasSubstr("from 1M to 1T"));
    EXPECT_THAT(problem_with("commit=-1"), HasSubstr("\"-1\""));
    EXPECT_THAT(problem_with("commit=5s"), HasSubstr("\"5s\""));
    EXPECT_THAT(problem_with("commit=99999999999999999999"), HasSubstr("from 0 to 86400"));
    EXPECT_THAT(problem_with("max_threads=1"), HasSubstr("from 2 to 1024"));
    EXPECT_THAT(problem_with("busy_poll_us=1001"), HasSubstr("from 0 to 1000"));
    EXPECT_THAT(problem_with("cpu_latency_us=10001"), HasSubstr("from 0 to 10000"));
    EXPECT_THAT(problem_with("cpu_latency_us=off"), HasSubstr("\"off\""));
    EXPECT_THAT(problem_with("errors=panic"), HasSubstr("\"panic\""));
    EXPECT_THAT(problem_with("log="), HasSubstr("path"));
    for (const char* address : {"", "9848", ":9848", "localhost:9848", "127.0.0.1", "127.0.0.1:0",
                                "127.0.0.1:65536", "::1:9848", "127.0.0.1:80s", "[::1]"}) {
        EXPECT_THAT(problem_with((std::string("metrics=") + address).c_str()),
                    HasSubstr("127.0.0.1:9848"));
    }
    EXPECT_EQ(parsed("metrics=[::1]:9848").metrics, "[::1]:9848");
}

TEST(MountOptions, RootMountsLikeAnyFileSystem) {
    EXPECT_THAT(for_kernel("", true), ElementsAre("allow_other", "suid", "dev"));
    EXPECT_THAT(for_kernel("nodev,nosuid,noexec,noallow_other,ro,noatime,dirsync", true),
                ElementsAre("ro", "dirsync", "noatime", "noexec"));
}

TEST(MountOptions, OthersMayNotHaveEverything) {
    EXPECT_THAT(for_kernel("", false), ElementsAre());
    EXPECT_THAT(for_kernel("allow_other,nodev", false), ElementsAre("allow_other"));
    EXPECT_FALSE(kernel_mount_options(parsed("suid"), false).ok());
    EXPECT_FALSE(kernel_mount_options(parsed("dev"), false).ok());
}

TEST(MountOptionTable, EachEntryIsWhole) {
    std::set<std::string_view> seen;
    for (const MountOption& option : mount_option_table()) {
        SCOPED_TRACE(option.title);
        EXPECT_FALSE(option.names[0].name.empty());
        bool has_help = false;
        bool has_example = option.argument != nullptr;
        for (const OptionName& name : option.names) {
            EXPECT_EQ(name.apply == nullptr, name.name.empty());
            EXPECT_TRUE(name.name.empty() || seen.insert(name.name).second) << name.name;
            has_help |= name.help != nullptr;
            has_example |= name.name == option.example;
        }
        EXPECT_TRUE(has_help);
        EXPECT_TRUE(has_example);
        EXPECT_NE(option.may_become, nullptr);
    }
}

// The example differs from the default, so a rule that compares another field is found too.
TEST(MountOptionTable, EachEntryParsesItsExampleAndJudgesItInARemount) {
    std::set<std::string_view> changeable;
    for (const MountOption& option : mount_option_table()) {
        SCOPED_TRACE(option.title);
        std::string word = option.example;
        if (option.argument != nullptr) {
            word = std::string(option.names[0].name) + "=" + word;
            EXPECT_THAT(problem_with(std::string(option.names[0].name).c_str()),
                        HasSubstr(std::string("=") + option.argument));
            EXPECT_THAT(mount_options_help(), HasSubstr(std::string(option.names[0].name) + "="));
        }
        const MountOptions asked = parsed(word.c_str());
        EXPECT_TRUE(option.may_become(asked, asked));
        if (option.may_become(MountOptions(), asked)) {
            changeable.insert(option.title);
        }
    }
    EXPECT_THAT(changeable, UnorderedElementsAre("ro and rw", "suid", "dev", "exec", "symfollow",
                                                 "remount", "force"));
}

}  // namespace
}  // namespace tiffin::fuse
