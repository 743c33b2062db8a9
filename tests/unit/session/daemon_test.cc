// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Going into the background: the starter learns how it went.
#include "fuse/session/daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

namespace tiffin::fuse {
namespace {

using ::testing::HasSubstr;

const std::function<std::optional<Problem>()> kWorks = [] { return std::nullopt; };

TEST(Background, SuccessIsSilent) {
    EXPECT_FALSE(run_in_background(
                     [](Readiness& readiness) {
                         readiness.succeed();
                         _exit(0);
                         return 0;
                     },
                     kWorks)
                     .has_value());
}

TEST(Background, TheStarterAsks) {
    std::optional<Problem> problem = run_in_background(
        [](Readiness& readiness) {
            const std::optional<Problem> answer = readiness.ask();
            readiness.fail({"asked: " + (answer.has_value() ? answer->text : "nothing")});
            _exit(1);
            return 1;
        },
        [] { return Problem{"no answer"}; });
    ASSERT_TRUE(problem.has_value());
    EXPECT_EQ(problem->text, "asked: no answer");
}

TEST(Foreground, AChildAsks) {
    const pid_t server = getpid();
    const auto ask = [server]() -> std::optional<Problem> {
        return Problem{getpid() == server ? "the server asks itself" : "no answer"};
    };
    std::optional<Problem> problem = run_in_foreground(
        [](Readiness& readiness) {
            EXPECT_TRUE(readiness.is_awaited());
            std::optional<Problem> answer = readiness.ask();
            EXPECT_TRUE(readiness.succeed());
            return answer;
        },
        ask);
    ASSERT_TRUE(problem.has_value());
    EXPECT_EQ(problem->text, "no answer");
    // Also where nothing is ever asked.
    EXPECT_FALSE(run_in_foreground([](Readiness&) { return std::nullopt; }, ask).has_value());
}

TEST(Background, AFailureArrivesInWords) {
    std::optional<Problem> problem = run_in_background(
        [](Readiness& readiness) {
            readiness.fail({"the device is on fire"});
            readiness.succeed();  // too late
            _exit(1);
            return 1;
        },
        kWorks);
    ASSERT_TRUE(problem.has_value());
    EXPECT_EQ(problem->text, "the device is on fire");
}

TEST(Background, ADeathIsNoticed) {
    std::optional<Problem> problem = run_in_background(
        [](Readiness&) {
            raise(SIGKILL);
            return 0;
        },
        kWorks);
    ASSERT_TRUE(problem.has_value());
    EXPECT_THAT(problem->text, HasSubstr("killed by signal 9"));
    problem = run_in_background(
        [](Readiness&) {
            _exit(7);
            return 7;
        },
        kWorks);
    ASSERT_TRUE(problem.has_value());
    EXPECT_THAT(problem->text, HasSubstr("ended with status 7"));
}

TEST(Background, AStarterThatIsGoneIsNoticed) {
    // In a process of its own, which lets go of its standard descriptors and its session.
    pid_t child = fork();
    if (child == 0) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) {
            _exit(1);
        }
        Readiness readiness(ends[1], Readiness::Place::background);
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
