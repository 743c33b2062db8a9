// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffinfs, as a file system of the kernel.
#include "fs/tiffinfs/tiffinfs.h"

#include "kmod/adapter/mount.h"

namespace tiffin::kmod {
namespace {

constexpr uint64_t kLeastCacheBytes = 4U << 20;
constexpr uint64_t kMemoryForEachObject = 32U << 10;
constexpr uint64_t kLeastObjects = 1024;

// A part of the machine's memory, at most what a host in user space takes.
constexpr uint64_t part_of(uint64_t memory_bytes, uint64_t divisor, uint64_t least, uint64_t most) {
    const uint64_t part = memory_bytes / divisor;
    return part < least ? least : part > most ? most : part;
}

Result<vfs::FileSystem*> mount(vfs::BlockDevice* device, const tiffin_mount_options& options) {
    tiffinfs::MountOptions wanted;
    wanted.volume.read_only = options.read_only;
    wanted.volume.no_recovery = options.no_recovery;
    wanted.volume.cache_bytes =
        options.cache_bytes != 0
            ? options.cache_bytes
            : part_of(options.memory_bytes, 16, kLeastCacheBytes, wanted.volume.cache_bytes);
    if (options.commit_seconds != TIFFIN_COMMIT_DEFAULT) {
        wanted.volume.commit_interval_ms = uint64_t{options.commit_seconds} * 1000;
    }
    if (options.errors == TIFFIN_ERRORS_CONTINUE) {
        wanted.volume.errors = tiffinfs::ErrorsPolicy::continue_running;
    }
    wanted.maximum_objects = static_cast<uint32_t>(
        part_of(options.memory_bytes, kMemoryForEachObject, kLeastObjects, wanted.maximum_objects));
    // The kernel keeps access times, with its own policies.
    wanted.access_time = tiffinfs::AccessTimePolicy::noatime;
    return tiffinfs::mount(*device, wanted);
}

}  // namespace

const FileSystemType kFileSystemType = {
    .needs_device = true,
    .inline_bytes = vfs::WriteGrant::kMaxContentBytes,
    .maximum_file_bytes = tiffinfs::kMaximumFileBytes,
    .mount = mount,
    .destroy = tiffinfs::destroy,
};

}  // namespace tiffin::kmod
