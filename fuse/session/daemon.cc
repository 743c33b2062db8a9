// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#ifndef PR_SET_IO_FLUSHER
#define PR_SET_IO_FLUSHER 57
#endif

namespace tiffin::fuse {
namespace {

constexpr char kWorks = '+';
constexpr char kFailed = '-';

// Returns whether all of it was written.
bool write_all(int file, const char* data, size_t size) {
    while (size > 0) {
        ssize_t written = write(file, data, size);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return false;
        }
        data += written;
        size -= static_cast<size_t>(written);
    }
    return true;
}

std::string read_all(int file) {
    std::string text;
    std::array<char, 512> buffer{};
    while (true) {
        ssize_t length = read(file, buffer.data(), buffer.size());
        if (length < 0 && errno == EINTR) {
            continue;
        }
        if (length <= 0) {
            return text;
        }
        text.append(buffer.data(), static_cast<size_t>(length));
    }
}

constexpr int kFirstOther = STDERR_FILENO + 1;

// The starter may keep a lock or the end of a pipe in any descriptor; others wait until it is closed.
void close_others_than(int kept) {
    auto close_between = [](int first, int last) {
        return first > last ||
               close_range(static_cast<unsigned>(first), static_cast<unsigned>(last), 0) == 0;
    };
    if (close_between(kFirstOther, kept - 1) && close_between(kept + 1, INT_MAX)) {
        return;
    }
    // Before Linux 5.9.
    std::vector<int> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
        files.push_back(atoi(entry.path().filename().c_str()));
    }
    for (int file : files) {
        if (file >= kFirstOther && file != kept) {
            close(file);
        }
    }
}

// What the starter has closed would be given to the next files that are opened: to the device, for
// one, which everything that libraries print would then be written to.
void fill_standard_descriptors() {
    int null = -1;
    do {
        null = open("/dev/null", O_RDWR);
    } while (null >= 0 && null < kFirstOther);
    if (null >= 0) {
        close(null);
    }
}

void detach_from_terminal() {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        for (int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
            dup2(null, standard);
        }
        close(null);
    }
}

std::string how_it_ended(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(status)) {
        return std::string("was killed by signal ") + std::to_string(WTERMSIG(status)) + " (" +
               strsignal(WTERMSIG(status)) + ")";
    }
    return "ended with status " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 0);
}

constexpr int kEndingSignals[] = {SIGTERM, SIGINT, SIGHUP};

sigset_t ending_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (int number : kEndingSignals) {
        sigaddset(&set, number);
    }
    return set;
}

}  // namespace

Readiness::~Readiness() {
    if (pipe_ >= 0) {
        close(pipe_);
    }
}

bool Readiness::report(char state, const std::string& text) {
    std::lock_guard lock(mutex_);
    if (pipe_ < 0) {
        return true;
    }
    std::string message = state + text;
    if (state == kWorks) {
        // Before the starter returns: its terminal may go away with it. Not earlier: until now a
        // signal to the starter's process group is meant for this process too.
        setsid();
        detach_from_terminal();
    }
    bool is_heard = write_all(pipe_, message.data(), message.size());
    close(pipe_);
    pipe_ = -1;
    return is_heard;
}

bool Readiness::is_awaited() {
    std::lock_guard lock(mutex_);
    pollfd source{pipe_, 0, 0};
    return pipe_ < 0 || poll(&source, 1, 0) <= 0;
}

bool Readiness::succeed() { return report(kWorks, ""); }

void Readiness::fail(const Problem& problem) { report(kFailed, problem.text); }

std::optional<Problem> run_in_background(const std::function<int(Readiness&)>& serve) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return Problem{"cannot make a pipe: " + system_error_text(errno), Error::eio};
    }
    // Standard descriptors that the starter has closed are not for the pipe.
    int report_end = fcntl(ends[1], F_DUPFD_CLOEXEC, kFirstOther);
    close(ends[1]);
    if (report_end < 0) {
        close(ends[0]);
        return Problem{"cannot make a pipe: too many files are open", Error::eio};
    }
    fflush(nullptr);
    pid_t child = fork();
    if (child < 0) {
        int error = errno;
        close(ends[0]);
        close(report_end);
        return Problem{"cannot start a process: " + system_error_text(error), Error::eagain};
    }
    if (child == 0) {
        close(ends[0]);
        close_others_than(report_end);
        fill_standard_descriptors();
        int status = EXIT_FAILURE;
        {
            Readiness readiness(report_end);
            status = serve(readiness);
        }
        exit(status);
    }
    close(report_end);
    std::string report = read_all(ends[0]);
    close(ends[0]);
    if (report.empty()) {
        return Problem{"the process of the file system " + how_it_ended(child) +
                           " before the mount was ready; the system's log may say why",
                       Error::eio};
    }
    if (report.front() == kWorks) {
        return std::nullopt;
    }
    return Problem{report.substr(1), Error::eio};
}

void harden_process() {
    // While memory is short the kernel writes to this mount to free some: this process must not wait
    // for that itself. And it must not be the one that is killed.
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (file >= 0) {
        write_all(file, "-900", 4);
        close(file);
    }
    signal(SIGPIPE, SIG_IGN);
}

// ---- Logging -----------------------------------------------------------------------------------

OrProblem<std::unique_ptr<FileLogSink>> FileLogSink::open(const std::string& path) {
    int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) {
        return Problem{"cannot write the log " + path + ": " + system_error_text(errno),
                       Error::eacces};
    }
    return std::unique_ptr<FileLogSink>(new FileLogSink(file));
}

FileLogSink::~FileLogSink() { close(file_); }

void FileLogSink::write(host::LogLevel level, const char* message) {
    char time_text[32] = "";
    time_t now = time(nullptr);
    tm local{};
    if (localtime_r(&now, &local) != nullptr) {
        strftime(time_text, sizeof time_text, "%Y-%m-%d %H:%M:%S", &local);
    }
    // Without an allocation: what is logged may be that there is no memory.
    char head[64];
    const int head_bytes = snprintf(head, sizeof head, "%s %s: ", time_text, log_level_name(level));
    iovec parts[] = {{head, static_cast<size_t>(head_bytes)},
                     {const_cast<char*>(message), std::strlen(message)},
                     {const_cast<char*>("\n"), 1}};
    // In one call, so that lines stay whole. Nobody could be told of an error.
    (void)!writev(file_, parts, std::size(parts));
}

void RememberingLogSink::write(host::LogLevel level, const char* message) {
    if (level >= host::LogLevel::warning) {
        std::lock_guard lock(mutex_);
        if (!is_error_) {
            complaint_ = message;
            is_error_ = level >= host::LogLevel::error;
        }
    }
    next_.write(level, message);
}

std::string RememberingLogSink::complaint() const {
    std::lock_guard lock(mutex_);
    return complaint_;
}

// ---- Signals -----------------------------------------------------------------------------------

SignalWatcher::SignalWatcher() {
    sigset_t set = ending_signals();
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

SignalWatcher::~SignalWatcher() { stop(); }

int SignalWatcher::pending_signal() {
    sigset_t pending;
    sigpending(&pending);
    for (int number : kEndingSignals) {
        if (sigismember(&pending, number) == 1) {
            return number;
        }
    }
    return 0;
}

std::optional<Problem> SignalWatcher::start(std::function<void(int number)> on_signal) {
    sigset_t set = ending_signals();
    signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    stop_event_ = eventfd(0, EFD_CLOEXEC);
    if (signals_ < 0 || stop_event_ < 0) {
        return Problem{"cannot watch for signals: " + system_error_text(errno), Error::eio};
    }
    try {
        thread_ = std::thread([this, on_signal = std::move(on_signal)] {
            pollfd sources[] = {{stop_event_, POLLIN, 0}, {signals_, POLLIN, 0}};
            while (poll(sources, 2, -1) >= 0 || errno == EINTR) {
                if ((sources[0].revents & POLLIN) != 0) {
                    return;
                }
                signalfd_siginfo info{};
                if ((sources[1].revents & POLLIN) != 0 &&
                    read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
                    on_signal(static_cast<int>(info.ssi_signo));
                }
            }
        });
    } catch (const std::system_error&) {
        return Problem{"cannot start a thread: raise the limit of processes", Error::eagain};
    }
    return std::nullopt;
}

void SignalWatcher::stop() {
    if (thread_.joinable()) {
        uint64_t one = 1;
        write_all(stop_event_, reinterpret_cast<const char*>(&one), sizeof one);
        thread_.join();
    }
    for (int* file : {&signals_, &stop_event_}) {
        if (*file >= 0) {
            close(*file);
            *file = -1;
        }
    }
}

}  // namespace tiffin::fuse
