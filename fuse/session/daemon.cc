// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/session/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
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

// What is said between the server and the other process, each with a text behind it.
constexpr char kMounted = '?';  // by the server: does the mount work?
constexpr char kWorks = '+';    // by both
constexpr char kFailed = '-';   // by both
constexpr size_t kMaxMessageBytes = 65536;

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

// Returns whether the other end can still hear it.
bool send_message(int socket, char kind, const std::string& text = "") {
    const std::string message = (kind + text).substr(0, kMaxMessageBytes);
    ssize_t sent = 0;
    do {
        sent = send(socket, message.data(), message.size(), MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(message.size());
}

// Empty when the other end is gone.
std::string receive_message(int socket) {
    std::string message(kMaxMessageBytes, '\0');
    ssize_t length = 0;
    do {
        length = recv(socket, message.data(), message.size(), 0);
    } while (length < 0 && errno == EINTR);
    message.resize(length < 0 ? 0 : static_cast<size_t>(length));
    return message;
}

// The other process: asks when it is told to, and returns the server's last word; empty when it died before.
std::string answer_server(int socket, const std::function<std::optional<Problem>()>& ask) {
    while (true) {
        std::string message = receive_message(socket);
        if (message.empty() || message.front() != kMounted) {
            return message;
        }
        const std::optional<Problem> problem = ask();
        // A server that is gone is noticed next.
        (void)send_message(socket, problem.has_value() ? kFailed : kWorks,
                           problem.has_value() ? problem->text : "");
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
    if (null < 0) {  // without a number that is left, by that of one of them
        close(STDIN_FILENO);
        null = open("/dev/null", O_RDWR);  // NOLINT(android-cloexec-open)
    }
    for (int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (null >= 0 && null != standard) {
            dup2(null, standard);
        }
    }
    if (null > STDERR_FILENO) {
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
    close(socket_);
    if (asker_ > 0) {
        while (waitpid(asker_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
}

bool Readiness::report(char state, const std::string& text) {
    std::lock_guard lock(mutex_);
    if (is_said_) {
        return true;
    }
    is_said_ = true;
    if (state == kWorks && place_ == Place::background) {
        // Before the starter returns: its terminal may go away with it. Not earlier: until now a
        // signal to the starter's process group is meant for this process too.
        setsid();
        detach_from_terminal();
    }
    bool is_heard = send_message(socket_, state, text) || place_ == Place::foreground;
    shutdown(socket_, SHUT_RDWR);
    return is_heard;
}

bool Readiness::is_awaited() {
    std::lock_guard lock(mutex_);
    pollfd source{socket_, 0, 0};
    return place_ == Place::foreground || is_said_ || poll(&source, 1, 0) <= 0;
}

std::optional<Problem> Readiness::ask() {
    const std::string answer =
        send_message(socket_, kMounted) ? receive_message(socket_) : std::string();
    if (answer.empty() || answer.front() == kWorks) {
        return std::nullopt;
    }
    return Problem{answer.substr(1), Error::eio};
}

bool Readiness::succeed() { return report(kWorks, ""); }

void Readiness::fail(const Problem& problem) { report(kFailed, problem.text); }

namespace {

// Two connected ends; neither is a standard descriptor that the starter has closed.
std::optional<Problem> connect_processes(int (&ends)[2]) {
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
        return Problem{"cannot make a pair of sockets: " + system_error_text(errno), Error::eio};
    }
    for (int& end : ends) {
        if (end < kFirstOther) {
            end = fcntl(end, F_DUPFD_CLOEXEC, kFirstOther);
        }
        if (end < 0) {
            return Problem{"cannot make a pair of sockets: " + system_error_text(errno),
                           Error::eio};
        }
    }
    fflush(nullptr);  // before a fork
    return std::nullopt;
}

Problem no_process(int error) {
    return Problem{"cannot start a process: " + system_error_text(error), Error::eagain};
}

}  // namespace

std::optional<Problem> run_in_background(const std::function<int(Readiness&)>& serve,
                                         const std::function<std::optional<Problem>()>& ask) {
    int ends[2];
    if (std::optional<Problem> problem = connect_processes(ends)) {
        return problem;
    }
    pid_t child = fork();
    if (child < 0) {
        return no_process(errno);
    }
    if (child == 0) {
        close_others_than(ends[1]);
        fill_standard_descriptors();
        int status = EXIT_FAILURE;
        {
            Readiness readiness(ends[1], Readiness::Place::background);
            status = serve(readiness);
        }
        exit(status);
    }
    close(ends[1]);
    const std::string report = answer_server(ends[0], ask);
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

std::optional<Problem> run_in_foreground(
    const std::function<std::optional<Problem>(Readiness&)>& serve,
    const std::function<std::optional<Problem>()>& ask) {
    int ends[2];
    if (std::optional<Problem> problem = connect_processes(ends)) {
        return problem;
    }
    pid_t child = fork();
    if (child < 0) {
        return no_process(errno);
    }
    if (child == 0) {
        close_others_than(ends[0]);
        (void)answer_server(ends[0], ask);
        _exit(EXIT_SUCCESS);
    }
    close(ends[0]);
    Readiness readiness(ends[1], Readiness::Place::foreground, child);
    return serve(readiness);
}

void ignore_meaningless_signals() {
    const auto ignore = [](int number) {
        struct sigaction current {};
        if (sigaction(number, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
            signal(number, SIG_IGN);
        }
    };
    for (int number : {SIGPIPE, SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGPWR,
                       SIGSTKFLT, SIGXCPU, SIGXFSZ}) {
        ignore(number);
    }
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++) {
        ignore(number);
    }
    // Where the starter ignores it, it cannot wait for a child.
    signal(SIGCHLD, SIG_DFL);
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
    // In one call, so that lines stay whole. An error could not be reported.
    (void)!writev(file_, parts, std::size(parts));
}

void RememberingLogSink::write(host::LogLevel level, const char* message) {
    if (level >= host::LogLevel::warning) {
        std::lock_guard lock(mutex_);
        if (!is_error_) {
            complaint_ = message;
            is_error_ = level >= host::LogLevel::error;
        }
        if (level >= host::LogLevel::error) {
            counts_.errors++;
            counts_.last_error_ns = host::realtime_ns();
            counts_.last_error = message;
        } else {
            counts_.warnings++;
        }
    }
    next_.write(level, message);
}

std::string RememberingLogSink::complaint() const {
    std::lock_guard lock(mutex_);
    return complaint_;
}

RememberingLogSink::Counts RememberingLogSink::counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
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
