// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/peer_process.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace tiffin::rdma_blk {
namespace {

#if !defined(SO_PEERPIDFD)
constexpr int kPeerPidfd = 77;  // since Linux 6.5; older headers lack it
#else
constexpr int kPeerPidfd = SO_PEERPIDFD;
#endif

// The 22nd field of /proc/PID/stat. The second one is the program's name in parentheses, with anything in it.
Result<uint64_t> read_start_ticks(pid_t id) {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d/stat", static_cast<int>(id));
    FILE* file = std::fopen(path, "re");
    if (file == nullptr) {
        return static_cast<Error>(errno);
    }
    char line[1024] = {};
    const bool was_read = std::fgets(line, sizeof(line), file) != nullptr;
    std::fclose(file);
    const char* field = was_read ? std::strrchr(line, ')') : nullptr;
    constexpr int kFieldsBehindName = 20;
    for (int number = 0; field != nullptr && number < kFieldsBehindName; number++) {
        field = std::strchr(field + 1, ' ');
    }
    if (field == nullptr) {
        return Error::eio;
    }
    return std::strtoull(field + 1, nullptr, 10);
}

UniqueDescriptor open_pidfd(pid_t id) {
    return UniqueDescriptor(static_cast<int>(syscall(SYS_pidfd_open, id, 0)));
}

int send_signal(int pidfd, int signal) {
    return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

// Without SO_PEERPIDFD the number may have been given to another process before it was looked up. Mostly not as
// long as the other end is open, but a child of the one that connected may have that.
bool is_other_end_open(int socket) {
    pollfd polled{socket, 0, 0};
    return poll(&polled, 1, 0) >= 0 && (polled.revents & (POLLHUP | POLLERR)) == 0;
}

// A process that its own user could not end must not be ended for him.
bool is_owned_by(pid_t id, uid_t user) {
    char path[64];
    std::snprintf(path, sizeof(path), "/proc/%d", static_cast<int>(id));
    struct stat status {};
    return stat(path, &status) == 0 && status.st_uid == user;
}

}  // namespace

Result<std::shared_ptr<PeerProcess>> PeerProcess::make(UniqueDescriptor descriptor, pid_t id) {
    const Result<uint64_t> start_ticks = read_start_ticks(id);
    std::shared_ptr<PeerProcess> process(new (std::nothrow) PeerProcess(
        std::move(descriptor), id, start_ticks.ok() ? start_ticks.value() : 0));
    if (!process) {
        return Error::enomem;
    }
    // What was read belongs to this process only if its number was not free meanwhile.
    if (process->is_gone()) {
        return Error::enoent;
    }
    if (!start_ticks.ok()) {  // it lives, and cannot be looked at
        return start_ticks.error() == Error::enoent ? Error::eacces : start_ticks.error();
    }
    return process;
}

Result<std::shared_ptr<PeerProcess>> PeerProcess::of_socket(int socket) {
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        return Error::eopnotsupp;
    }
    if (peer.pid <= 0) {
        return Error::enoent;
    }
    int pidfd = -1;
    length = sizeof(pidfd);
    UniqueDescriptor descriptor;
    if (getsockopt(socket, SOL_SOCKET, kPeerPidfd, &pidfd, &length) == 0) {
        descriptor.reset(pidfd);
    } else if (errno == ENOPROTOOPT) {
        descriptor = open_pidfd(peer.pid);
        if (!descriptor.valid() || !is_other_end_open(socket) || !is_owned_by(peer.pid, peer.uid)) {
            return Error::enoent;
        }
    } else {
        return static_cast<Error>(errno);
    }
    return make(std::move(descriptor), peer.pid);
}

Result<std::shared_ptr<PeerProcess>> PeerProcess::find(pid_t id, uint64_t start_ticks) {
    UniqueDescriptor descriptor = open_pidfd(id);
    if (!descriptor.valid()) {
        // einval, enoent: the number is a thread's now.
        const bool is_gone = errno == ESRCH || errno == EINVAL || errno == ENOENT;
        return is_gone ? Error::enoent : static_cast<Error>(errno);
    }
    auto process = TRY(make(std::move(descriptor), id));
    if (process->start_ticks() != start_ticks) {
        return Error::enoent;
    }
    return process;
}

bool PeerProcess::is_this_process() const { return id_ == getpid(); }

bool PeerProcess::may_be_ended() const {
    return !is_this_process() && (send_signal(descriptor_.get(), 0) == 0 || errno == ESRCH);
}

void PeerProcess::end() {
    is_ending_.store(true);
    if (!is_this_process()) {
        (void)send_signal(descriptor_.get(), SIGKILL);
    }
}

bool PeerProcess::is_gone() const { return wait_until_gone(0); }

bool PeerProcess::wait_until_gone(int timeout_ms) const {
    pollfd polled{descriptor_.get(), POLLIN, 0};
    return poll(&polled, 1, timeout_ms) > 0 && (polled.revents & POLLIN) != 0;
}

}  // namespace tiffin::rdma_blk
