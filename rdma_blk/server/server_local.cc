// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The volumes' sockets for processes of this host.
#include <cstring>

#include "rdma_blk/server/server.h"
#include "rdma_blk/server/volume_socket.h"

namespace tiffin::rdma_blk {

// Without its socket a volume is served all the same, over the network.
void Server::open_local_socket(const std::string& volume_name) {
    if (!offers_local_sockets_ || local_sockets_.count(volume_name) != 0) {
        return;
    }
    Result<UniqueDescriptor> listener = open_volume_socket(runtime_directory_, volume_name);
    if (!listener.ok()) {
        host::log(host::LogLevel::warning,
                  ("volume " + volume_name + ": no socket for processes of this host below " +
                   runtime_directory_ + ": " + std::strerror(errno_value(listener.error())))
                      .c_str());
        return;
    }
    local_sockets_[volume_name] = acceptor_->add_listener(listener.release_value());
}

void Server::close_local_socket(const std::string& volume_name) {
    const auto found = local_sockets_.find(volume_name);
    if (found != local_sockets_.end()) {
        remove_volume_socket(runtime_directory_, volume_name);
        acceptor_->remove_listener(found->second);
        local_sockets_.erase(found);
    }
}

void Server::open_local_sockets() {
    MutexLock lock(administration_mutex_);
    offers_local_sockets_ = true;
    for (const VolumeInfo& info : list_volumes()) {
        open_local_socket(info.name);
    }
}

void Server::close_local_sockets() {
    MutexLock lock(administration_mutex_);
    offers_local_sockets_ = false;
    while (!local_sockets_.empty()) {
        close_local_socket(std::string(local_sockets_.begin()->first));
    }
}

}  // namespace tiffin::rdma_blk
