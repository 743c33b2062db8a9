// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The entry points of tiffinfs for hosts and tools: making a file system, and mounting one.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/volume/volume.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/file_system.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

struct MakeOptions {
    // At most kLabelBytes - 1 bytes; longer ones are refused (einval).
    vfs::Name label;
    // Of the volume, at most that of the device; 0: the same. A smaller one can be grown.
    uint64_t volume_bytes = 0;
    // 0: chosen by the size of the device. At least 1 MiB, at most half of the device.
    uint64_t journal_bytes = 0;
    // Identity; all zero: random.
    uint8_t uuid[16] = {};
    uint32_t root_user_id = 0;
    uint32_t root_group_id = 0;
    uint32_t root_mode = 0755;
    // Discards the whole device first. Only an attempt: a device that cannot, or fails at it, is no error.
    bool discard = false;
};

// Writes an empty file system to `device`; what was there is lost. Errors: einval (too small, larger than the device, bad
// options; nothing has changed then), erofs, eio, enomem.
Result<void> make_file_system(vfs::BlockDevice& device, const MakeOptions& options);

// True when the device holds a tiffinfs superblock, valid or damaged (mkfs asks before it overwrites).
Result<bool> holds_file_system(vfs::BlockDevice& device);

// Reads the newest valid superblock. Errors: einval (none is), eio.
Result<void> read_superblock(vfs::BlockDevice& device, Superblock& superblock);

// When reading a file moves its access time.
enum class AccessTimePolicy : uint8_t { relatime, strictatime, noatime };

struct MountOptions {
    VolumeOptions volume;
    AccessTimePolicy access_time = AccessTimePolicy::relatime;
    bool synchronous = false;          // every change is durable when it returns (-o sync)
    uint32_t maximum_objects = 65536;  // cached objects that are not in use
};

// Mounts; errors as Volume::open. The caller owns the result: unmount(), then destroy().
Result<vfs::FileSystem*> mount(vfs::BlockDevice& device, const MountOptions& options);
void destroy(vfs::FileSystem* file_system);

}  // namespace tiffin::tiffinfs
