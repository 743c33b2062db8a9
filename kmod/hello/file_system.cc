// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The smallest file system, as one of the kernel: it shows that the framework knows nothing of tiffinfs.
#include "fs/hello/hello.h"
#include "kmod/adapter/mount.h"

namespace tiffin::kmod {
namespace {

Result<vfs::FileSystem*> mount(vfs::BlockDevice* /*device*/,
                               const tiffin_mount_options& /*options*/) {
    return hello::create();
}

}  // namespace

const FileSystemType kFileSystemType = {
    .needs_device = false,
    .inline_bytes = 0,
    .maximum_file_bytes = 0,
    .mount = mount,
    .destroy = hello::destroy,
};

}  // namespace tiffin::kmod
