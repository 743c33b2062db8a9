// SPDX-License-Identifier: MIT OR GPL-2.0-only
// host::log() and host::panic(), and the sinks that the lines go to.
#include <execinfo.h>
#include <sys/uio.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "fuse/host/log_sink.h"

namespace tiffin::fuse {
namespace {

constexpr size_t kLineBytes = 1024;

// Neither a file name nor a damaged block may start a line of its own in a log, or move a cursor:
// control characters are replaced. What does not fit ends in "...".
void make_one_line(char (&line)[kLineBytes], const char* message) {
    size_t size = 0;
    for (; message[size] != '\0' && size < kLineBytes - 1; ++size) {
        const auto byte = static_cast<unsigned char>(message[size]);
        line[size] = byte < 0x20 || byte == 0x7f ? '?' : static_cast<char>(byte);
    }
    if (message[size] != '\0') {
        memcpy(line + size - 3, "...", 3);
    }
    line[size] = '\0';
}

void write_to_stderr(const char* time, const char* program, host::LogLevel level,
                     const char* message) {
    char line[kLineBytes + 128];
    int size = snprintf(line, sizeof line, "%s%s: %s: %s\n", time, program, log_level_name(level),
                        message);
    if (size < 0) {
        return;
    }
    if (static_cast<size_t>(size) >= sizeof line) {
        size = sizeof line - 1;
        line[size - 1] = '\n';
    }
    // One call, so that the lines of several processes do not mix. That standard error cannot be
    // written to cannot be reported.
    [[maybe_unused]] const ssize_t written =
        ::write(STDERR_FILENO, line, static_cast<size_t>(size));
}

// Guards the choice of the sink and is held while it writes.
constinit std::mutex sink_mutex;
constinit LogSink* current_sink = nullptr;
constinit std::atomic<host::LogLevel> minimum_level{host::LogLevel::info};
// Whether this thread holds sink_mutex, for a panic that comes out of a sink.
constinit thread_local bool logging = false;

}  // namespace

LogSink* set_log_sink(LogSink* sink) {
    std::lock_guard lock(sink_mutex);
    LogSink* previous = current_sink;
    current_sink = sink;
    return previous;
}

void set_log_level(host::LogLevel minimum) {
    minimum_level.store(minimum, std::memory_order_relaxed);
}

const char* log_level_name(host::LogLevel level) {
    switch (level) {
        case host::LogLevel::debug:
            return "debug";
        case host::LogLevel::info:
            return "info";
        case host::LogLevel::warning:
            return "warning";
        case host::LogLevel::error:
            return "error";
    }
    return "unknown";
}

// ---- Standard error ------------------------------------------------------------------------

StderrLogSink::StderrLogSink(const char* program, bool with_time)
    : program_(program), with_time_(with_time) {}

void StderrLogSink::write(host::LogLevel level, const char* message) {
    char time[40] = "";
    if (with_time_) {
        const int64_t now_ns = host::realtime_ns();
        const auto seconds = static_cast<time_t>(now_ns / 1000000000);
        tm parts{};
        localtime_r(&seconds, &parts);
        const size_t size = strftime(time, sizeof time, "%Y-%m-%d %H:%M:%S", &parts);
        snprintf(time + size, sizeof time - size, ".%03d ",
                 static_cast<int>(now_ns / 1000000 % 1000));
    }
    write_to_stderr(time, program_.c_str(), level, message);
}

// ---- The system's log ----------------------------------------------------------------------

SyslogLogSink::SyslogLogSink(const char* program) : program_(program) {
    openlog(program_.c_str(), LOG_PID | LOG_NDELAY, LOG_DAEMON);
}

SyslogLogSink::~SyslogLogSink() { closelog(); }

void SyslogLogSink::write(host::LogLevel level, const char* message) {
    int priority = LOG_INFO;
    switch (level) {
        case host::LogLevel::debug:
            priority = LOG_DEBUG;
            break;
        case host::LogLevel::info:
            priority = LOG_INFO;
            break;
        case host::LogLevel::warning:
            priority = LOG_WARNING;
            break;
        case host::LogLevel::error:
            priority = LOG_ERR;
            break;
    }
    syslog(priority, "%s", message);
}

// ---- Tests ---------------------------------------------------------------------------------

CapturedLog::CapturedLog() : previous_(set_log_sink(this)) {}

CapturedLog::~CapturedLog() { set_log_sink(previous_); }

void CapturedLog::write(host::LogLevel level, const char* message) {
    std::lock_guard lock(mutex_);
    lines_.push_back(std::string(log_level_name(level)) + ": " + message);
}

std::vector<std::string> CapturedLog::lines() const {
    std::lock_guard lock(mutex_);
    return lines_;
}

bool CapturedLog::contains(const std::string& text) const {
    std::lock_guard lock(mutex_);
    for (const std::string& line : lines_) {
        if (line.find(text) != std::string::npos) {
            return true;
        }
    }
    return false;
}

}  // namespace tiffin::fuse

namespace tiffin::host {

void log(LogLevel level, const char* message) {
    if (level < fuse::minimum_level.load(std::memory_order_relaxed)) {
        return;
    }
    char line[fuse::kLineBytes];
    fuse::make_one_line(line, message);
    if (fuse::logging) {
        fuse::write_to_stderr("", "tiffin", level, line);
        return;
    }
    std::lock_guard lock(fuse::sink_mutex);
    fuse::logging = true;
    if (fuse::current_sink != nullptr) {
        fuse::current_sink->write(level, line);
    } else {
        fuse::write_to_stderr("", "tiffin", level, line);
    }
    fuse::logging = false;
}

void panic(const char* file, int line, const char* message) {
    // A panic within a panic ends at once.
    static constinit thread_local bool panicking = false;
    if (!panicking) {
        panicking = true;
        char text[512];
        snprintf(text, sizeof text, "%s:%d: %s", file, line, message);
        log(LogLevel::error, text);
        void* frames[64];
        const int count = backtrace(frames, 64);
        backtrace_symbols_fd(frames, count, STDERR_FILENO);
    }
    abort();
}

}  // namespace tiffin::host
