// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where the content of a device lies in the end. A file can be seen through loop devices, these through further ones, each
// from an offset on and for a length, and through partitions; by several names, and in several mount namespaces. Two programs
// must not write to one place, whatever they have opened.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tiffin::fuse {

// Neither waits, nor changes anything.
inline constexpr int kOpenToLook = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;

struct DevicePlace {
    static constexpr uint64_t kUnboundedBytes = UINT64_MAX;

    // Of a file: its own device and inode number; of a disk: the disk's device number, and 0.
    dev_t device = 0;
    ino_t inode = 0;
    uint64_t begin_bytes = 0;
    uint64_t end_bytes = kUnboundedBytes;

    bool operator==(const DevicePlace&) const = default;
    bool is_whole() const { return begin_bytes == 0 && end_bytes == kUnboundedBytes; }
    bool overlaps(const DevicePlace& other) const {
        return device == other.device && inode == other.inode && begin_bytes < other.end_bytes &&
               other.begin_bytes < end_bytes;
    }
};

// An open regular file or block device followed down to its place. A loop device that may not be opened ends the search: it
// counts as a disk then.
struct FoundPlace {
    DevicePlace place;
    // Of a block device: the device itself, and before it the disk that it is a partition of. The kernel keeps those apart
    // that use these exclusively.
    std::vector<dev_t> own_devices;
    // Below a loop device: the name of the file there; it may name another file here, or none.
    std::string file_path;
};
std::optional<FoundPlace> find_place(int descriptor);
std::optional<DevicePlace> find_place(const std::string& path);

}  // namespace tiffin::fuse
