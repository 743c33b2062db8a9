// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Mounting: a volume, and the file system on it.
#include "fs/base/allocate.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/tiffinfs.h"

namespace tiffin::tiffinfs {

Result<vfs::FileSystem*> mount(vfs::BlockDevice& device, const MountOptions& options) {
    Volume* volume = TRY(Volume::open(device, options.volume));
    auto* file_system = make_object<TiffinFileSystem>(volume, options);
    if (file_system == nullptr) {
        Volume::destroy(volume);
        return Error::enomem;
    }
    Result<void> started = file_system->start();
    if (!started.ok()) {
        destroy_object(file_system);
        return started.error();
    }
    return static_cast<vfs::FileSystem*>(file_system);
}

void destroy(vfs::FileSystem* file_system) {
    destroy_object(static_cast<TiffinFileSystem*>(file_system));
}

}  // namespace tiffin::tiffinfs
