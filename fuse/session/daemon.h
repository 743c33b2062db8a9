// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The life of a process that serves a mount: going into the background, telling the starter how it
// went, logging, ending on signals.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "fuse/host/log_sink.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

// Tells the process that waits for the daemon whether it works. Any thread; the first word counts.
class Readiness {
  public:
    // Of a process in the foreground: nobody waits.
    Readiness() = default;
    // Writes to a pipe, which it closes.
    explicit Readiness(int pipe) : pipe_(pipe) {}
    ~Readiness();
    Readiness(const Readiness&) = delete;
    Readiness& operator=(const Readiness&) = delete;

    // Whether somebody waits, or the process is in the foreground.
    bool is_awaited();
    // The daemon works: also lets go of the terminal, into a session of its own. Returns false when
    // nobody waits any more.
    bool succeed();
    void fail(const Problem& problem);

  private:
    bool report(char state, const std::string& text);

    std::mutex mutex_;
    int pipe_ = -1;
};

// Runs `serve` in a new process in the background and waits until it reports: nothing on success. Only the starter
// returns. The new process keeps no descriptors of its starter but the standard ones. Call before any thread is
// started.
std::optional<Problem> run_in_background(const std::function<int(Readiness&)>& serve);

// What a process needs that other processes' memory depends on; as far as it is permitted.
void harden_process();

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
// that a failure at the start can be explained: what comes after an error follows from it.
class RememberingLogSink final : public LogSink {
  public:
    explicit RememberingLogSink(LogSink& next) : next_(next) {}
    void write(host::LogLevel level, const char* message) override;
    std::string complaint() const;

  private:
    LogSink& next_;
    mutable std::mutex mutex_;
    std::string complaint_;
    bool is_error_ = false;
};

// Calls a function when SIGTERM, SIGINT or SIGHUP arrives, in a thread of its own. Blocks these
// signals in the constructing thread and those it starts: create it before any other thread.
class SignalWatcher {
  public:
    SignalWatcher();
    ~SignalWatcher();
    SignalWatcher(const SignalWatcher&) = delete;
    SignalWatcher& operator=(const SignalWatcher&) = delete;

    // A signal that has arrived and that nobody was told of, or 0.
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
