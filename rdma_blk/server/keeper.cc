// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/server/keeper_messages.h"

namespace tiffin::rdma_blk {
namespace {

using keeper::kDescriptors;
using keeper::make_message;
using keeper::Message;
using keeper::MessageKind;
using keeper::receive_message;
using keeper::send_message;

constexpr int kShortestDelayMs = 50;
constexpr int kLongestDelayMs = 10'000;
constexpr uint64_t kQuickEndNs = 10'000'000'000;
constexpr int kLongestStopMs = 30'000;  // of a server that is to be started again

// The child's side.
class KeeperClient final : public MemoryKeeper {
  public:
    explicit KeeperClient(UniqueDescriptor socket) : socket_(std::move(socket)) {}

    KeptMemory find(const std::string& volume_name) override {
        MutexLock lock(mutex_);
        KeptMemory memory;
        Message answer;
        if (!send_message(socket_.get(), make_message(MessageKind::find, volume_name), nullptr) ||
            !receive_message(socket_.get(), answer, memory) || answer.kind != MessageKind::found) {
            return {};
        }
        return memory;
    }
    Result<void> keep(const std::string& volume_name, int data, int control) override {
        MutexLock lock(mutex_);
        const int descriptors[kDescriptors] = {data, control};
        KeptMemory none;
        Message answer;
        // Until the keeper says so the memory is not kept: it may have no descriptors left.
        const bool is_kept =
            send_message(socket_.get(), make_message(MessageKind::keep, volume_name),
                         descriptors) &&
            receive_message(socket_.get(), answer, none) && answer.kind == MessageKind::kept;
        return is_kept ? Result<void>() : Error::eio;
    }
    void forget(const std::string& volume_name) override {
        MutexLock lock(mutex_);
        (void)send_message(socket_.get(), make_message(MessageKind::forget, volume_name), nullptr);
    }

    void server_is_ready() override {
        MutexLock lock(mutex_);
        (void)send_message(socket_.get(), make_message(MessageKind::ready, ""), nullptr);
    }

  private:
    UniqueDescriptor socket_;
    host::Mutex mutex_{host::LockClass::leaf};
};

class Keeper {
  public:
    Keeper(const std::function<int(MemoryKeeper&)>& worker, const std::vector<std::string>& program)
        : worker_(worker), program_(program) {}

    int run() {
        sigset_t signals;
        sigemptyset(&signals);
        for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGCHLD}) {
            sigaddset(&signals, signal);
        }
        sigprocmask(SIG_BLOCK, &signals, &previous_signals_);
        signals_.reset(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
        if (!signals_.valid() || !start_child()) {
            host::log(host::LogLevel::error, "the keeper cannot start the server");
            return EXIT_FAILURE;
        }
        while (!is_done_) {
            step();
        }
        return status_;
    }

  private:
    bool start_child();
    [[noreturn]] void become_program(UniqueDescriptor socket) const;
    void step();
    void on_timeout();
    void answer();
    void take_signals();
    void take_signal(int signal);
    void reap_child();
    void restart_after_accident(int status);
    void end_with(int status);
    void report_what_is_lost();

    const std::function<int(MemoryKeeper&)>& worker_;
    const std::vector<std::string>& program_;
    sigset_t previous_signals_{};
    UniqueDescriptor signals_;
    UniqueDescriptor socket_;
    std::map<std::string, KeptMemory> kept_;
    pid_t child_ = -1;
    uint64_t started_ns_ = 0;
    int restart_delay_ms_ = 0;  // of the next restart
    bool waits_to_restart_ = false;
    bool has_run_ = false;       // a start succeeded
    bool is_ready_ = false;      // the child's did
    bool uses_program_ = false;  // for the next start, and those that follow
    bool is_restarting_ = false;
    bool is_stopping_ = false;
    bool has_tried_to_write_ =
        false;  // a worker that was killed while it stopped has been started once more
    bool is_done_ = false;
    int status_ = EXIT_SUCCESS;
};

bool Keeper::start_child() {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return false;
    }
    socket_.reset(sockets[0]);
    UniqueDescriptor other(sockets[1]);
    const pid_t parent = getpid();
    started_ns_ = host::monotonic_ns();
    is_ready_ = false;
    child_ = fork();
    if (child_ != 0) {
        return child_ > 0;
    }
    (void)std::signal(SIGUSR2, SIG_IGN);    // the keeper's; it may be sent to all processes at once
    sigaddset(&previous_signals_, SIGHUP);  // waits until the server takes it
    if (!kept_.empty()) {
        sigaddset(&previous_signals_, SIGTERM);  // likewise: it has what is kept to write first
    }
    sigprocmask(SIG_SETMASK, &previous_signals_, nullptr);
    // Without its keeper the server's promise (memory survives it) would be empty: it ends as well.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(EXIT_FAILURE);
    }
    if (uses_program_) {
        become_program(std::move(other));
    }
    socket_.reset();
    signals_.reset();
    kept_.clear();  // the child asks for what it needs
    int status = EXIT_FAILURE;
    {
        KeeperClient client(std::move(other));
        status = worker_(client);
    }
    std::exit(status);
}

// All other descriptors of the keeper are closed by that.
void Keeper::become_program(UniqueDescriptor socket) const {
    std::vector<std::string> texts = program_;
    texts.emplace_back(kKeeperSocketOption);
    texts.push_back(std::to_string(socket.get()));
    std::vector<char*> arguments;
    arguments.reserve(texts.size() + 1);
    for (std::string& text : texts) {
        arguments.push_back(text.data());
    }
    arguments.push_back(nullptr);
    (void)fcntl(socket.get(), F_SETFD, 0);
    execvp(arguments[0], arguments.data());
    host::log(host::LogLevel::error,
              (program_[0] + " cannot be started: " + std::strerror(errno)).c_str());
    _exit(EXIT_FAILURE);
}

void Keeper::step() {
    pollfd polled[2] = {{signals_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    const bool talks = socket_.valid();
    const int timeout_ms = waits_to_restart_ ? restart_delay_ms_
                           : is_restarting_  ? kLongestStopMs
                                             : -1;
    if (poll(polled, talks ? 2 : 1, timeout_ms) == 0) {
        on_timeout();
        return;
    }
    if (talks && (polled[1].revents & (POLLIN | POLLHUP)) != 0) {
        answer();
    }
    if ((polled[0].revents & POLLIN) != 0) {
        take_signals();
    }
}

void Keeper::on_timeout() {
    if (waits_to_restart_) {
        waits_to_restart_ = !start_child();
        restart_delay_ms_ = std::max(restart_delay_ms_, kShortestDelayMs);
    } else if (child_ > 0) {
        // Something that it waits for does not end; its memory is as after an accident.
        host::log(host::LogLevel::warning, "the server does not end in time and is killed");
        kill(child_, SIGKILL);
    }
}

void Keeper::answer() {
    Message message;
    KeptMemory memory;
    if (!receive_message(socket_.get(), message, memory)) {
        socket_.reset();  // the child has ended; SIGCHLD says how
        return;
    }
    const std::string name = message.volume_name;
    if (message.kind == MessageKind::keep) {
        const bool is_whole = memory.data.valid() && memory.control.valid();
        if (is_whole) {
            kept_[name] = std::move(memory);
        }
        (void)send_message(socket_.get(),
                           make_message(is_whole ? MessageKind::kept : MessageKind::not_kept, name),
                           nullptr);
    } else if (message.kind == MessageKind::ready) {
        has_run_ = true;
        is_ready_ = true;
    } else if (message.kind == MessageKind::forget) {
        kept_.erase(name);
    } else if (message.kind == MessageKind::find) {
        const auto found = kept_.find(name);
        if (found == kept_.end()) {
            (void)send_message(socket_.get(), make_message(MessageKind::not_found, name), nullptr);
        } else {
            const int descriptors[kDescriptors] = {found->second.data.get(),
                                                   found->second.control.get()};
            (void)send_message(socket_.get(), make_message(MessageKind::found, name), descriptors);
        }
    }
}

void Keeper::take_signals() {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
        take_signal(static_cast<int>(info.ssi_signo));
    }
}

void Keeper::take_signal(int signal) {
    if (signal == SIGCHLD) {
        reap_child();
        return;
    }
    if (signal == SIGHUP) {
        if (child_ > 0) {
            kill(child_, SIGHUP);
        }
        return;
    }
    if (signal == SIGUSR2) {
        uses_program_ = true;
        is_restarting_ = child_ > 0 && !is_stopping_;  // else the next start is near
    } else {
        is_stopping_ = true;
        is_restarting_ = false;
        waits_to_restart_ = false;
        // What is kept may be more than the backings have: a server writes it to them.
        if (child_ <= 0 && (kept_.empty() || !start_child())) {
            report_what_is_lost();
            is_done_ = true;
        }
    }
    if (child_ > 0) {
        kill(child_, is_stopping_ ? SIGTERM : kStopWithKeptMemory);
    }
}

void Keeper::reap_child() {
    int status = 0;
    if (child_ <= 0 || waitpid(child_, &status, WNOHANG) != child_) {
        return;
    }
    // What it still had to say about memory comes first.
    while (socket_.valid()) {
        answer();
    }
    child_ = -1;
    const bool by_accident = WIFSIGNALED(status) || WEXITSTATUS(status) != EXIT_SUCCESS;
    const bool never_ran = !has_run_ && !WIFSIGNALED(status);
    if (is_restarting_) {
        is_restarting_ = false;
        host::log(
            host::LogLevel::info,
            ("the server is started again from " + program_[0] + "; its memory is kept").c_str());
        restart_delay_ms_ = 0;
        waits_to_restart_ = true;
    } else if (uses_program_ && !is_ready_ && (by_accident || !is_stopping_)) {
        uses_program_ = false;
        host::log(host::LogLevel::error,
                  (program_[0] + " cannot serve: what was started first goes on").c_str());
        if (!is_stopping_) {
            restart_after_accident(status);
        } else if (!kept_.empty() && start_child()) {
            kill(child_, SIGTERM);  // it writes what is kept
        } else {
            end_with(status);
        }
    } else if (is_stopping_ && WIFSIGNALED(status) && !kept_.empty() && !has_tried_to_write_ &&
               start_child()) {
        // It was killed while it wrote. Once: the next one may die of the same.
        has_tried_to_write_ = true;
        kill(child_, SIGTERM);
    } else if (is_stopping_ || !by_accident || never_ran) {
        end_with(status);
    } else {
        restart_after_accident(status);
    }
}

void Keeper::end_with(int status) {
    is_done_ = true;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
    if (WIFSIGNALED(status) || (status_ != EXIT_SUCCESS && !is_ready_)) {
        report_what_is_lost();
    }
}

// At the end, without a server that could have written it.
void Keeper::report_what_is_lost() {
    for (const auto& [name, memory] : kept_) {
        host::log(
            host::LogLevel::error,
            ("volume " + name + ": its memory is lost; what was not flushed is not in its backing")
                .c_str());
        status_ = EXIT_FAILURE;
    }
}

void Keeper::restart_after_accident(int status) {
    const std::string cause = WIFSIGNALED(status)
                                  ? "was ended by signal " + std::to_string(WTERMSIG(status))
                                  : "ended with status " + std::to_string(WEXITSTATUS(status));
    host::log(host::LogLevel::error, ("the server " + cause + "; its memory is kept").c_str());
    const bool was_quick = host::monotonic_ns() - started_ns_ < kQuickEndNs;
    restart_delay_ms_ = was_quick
                            ? std::clamp(restart_delay_ms_ * 2, kShortestDelayMs, kLongestDelayMs)
                            : kShortestDelayMs;
    waits_to_restart_ = true;
}

}  // namespace

int run_with_keeper(const std::function<int(MemoryKeeper& keeper)>& worker,
                    const std::vector<std::string>& program) {
    Keeper keeper(worker, program);
    return keeper.run();
}

std::unique_ptr<MemoryKeeper> connect_to_keeper(int descriptor) {
    int type = 0;
    socklen_t size = sizeof(type);
    if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET ||
        fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0) {
        return nullptr;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // a program with rights of its own has lost that
    return std::make_unique<KeeperClient>(UniqueDescriptor(descriptor));
}

}  // namespace tiffin::rdma_blk
