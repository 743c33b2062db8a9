// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/mount_tiffin/file_systems.h"

#include <unistd.h>

#include "fs/hello/hello.h"
#include "fs/tiffinfs/tiffinfs.h"

namespace tiffin::fuse {
namespace {

Result<void> make_tiffinfs(vfs::BlockDevice& device) {
    tiffinfs::MakeOptions options;
    // What a user mounts belongs to that user.
    options.root_user_id = geteuid();
    options.root_group_id = getegid();
    return tiffinfs::make_file_system(device, options);
}

tiffinfs::MountOptions to_tiffinfs(const FileSystemOptions& options) {
    tiffinfs::MountOptions result;
    result.volume.read_only = options.read_only;
    result.volume.no_recovery = options.no_recovery;
    result.volume.errors = options.errors == ErrorsPolicy::continue_running
                               ? tiffinfs::ErrorsPolicy::continue_running
                               : tiffinfs::ErrorsPolicy::remount_read_only;
    result.volume.cache_bytes = options.cache_bytes.value_or(result.volume.cache_bytes);
    result.volume.commit_interval_ms =
        options.commit_interval_ms.value_or(result.volume.commit_interval_ms);
    result.synchronous = options.synchronous;
    switch (options.access_times) {
        case AccessTimeUpdates::relative:
            result.access_time = tiffinfs::AccessTimePolicy::relatime;
            break;
        case AccessTimeUpdates::always:
            result.access_time = tiffinfs::AccessTimePolicy::strictatime;
            break;
        case AccessTimeUpdates::never:
            result.access_time = tiffinfs::AccessTimePolicy::noatime;
            break;
    }
    return result;
}

Result<vfs::FileSystem*> mount_tiffinfs(vfs::BlockDevice* device,
                                        const FileSystemOptions& options) {
    return tiffinfs::mount(*device, to_tiffinfs(options));
}

// It has its files in itself.
Result<vfs::FileSystem*> mount_hello(vfs::BlockDevice* /*device*/,
                                     const FileSystemOptions& /*options*/) {
    return hello::create();
}

}  // namespace

Span<const FileSystemType> file_systems() {
    static constexpr FileSystemType kTypes[] = {
        {"tiffin", true, make_tiffinfs, mount_tiffinfs, tiffinfs::destroy},
        {"hello", false, nullptr, mount_hello, hello::destroy},
    };
    return kTypes;
}

}  // namespace tiffin::fuse
