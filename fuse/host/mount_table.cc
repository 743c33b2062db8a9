// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/mount_table.h"

#include <libmount/libmount.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <filesystem>
#include <memory>

#include "fuse/host/memory_shortage.h"

namespace tiffin::fuse {

bool is_fuse(const MountEntry& entry) {
    return entry.type == "fuse" || entry.type.starts_with("fuse.");
}

// Of libmount only what reads that file: its functions that look at a mount may wait for the file system there, which
// may be this process' own.
std::vector<MountEntry> read_mounts() {
    std::unique_ptr<libmnt_table, void (*)(libmnt_table*)> table(nullptr, mnt_unref_table);
    std::unique_ptr<libmnt_iter, void (*)(libmnt_iter*)> place(nullptr, mnt_free_iter);
    while (true) {
        table.reset(mnt_new_table());
        place.reset(mnt_new_iter(MNT_ITER_FORWARD));
        // Without memory libmount by itself would leave lines out.
        mnt_table_set_parser_errcb(table.get(), [](libmnt_table*, const char*, int) {
            return errno == ENOMEM ? -ENOMEM : 1;
        });
        errno = 0;
        if (table != nullptr && place != nullptr &&
            mnt_table_parse_file(table.get(), "/proc/self/mountinfo") != -ENOMEM) {
            break;
        }
        wait_for_memory(kMemoryPatienceMs);
    }
    std::vector<MountEntry> mounts;
    const auto text = [](const char* field) { return std::string(field != nullptr ? field : ""); };
    for (libmnt_fs* line = nullptr; mnt_table_next_fs(table.get(), place.get(), &line) == 0;) {
        const dev_t device = mnt_fs_get_devno(line);
        mounts.push_back(
            {.id = static_cast<uint64_t>(mnt_fs_get_id(line)),
             .device_number = std::to_string(major(device)) + ":" + std::to_string(minor(device)),
             .root = text(mnt_fs_get_root(line)),
             .mount_point = text(mnt_fs_get_target(line)),
             .options = text(mnt_fs_get_vfs_options(line)),
             .type = text(mnt_fs_get_fstype(line)),
             .source = text(mnt_fs_get_source(line)),
             .super_options = text(mnt_fs_get_fs_options(line))});
    }
    return mounts;
}

std::string mount_point_above(const std::string& path) {
    std::error_code error;
    const std::string whole =
        std::filesystem::absolute(path, error).lexically_normal().string() + "/";
    std::string found;
    for (const MountEntry& entry : read_mounts()) {
        if (entry.mount_point.size() > found.size() && whole.starts_with(entry.mount_point + "/")) {
            found = entry.mount_point;
        }
    }
    return found.empty() ? path : found;
}

}  // namespace tiffin::fuse
