// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "fuse/host/log_sink.h"

namespace tiffin::fuse {
namespace {

using host::LogLevel;

TEST(Log, IsCaptured) {
    CapturedLog log;
    host::log(LogLevel::warning, "something odd");
    host::log(LogLevel::error, "something bad");
    EXPECT_EQ(log.lines(),
              (std::vector<std::string>{"warning: something odd", "error: something bad"}));
    EXPECT_TRUE(log.contains("odd"));
    EXPECT_FALSE(log.contains("good"));
}

TEST(Log, CapturesNest) {
    CapturedLog outer;
    {
        CapturedLog inner;
        host::log(LogLevel::info, "one");
        EXPECT_TRUE(inner.contains("one"));
    }
    host::log(LogLevel::info, "two");
    EXPECT_EQ(outer.lines(), std::vector<std::string>{"info: two"});
}

TEST(Log, DropsWhatIsBelowTheLevel) {
    CapturedLog log;
    host::log(LogLevel::debug, "hidden by default");
    set_log_level(LogLevel::debug);
    host::log(LogLevel::debug, "shown");
    set_log_level(LogLevel::error);
    host::log(LogLevel::warning, "hidden");
    host::log(LogLevel::error, "always");
    set_log_level(LogLevel::info);
    EXPECT_EQ(log.lines(), (std::vector<std::string>{"debug: shown", "error: always"}));
}

TEST(Log, ControlCharactersCannotStartALine) {
    CapturedLog log;
    host::log(LogLevel::info, "name\nerror: forged\x1b[2J\x7f caf\xc3\xa9");
    EXPECT_EQ(log.lines(), std::vector<std::string>{"info: name?error: forged?[2J? caf\xc3\xa9"});
}

TEST(Log, LongLinesEndInDots) {
    CapturedLog log;
    host::log(LogLevel::info, std::string(5000, 'x').c_str());
    ASSERT_EQ(log.lines().size(), 1U);
    const std::string line = log.lines()[0];
    EXPECT_LT(line.size(), 1100U);
    EXPECT_TRUE(line.ends_with("xxx..."));
}

TEST(Log, ThreadsDoNotMix) {
    CapturedLog log;
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([t] {
            const std::string text(50, static_cast<char>('a' + t));
            for (int i = 0; i < 50; ++i) {
                host::log(LogLevel::info, text.c_str());
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(log.lines().size(), 200U);
    for (const std::string& line : log.lines()) {
        EXPECT_EQ(line, "info: " + std::string(50, line.back()));
    }
}

TEST(StderrLogSink, WritesOneLine) {
    StderrLogSink plain("mkfs.tiffin");
    testing::internal::CaptureStderr();
    plain.write(LogLevel::error, "no such device");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "mkfs.tiffin: error: no such device\n");
}

TEST(StderrLogSink, PutsTheTimeInFrontWhenAsked) {
    StderrLogSink timed("tiffin", true);
    testing::internal::CaptureStderr();
    timed.write(LogLevel::info, "mounted");
    const std::string line = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(line.ends_with(" tiffin: info: mounted\n")) << line;
    EXPECT_EQ(line.find("tiffin"), std::string("2000-01-01 00:00:00.000 ").size()) << line;
}

TEST(Log, GoesToStderrWithoutASink) {
    LogSink* previous = set_log_sink(nullptr);
    testing::internal::CaptureStderr();
    host::log(LogLevel::warning, "hello");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "tiffin: warning: hello\n");
    set_log_sink(previous);
}

TEST(SyslogLogSink, TakesAllLevels) {
    SyslogLogSink sink("tiffin-test");
    for (LogLevel level : {LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error}) {
        sink.write(level, "%s is not a format");
    }
}

TEST(PanicDeathTest, LogsAndAborts) {
    EXPECT_DEATH(host::panic("a_file.cc", 42, "the reason"), "error: a_file.cc:42: the reason");
    EXPECT_DEATH(TIFFIN_ASSERT(1 + 1 == 3), "assertion failed: 1 \\+ 1 == 3");
}

class PanickingSink final : public LogSink {
  public:
    void write(LogLevel, const char*) override { host::panic("sink.cc", 1, "inside a sink"); }
};

TEST(PanicDeathTest, EndsEvenInsideASink) {
    PanickingSink sink;
    EXPECT_DEATH(
        {
            set_log_sink(&sink);
            host::log(LogLevel::error, "x");
        },
        "inside a sink");
}

}  // namespace
}  // namespace tiffin::fuse
