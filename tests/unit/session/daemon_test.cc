// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Going into the background: the starter learns how it went.
#include "fuse/session/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace tiffin::fuse {
namespace {

using ::testing::HasSubstr;

TEST(Background, SuccessIsSilent) {
    EXPECT_FALSE(run_in_background([](Readiness& readiness) {
                     readiness.succeed();
                     _exit(0);
                     return 0;
                 }).has_value());
}

TEST(Background, AFailureArrivesInWords) {
    std::optional<Problem> problem = run_in_background([](Readiness& readiness) {
        readiness.fail({"the device is on fire"});
        readiness.succeed();  // too late
        _exit(1);
        return 1;
    });
    ASSERT_TRUE(problem.has_value());
    EXPECT_EQ(problem->text, "the device is on fire");
}

TEST(Background, ADeathIsNoticed) {
    std::optional<Problem> problem = run_in_background([](Readiness&) {
        raise(SIGKILL);
        return 0;
    });
    ASSERT_TRUE(problem.has_value());
    EXPECT_THAT(problem->text, HasSubstr("killed by signal 9"));
    problem = run_in_background([](Readiness&) {
        _exit(7);
        return 7;
    });
    ASSERT_TRUE(problem.has_value());
    EXPECT_THAT(problem->text, HasSubstr("ended with status 7"));
}

TEST(Background, AStarterThatIsGoneIsNoticed) {
    // In a process of its own, which lets go of its standard descriptors and its session.
    pid_t child = fork();
    if (child == 0) {
        int ends[2];
        if (pipe(ends) != 0) {
            _exit(1);
        }
        signal(SIGPIPE, SIG_IGN);
        Readiness readiness(ends[1]);
        bool was_awaited = readiness.is_awaited();
        close(ends[0]);
        bool is_awaited = readiness.is_awaited();
        bool is_heard = readiness.succeed();
        _exit(was_awaited && !is_awaited && !is_heard && getsid(0) == getpid() ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST(LogFile, GetsLines) {
    std::string path = ::testing::TempDir() + "tiffin_log_test_" + std::to_string(getpid());
    auto sink = FileLogSink::open(path);
    ASSERT_TRUE(sink.ok());
    RememberingLogSink remembering(*sink.value());
    remembering.write(host::LogLevel::warning, "careful");
    remembering.write(host::LogLevel::info, "fine");
    EXPECT_EQ(remembering.complaint(), "careful");
    std::stringstream content;
    content << std::ifstream(path).rdbuf();
    EXPECT_THAT(content.str(), HasSubstr("warning: careful\n"));
    EXPECT_THAT(content.str(), HasSubstr("info: fine\n"));
    unlink(path.c_str());
    EXPECT_FALSE(FileLogSink::open("/nonexistent/folder/log").ok());
}

}  // namespace
}  // namespace tiffin::fuse
