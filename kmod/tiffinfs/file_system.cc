// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffinfs, as a file system of the kernel.
#include "fs/tiffinfs/tiffinfs.h"

#include "kmod/adapter/mount.h"

namespace tiffin::kmod {
namespace {

Result<vfs::FileSystem*> mount(vfs::BlockDevice* device, const tiffin_mount_options& options) {
    tiffinfs::MountOptions wanted;
    wanted.volume.read_only = options.read_only;
    // The kernel keeps access times, with its own policies.
    wanted.access_time = tiffinfs::AccessTimePolicy::noatime;
    return tiffinfs::mount(*device, wanted);
}

}  // namespace

const FileSystemType kFileSystemType = {
    .needs_device = true,
    .inline_bytes = vfs::WriteGrant::kMaxContentBytes,
    .mount = mount,
    .destroy = tiffinfs::destroy,
};

}  // namespace tiffin::kmod
