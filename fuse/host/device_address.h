// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Device addresses: how people name a block device to every tool.
//
//     mem:SIZE                         memory of this process, empty at the start
//     file:PATH  or just PATH          an image file or a disk
//     tiffin://HOST[:PORT]/VOLUME      memory of other machines; see remote_address.h
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fs/vfs/block_device.h"
#include "fuse/host/problem.h"
#include "fuse/host/remote_address.h"

namespace tiffin::fuse {

struct DeviceAddress {
    enum class Kind : uint8_t { memory, file, remote };

    Kind kind = Kind::file;
    uint64_t size_bytes = 0;  // memory only: 4096 to 2^62
    std::string path;         // file only, as it was written: may be relative
    RemoteVolumeAddress remote;
};

struct OpenMode {
    bool read_only = false;
    // When the address names a file that does not exist, create it with this size; 0: it must exist.
    uint64_t create_size_bytes = 0;
    // With read_only: start_writing() may be called, if the device can be written at all.
    bool may_write_later = false;
    bool force = false;  // remote only: take it over, fencing the current writer
    // Where it is about to be mounted: what the mount table shows there has died.
    std::string mount_point = {};
};

// Understands an address; opens nothing.
OrProblem<DeviceAddress> parse_device_address(std::string_view text);

// For programs that look at what is there: memory is new and holds nothing.
std::optional<Problem> refuse_memory(std::string_view address);

// Opens the device for this process alone (read_only: for readers alone); see MemoryDevice, FileDevice
// and RemoteBlockDevice. One writer, or any number of readers. The problem's text names the device
// and says what to do.
//
// Unmounting returns before the process that served the mount has closed the device, which takes
// moments, or as long as a last checkpoint: this waits some seconds for such a process.
OrProblem<std::unique_ptr<vfs::BlockDevice>> open_device(const DeviceAddress& address,
                                                         const OpenMode& mode);
OrProblem<std::unique_ptr<vfs::BlockDevice>> open_device(std::string_view address,
                                                         const OpenMode& mode);

// Lines "key: value" about what a device does at present; nothing for those of this machine.
std::string describe_device(vfs::BlockDevice& device);

// RemoteBlockDevice::on_failure(); other devices do not fail for good.
void on_device_failure(vfs::BlockDevice& device, std::function<void()> tell);

// RemoteBlockDevice::add_link() or remove_link(); eopnotsupp of other devices.
Result<void> change_link(vfs::BlockDevice& device, bool adds, const std::string& host,
                         uint16_t port);

}  // namespace tiffin::fuse
