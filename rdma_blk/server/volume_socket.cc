// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/server/volume_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {
namespace {

constexpr int kBacklog = 64;
constexpr mode_t kFolderMode = 0755;
constexpr mode_t kEverybodyMode = 0666;

std::string path_of(const std::string& runtime_directory, const std::string& volume_name) {
    return runtime_directory + "/" + wire::kVolumeSocketPrefix + volume_name +
           wire::kVolumeSocketSuffix;
}

}  // namespace

Result<UniqueDescriptor> open_volume_socket(const std::string& runtime_directory,
                                            const std::string& volume_name) {
    const std::string path = path_of(runtime_directory, volume_name);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) {
        return Error::enametoolong;
    }
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    const auto* name = reinterpret_cast<const sockaddr*>(&address);
    (void)mkdir(runtime_directory.c_str(), kFolderMode);
    const UniqueDescriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!probe.valid()) {
        return static_cast<Error>(errno);
    }
    if (connect(probe.get(), name, sizeof(address)) == 0 || errno == EAGAIN) {
        return Error::ebusy;
    }
    // Only a socket that surely nobody listens at is removed.
    if (errno == ECONNREFUSED) {
        (void)unlink(path.c_str());
    } else if (errno != ENOENT) {
        return static_cast<Error>(errno);
    }
    UniqueDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener.valid() || bind(listener.get(), name, sizeof(address)) != 0 ||
        chmod(path.c_str(), kEverybodyMode) != 0 || listen(listener.get(), kBacklog) != 0) {
        return static_cast<Error>(errno);
    }
    return listener;
}

void remove_volume_socket(const std::string& runtime_directory, const std::string& volume_name) {
    (void)unlink(path_of(runtime_directory, volume_name).c_str());
}

}  // namespace tiffin::rdma_blk
