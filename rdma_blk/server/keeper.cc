// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/keeper.h"

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

namespace tiffin::rdma_blk {
namespace {

constexpr int kDescriptors = 2;  // data, control
constexpr int kShortestDelayMs = 50;
constexpr int kLongestDelayMs = 10'000;
constexpr uint64_t kQuickEndNs = 10'000'000'000;

enum class MessageKind : uint32_t {
    find = 1,
    keep = 2,
    forget = 3,
    found = 4,
    not_found = 5,
    ready = 6,
    kept = 7,
    not_kept = 8,
};

struct Message {
    MessageKind kind = MessageKind::find;
    char volume_name[wire::kMaxVolumeNameBytes + 1] = {};
};

bool send_message(int socket, const Message& message, const int* descriptors) {
    iovec vector{const_cast<Message*>(&message), sizeof(message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptors)] = {};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    if (descriptors != nullptr) {
        header.msg_control = control;
        header.msg_controllen = sizeof(control);
        cmsghdr* rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * kDescriptors);
        std::memcpy(CMSG_DATA(rights), descriptors, sizeof(int) * kDescriptors);
    }
    ssize_t sent = -1;
    do {
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof(message));
}

bool receive_message(int socket, Message& message, KeptMemory& memory) {
    iovec vector{&message, sizeof(message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptors)] = {};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    ssize_t received = -1;
    do {
        received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    const cmsghdr* rights = received > 0 ? CMSG_FIRSTHDR(&header) : nullptr;
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int) * kDescriptors)) {
        int descriptors[kDescriptors];
        std::memcpy(descriptors, CMSG_DATA(rights), sizeof(descriptors));
        memory.data.reset(descriptors[0]);
        memory.control.reset(descriptors[1]);
    }
    message.volume_name[wire::kMaxVolumeNameBytes] = '\0';
    return received == static_cast<ssize_t>(sizeof(message));
}

Message make_message(MessageKind kind, const std::string& volume_name) {
    Message message;
    message.kind = kind;
    std::memcpy(message.volume_name, volume_name.data(),
                std::min(volume_name.size(), wire::kMaxVolumeNameBytes));
    return message;
}

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
    explicit Keeper(const std::function<int(MemoryKeeper&)>& worker) : worker_(worker) {}

    int run() {
        sigset_t signals;
        sigemptyset(&signals);
        for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD}) {
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
    void step();
    void answer();
    void take_signals();
    void reap_child();

    const std::function<int(MemoryKeeper&)>& worker_;
    sigset_t previous_signals_{};
    UniqueDescriptor signals_;
    UniqueDescriptor socket_;
    std::map<std::string, KeptMemory> kept_;
    pid_t child_ = -1;
    uint64_t started_ns_ = 0;
    int restart_delay_ms_ = 0;  // of the next restart
    bool waits_to_restart_ = false;
    bool has_run_ = false;  // a start succeeded
    bool is_stopping_ = false;
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
    child_ = fork();
    if (child_ != 0) {
        return child_ > 0;
    }
    sigprocmask(SIG_SETMASK, &previous_signals_, nullptr);
    // Without its keeper the server's promise (memory survives it) would be empty: it ends as well.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(EXIT_FAILURE);
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

void Keeper::step() {
    pollfd polled[2] = {{signals_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}};
    const bool talks = socket_.valid();
    const int ready = poll(polled, talks ? 2 : 1, waits_to_restart_ ? restart_delay_ms_ : -1);
    if (ready == 0 && waits_to_restart_) {
        waits_to_restart_ = false;
        if (!start_child()) {
            waits_to_restart_ = true;
        }
        return;
    }
    if (talks && (polled[1].revents & (POLLIN | POLLHUP)) != 0) {
        answer();
    }
    if ((polled[0].revents & POLLIN) != 0) {
        take_signals();
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
        const int signal = static_cast<int>(info.ssi_signo);
        if (signal == SIGCHLD) {
            reap_child();
            continue;
        }
        if (signal == SIGHUP) {
            if (child_ > 0) {
                kill(child_, SIGHUP);
            }
            continue;
        }
        is_stopping_ = true;
        if (child_ > 0) {
            kill(child_, SIGTERM);
        } else {
            is_done_ = true;
        }
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
    if (is_stopping_ || !by_accident || never_ran) {
        is_done_ = true;
        status_ = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
        return;
    }
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

int run_with_keeper(const std::function<int(MemoryKeeper& keeper)>& worker) {
    Keeper keeper(worker);
    return keeper.run();
}

}  // namespace tiffin::rdma_blk
