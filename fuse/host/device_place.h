// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Where the content of a device lies in the end. A file can be seen through loop devices, these through further ones, each
// from an offset on and for a length, and through partitions; by several names, and in several mount namespaces. Two programs
// must not write to one place, whatever they have opened.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tiffin::fuse {

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
    // Block devices whose use is no use of the place by others: the device itself, and the disk that it is a partition of,
    // since the kernel itself keeps the users of those apart.
    std::vector<dev_t> own_devices;
    // Below a loop device: the name of the file there; it may name another file here, or none.
    std::string file_path;
};
std::optional<FoundPlace> find_place(int descriptor);
std::optional<DevicePlace> find_place(const std::string& path);

// The path of a loop device, or of a file below one, that another program uses exclusively at a place that overlaps; empty:
// none is known. `shared`: other readers do no harm. To be asked after the caller has locked its own device, so that of two
// programs that come at the same time at least one finds the other.
std::string find_user_of_place(const FoundPlace& found, bool shared);

}  // namespace tiffin::fuse
