// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/device_address.h"

#include <utility>

#include "fuse/host/file_device.h"
#include "fuse/host/memory_device.h"
#include "fuse/host/size_text.h"

namespace tiffin::fuse {
namespace {

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
                           ": write a size from 4K up, such as mem:1G",
                       Error::erange};
    }
    DeviceAddress address;
    address.kind = DeviceAddress::Kind::memory;
    address.size_bytes = *size;
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

}  // namespace

OrProblem<DeviceAddress> parse_device_address(std::string_view text) {
    if (text.find('\0') != std::string_view::npos) {
        return Problem{"a device address cannot contain a zero byte"};
    }
    if (text.starts_with("mem:")) {
        return parse_memory(text.substr(4));
    }
    if (text.starts_with("tiffin:")) {
        return Problem{"remote memory is not built in yet: use mem:SIZE, file:PATH or a disk",
                       Error::eopnotsupp};
    }
    DeviceAddress address;
    if (text.starts_with("file:")) {
        address.path = text.substr(5);
    } else if (text.find("://") != std::string_view::npos) {
        return Problem{"\"" + std::string(text) +
                       "\" is not a device address: write mem:SIZE, file:PATH or a path"};
    } else {
        address.path = text;
    }
    if (address.path.empty()) {
        return Problem{"the path of the device is missing: write mem:SIZE, file:PATH or a path"};
    }
    return address;
}

OrProblem<std::unique_ptr<vfs::BlockDevice>> open_device(const DeviceAddress& address,
                                                         const OpenMode& mode) {
    if (address.kind == DeviceAddress::Kind::memory) {
        return as_block_device(MemoryDevice::create(address.size_bytes, mode.read_only));
    }
    FileDevice::Options options;
    options.read_only = mode.read_only;
    options.may_write_later = mode.may_write_later;
    options.create_size_bytes = mode.create_size_bytes;
    return as_block_device(FileDevice::open(address.path, options));
}

OrProblem<std::unique_ptr<vfs::BlockDevice>> open_device(std::string_view address,
                                                         const OpenMode& mode) {
    OrProblem<DeviceAddress> parsed = parse_device_address(address);
    if (!parsed.ok()) {
        return parsed.problem();
    }
    return open_device(*parsed, mode);
}

}  // namespace tiffin::fuse
