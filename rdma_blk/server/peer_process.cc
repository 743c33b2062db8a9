// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/peer_process.h"

#include <poll.h>
#include <sys/socket.h>
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
        return Error::enoent;
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
        return Error::enoent;
    }
    return std::strtoull(field + 1, nullptr, 10);
}

UniqueDescriptor open_pidfd(pid_t id) {
    return UniqueDescriptor(static_cast<int>(syscall(SYS_pidfd_open, id, 0)));
}

int send_signal(int pidfd, int signal) {
    return static_cast<int>(syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0));
}

// Without SO_PEERPIDFD the number may have been given to another process before it was looked up, but not
// as long as the one that connected has its end open.
bool is_other_end_open(int socket) {
    pollfd polled{socket, 0, 0};
    return poll(&polled, 1, 0) >= 0 && (polled.revents & (POLLHUP | POLLERR)) == 0;
}

}  // namespace

Result<std::shared_ptr<PeerProcess>> PeerProcess::make(UniqueDescriptor descriptor, pid_t id) {
    const uint64_t start_ticks = TRY(read_start_ticks(id));
    std::shared_ptr<PeerProcess> process(new (std::nothrow)
                                             PeerProcess(std::move(descriptor), id, start_ticks));
    if (!process) {
        return Error::enomem;
    }
    // What was read belongs to this process only if its number was not free meanwhile.
    if (process->is_gone()) {
        return Error::enoent;
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
    } else {
        descriptor = open_pidfd(peer.pid);
        if (!descriptor.valid() || !is_other_end_open(socket)) {
            return Error::enoent;
        }
    }
    return make(std::move(descriptor), peer.pid);
}

std::shared_ptr<PeerProcess> PeerProcess::find(pid_t id, uint64_t start_ticks) {
    UniqueDescriptor descriptor = open_pidfd(id);
    if (!descriptor.valid()) {
        return nullptr;
    }
    auto process = make(std::move(descriptor), id);
    return process.ok() && (*process)->start_ticks() == start_ticks ? process.release_value()
                                                                    : nullptr;
}

bool PeerProcess::is_this_process() const { return id_ == getpid(); }

bool PeerProcess::may_be_ended() const {
    return !is_this_process() && (send_signal(descriptor_.get(), 0) == 0 || errno == ESRCH);
}

void PeerProcess::end() const {
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
