// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/device_address.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "fuse/host/device_users.h"
#include "fuse/host/file_device.h"
#include "fuse/host/memory_device.h"
#include "fuse/host/release_wait.h"
#include "fuse/host/remote_device.h"
#include "fuse/host/size_text.h"

namespace tiffin::fuse {
namespace {

constexpr auto kReleasePoll = std::chrono::milliseconds(20);
constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 62;

OrProblem<DeviceAddress> parse_memory(std::string_view size_text) {
    if (size_text.empty()) {
        return Problem{"the size is missing: write mem:SIZE, such as mem:1G"};
    }
    OrProblem<uint64_t> size = parse_size(size_text);
    if (!size.ok()) {
        return size.problem();
    }
    if (*size < MemoryDevice::kPageBytes || *size > kMaxMemoryBytes) {
        return Problem{"mem:" + std::string(size_text) + " is too " +
                           (*size > kMaxMemoryBytes ? "large" : "small") +
                           ": write a size from 8M up, such as mem:1G",
                       Error::erange};
    }
    DeviceAddress address;
    address.kind = DeviceAddress::Kind::memory;
    address.size_bytes = *size;
    return address;
}

OrProblem<DeviceAddress> parse_remote(std::string_view text) {
    OrProblem<RemoteVolumeAddress> remote = parse_remote_address(text.substr(strlen("tiffin:")));
    if (!remote.ok()) {
        return Problem{"\"" + std::string(text) + "\": " + remote.problem().text,
                       remote.problem().code};
    }
    DeviceAddress address;
    address.kind = DeviceAddress::Kind::remote;
    address.remote = std::move(*remote);
    return address;
}

template <typename Device>
OrProblem<std::unique_ptr<vfs::BlockDevice>> as_block_device(
    OrProblem<std::unique_ptr<Device>> device) {
    if (!device.ok()) {
        return device.problem();
    }
    return std::unique_ptr<vfs::BlockDevice>(std::move(*device));
}

Problem explain_busy(const std::string& path, const DeviceUser& user, const Problem& problem) {
    if (!user.mount_point.empty()) {
        return {path + " is mounted on " + user.mount_point + ": unmount it first (umount " +
                    user.mount_point + "); of what is mounted, tiffin status " + user.mount_point +
                    " tells",
                problem.code};
    }
    if (!user.program.empty()) {
        return {path + " is in use by another process (" + user.program + ", process " +
                    std::to_string(user.process) + "): unmount or stop that first",
                problem.code};
    }
    return problem;
}

OrProblem<std::unique_ptr<FileDevice>> open_file_device(const std::string& path,
                                                        const FileDevice::Options& options,
                                                        const std::string& mount_point) {
    ReleaseWait wait(kReleasePoll);
    while (true) {
        auto device = FileDevice::open(path, options);
        if (device.ok() || device.problem().code != Error::ebusy) {
            return device;
        }
        const DeviceUser user = find_device_user(path, mount_point);
        if (!user.may_be_ending() || !wait.again(device.problem().text)) {
            return explain_busy(path, user, device.problem());
        }
    }
}

}  // namespace

OrProblem<DeviceAddress> parse_device_address(std::string_view text) {
    if (text.find('\0') != std::string_view::npos) {
        return Problem{"a device address cannot contain a zero byte"};
    }
    if (text.starts_with("mem:")) {
        return parse_memory(text.substr(4));
    }
    if (text.starts_with("tiffin:")) {
        return parse_remote(text);
    }
    DeviceAddress address;
    if (text.starts_with("file:")) {
        address.path = text.substr(5);
    } else if (text.find("://") != std::string_view::npos) {
        return Problem{"\"" + std::string(text) +
                       "\" is not a device address: write mem:SIZE, file:PATH, "
                       "tiffin://HOST/VOLUME or a path"};
    } else {
        address.path = text;
    }
    if (address.path.empty()) {
        return Problem{"the path of the device is missing: write mem:SIZE, file:PATH or a path"};
    }
    return address;
}

std::optional<Problem> refuse_memory(std::string_view address) {
    if (!address.starts_with("mem:")) {
        return std::nullopt;
    }
    return Problem{std::string(address) +
                       " is new memory of this program and holds nothing: name an image file or a "
                       "disk",
                   Error::einval};
}

OrProblem<std::unique_ptr<vfs::BlockDevice>> open_device(const DeviceAddress& address,
                                                         const OpenMode& mode) {
    if (address.kind == DeviceAddress::Kind::memory) {
        return as_block_device(MemoryDevice::create(address.size_bytes, mode.read_only));
    }
    if (address.kind == DeviceAddress::Kind::remote) {
        return as_block_device(
            open_remote_device(address.remote, {.read_only = mode.read_only, .force = mode.force}));
    }
    FileDevice::Options options;
    options.read_only = mode.read_only;
    options.may_write_later = mode.may_write_later;
    options.create_size_bytes = mode.create_size_bytes;
    return as_block_device(open_file_device(address.path, options, mode.mount_point));
}

OrProblem<std::unique_ptr<vfs::BlockDevice>> open_device(std::string_view address,
                                                         const OpenMode& mode) {
    OrProblem<DeviceAddress> parsed = parse_device_address(address);
    if (!parsed.ok()) {
        return parsed.problem();
    }
    return open_device(*parsed, mode);
}

std::string describe_device(vfs::BlockDevice& device) {
    const auto* remote = dynamic_cast<rdma_blk::RemoteBlockDevice*>(&device);
    return remote == nullptr ? std::string() : describe_remote_device(*remote);
}

void on_device_failure(vfs::BlockDevice& device, std::function<void()> tell) {
    if (auto* const remote = dynamic_cast<rdma_blk::RemoteBlockDevice*>(&device)) {
        remote->on_failure(std::move(tell));
    }
}

Result<void> change_link(vfs::BlockDevice& device, bool adds, const std::string& host,
                         uint16_t port) {
    auto* const remote = dynamic_cast<rdma_blk::RemoteBlockDevice*>(&device);
    if (remote == nullptr) {
        return Error::eopnotsupp;
    }
    return adds ? remote->add_link(host.c_str(), port) : remote->remove_link(host.c_str(), port);
}

}  // namespace tiffin::fuse
