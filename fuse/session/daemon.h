// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The life of a process that serves a mount: going into the background, telling the starter how it
// went, logging, ending on signals.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "fuse/host/log_sink.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

// A process that serves a mount must not use that mount itself: a thread that waits for the process' own answer
// cannot be killed, and keeps the kernel from noticing that no process is left to answer. So another process asks
// whether the mount works: the one that waits for it. This is the server's end of the connection between the two.
// Any thread; the first word of success or failure counts.
class Readiness {
  public:
    enum class Place : uint8_t {
        background,  // the other process is the starter, and waits
        foreground,  // the other process is a child that only asks
    };

    // Takes the socket, of type SOCK_SEQPACKET. `asker`: the child, in the foreground; it is waited for.
    explicit Readiness(int socket, Place place, pid_t asker = 0)
        : socket_(socket), place_(place), asker_(asker) {}
    ~Readiness();
    Readiness(const Readiness&) = delete;
    Readiness& operator=(const Readiness&) = delete;

    // Whether the starter waits, or the process is in the foreground.
    bool is_awaited();
    // Has the other process ask the mount, and waits until it has; not from a thread that answers requests.
    // Returns why the mount is of no use, if so. When no process can be asked, that is no reason.
    std::optional<Problem> ask();
    // The daemon works: in the background also lets go of the terminal, into a session of its own. Returns false
    // when the starter does not wait any more.
    bool succeed();
    void fail(const Problem& problem);

  private:
    bool report(char state, const std::string& text);

    std::mutex mutex_;  // not held while ask() waits
    const int socket_;
    const Place place_;
    const pid_t asker_;
    bool is_said_ = false;
};

// Serves in a new process in the background, and returns once that has reported: nothing on success. `ask` is called
// in this process when the mount is there, and returns why it does not work. The new process keeps no descriptors
// of its starter but the standard ones. Call before any thread is started.
std::optional<Problem> run_in_background(const std::function<int(Readiness&)>& serve,
                                         const std::function<std::optional<Problem>()>& ask);

// Serves in this process; `ask` is called in a child. Returns what `serve` returns. Call before any thread is
// started.
std::optional<Problem> run_in_foreground(
    const std::function<std::optional<Problem>(Readiness&)>& serve,
    const std::function<std::optional<Problem>()>& ask);

// What a process needs that other processes' memory depends on; as far as it is permitted.
void harden_process();

// Ignores the signals that end a process by default without saying that it shall end: what comes by mistake, from a
// timer or from a limit that the starter has set. (A limit of file sizes, SIGXFSZ, is then an error of the write.)
// Signals that have a handler keep it. Programs started later inherit this.
void ignore_meaningless_signals();

// Appends lines to a file, with time and level.
class FileLogSink final : public LogSink {
  public:
    static OrProblem<std::unique_ptr<FileLogSink>> open(const std::string& path);
    ~FileLogSink() override;
    void write(host::LogLevel level, const char* message) override;

  private:
    explicit FileLogSink(int file) : file_(file) {}

    int file_;
};

// Passes lines on and remembers the first error, or as long as there is none the last warning, so
// that a failure at the start can be explained: what comes after an error follows from it. And counts, for metrics.
class RememberingLogSink final : public LogSink {
  public:
    explicit RememberingLogSink(LogSink& next) : next_(next) {}
    void write(host::LogLevel level, const char* message) override;
    std::string complaint() const;

    struct Counts {
        uint64_t warnings = 0;
        uint64_t errors = 0;
        int64_t last_error_ns = 0;  // since 1970; 0: there was none
        std::string last_error;
    };
    Counts counts() const;

  private:
    LogSink& next_;
    mutable std::mutex mutex_;
    std::string complaint_;
    bool is_error_ = false;
    Counts counts_;
};

// Calls a function when SIGTERM, SIGINT or SIGHUP arrives, in a thread of its own. Blocks these
// signals in the constructing thread and those it starts: create it before any other thread.
class SignalWatcher {
  public:
    SignalWatcher();
    ~SignalWatcher();
    SignalWatcher(const SignalWatcher&) = delete;
    SignalWatcher& operator=(const SignalWatcher&) = delete;

    // A signal that has arrived and was not reported yet, or 0.
    static int pending_signal();
    // Starts watching; `on_signal` is called for each signal, one after the other.
    std::optional<Problem> start(std::function<void(int number)> on_signal);
    // Waits for a call under way.
    void stop();

  private:
    int signals_ = -1;
    int stop_event_ = -1;
    std::thread thread_;
};

}  // namespace tiffin::fuse
