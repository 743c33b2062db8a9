// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where the lines of host::log() go: to standard error (the default), to the system's log, or into a
// test's hands.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "fs/vfs/host.h"

namespace tiffin::fuse {

// A destination of log lines. write() is called for one line at a time, in the threads that log.
class LogSink {
  public:
    virtual ~LogSink() = default;
    // `message` has no newline and no control characters. Must not log.
    virtual void write(host::LogLevel level, const char* message) = 0;
};

// Sends all lines from now on to `sink`, which must live until it is replaced; nullptr stands for
// standard error. When this returns, no thread is using the previous sink any more, which is
// returned. Any thread.
LogSink* set_log_sink(LogSink* sink);

// Lines below this level are dropped; the default is LogLevel::info. Any thread.
void set_log_level(host::LogLevel minimum);

// "error", "warning", "info" or "debug".
const char* log_level_name(host::LogLevel level);

// Writes "PROGRAM: LEVEL: message", after the time of day when asked for, to standard error; each
// line with one system call.
class StderrLogSink final : public LogSink {
  public:
    explicit StderrLogSink(const char* program, bool with_time = false);
    void write(host::LogLevel level, const char* message) override;

  private:
    std::string program_;
    bool with_time_;
};

// Writes to syslog(3), facility daemon. At most one exists at a time: syslog is global.
class SyslogLogSink final : public LogSink {
  public:
    explicit SyslogLogSink(const char* program);
    ~SyslogLogSink() override;
    void write(host::LogLevel level, const char* message) override;

  private:
    std::string program_;  // syslog keeps the pointer
};

// For tests: while it exists, lines of all levels (except those that set_log_level() drops) are kept
// here instead of being printed. Nests: the previous sink comes back at the end.
class CapturedLog final : public LogSink {
  public:
    CapturedLog();
    ~CapturedLog() override;
    void write(host::LogLevel level, const char* message) override;

    // All lines so far, as "LEVEL: message". Any thread.
    std::vector<std::string> lines() const;
    // Whether a line contains `text`. Any thread.
    bool contains(const std::string& text) const;

  private:
    mutable std::mutex mutex_;
    std::vector<std::string> lines_;
    LogSink* previous_;
};

}  // namespace tiffin::fuse
