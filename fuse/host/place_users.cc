// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/place_users.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "fuse/host/kernel_tables.h"
#include "rdma_blk/server/unique_descriptor.h"

namespace tiffin::fuse {
namespace {

namespace filesystem = std::filesystem;
using Descriptor = rdma_blk::UniqueDescriptor;

// udev locks a disk for a moment whenever it has changed; another program that asks as this one has it for a shorter one.
constexpr int kAttempts = 20;
constexpr int kBusyAttempts = 3;
constexpr auto kBetweenAttempts = std::chrono::milliseconds(25);

// Whether another program has locked the file or disk. `asks_kernel`: or has the disk for itself, as a mount of the kernel has.
bool is_used(const std::string& path, bool shared, bool asks_kernel) {
    int busy_attempts = kBusyAttempts;
    for (int attempt = 0; attempt < kAttempts && busy_attempts > 0; ++attempt) {
        const Descriptor opened(::open(path.c_str(), kOpenToLook | (asks_kernel ? O_EXCL : 0)));
        if (opened.valid() ? flock(opened.get(), (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0
                           : errno != EBUSY) {
            return false;
        }
        busy_attempts -= opened.valid() ? 0 : 1;
        std::this_thread::sleep_for(kBetweenAttempts);
    }
    return true;
}

// Whether a program of ours has locked the disk. Others lock disks for their own reasons: udev while it looks at a disk of which
// a partition has changed, and what partitions a disk and makes file systems on it, of which this program may be a part.
bool is_locked_by_ours(const struct stat& disk, bool shared) {
    const std::vector<FileLock> locks = file_locks(disk.st_dev, disk.st_ino);
    return std::ranges::any_of(locks, [shared](const FileLock& lock) {
        const std::string program = first_line("/proc/" + std::to_string(lock.process) + "/comm");
        return lock.process != getpid() && (!shared || lock.is_exclusive) &&
               (program.find("tiffin") != std::string::npos || program.starts_with("mount.fuse"));
    });
}

dev_t device_in(const filesystem::path& folder) {
    return device_number_in(first_line(folder / "dev"));
}

std::vector<filesystem::path> folders_in(const filesystem::path& folder) {
    std::vector<filesystem::path> folders;
    std::error_code ignored;
    for (const auto& entry : filesystem::directory_iterator(folder, ignored)) {
        folders.push_back(entry.path());
    }
    return folders;
}

// Where devices are that may show the place: loop devices, and the disk that it lies on; with the partitions of these.
class UserSearch {
  public:
    UserSearch(const FoundPlace& found, bool shared) : found_(found), shared_(shared) {}

    std::string find() const {
        for (const filesystem::path& disk : folders_in("/sys/block")) {
            const dev_t device = device_in(disk);
            const bool is_loop = access((disk / "loop").c_str(), F_OK) == 0;
            const bool lies_on = found_.place.inode == 0 && found_.place.device == device;
            if (device != 0 && (is_loop || lies_on)) {
                if (std::string user = find_on(disk, device); !user.empty()) {
                    return user;
                }
            }
        }
        return {};
    }

  private:
    std::string find_on(const filesystem::path& disk, dev_t device) const {
        std::vector<filesystem::path> partitions = folders_in(disk);
        std::erase_if(partitions, [](const filesystem::path& folder) {
            return access((folder / "partition").c_str(), F_OK) != 0;
        });
        // While the caller has a part of a disk, the kernel gives no other part and not the whole, not even to the caller.
        const bool is_own = std::ranges::count(found_.own_devices, device) != 0;
        for (const filesystem::path& partition : partitions) {
            if (std::string path = path_if_used(partition, is_own); !path.empty()) {
                return path;
            }
        }
        // Where a partition is in use that lies elsewhere, the kernel refuses the whole.
        return path_if_used(disk, is_own || !partitions.empty());
    }

    // `by_list`: the kernel cannot be asked.
    std::string path_if_used(const filesystem::path& folder, bool by_list) const {
        std::string path = "/dev/" + folder.filename().string();
        std::ranges::replace(path, '!', '/');  // as sysfs writes a slash
        struct stat status {};
        const bool is_there = stat(path.c_str(), &status) == 0 && S_ISBLK(status.st_mode) &&
                              status.st_rdev == device_in(folder);
        const bool is_itself =
            !found_.own_devices.empty() && found_.own_devices.back() == status.st_rdev;
        if (!is_there || is_itself) {
            return {};
        }
        const std::optional<DevicePlace> place = find_place(path);
        const bool uses =
            place && place->overlaps(found_.place) &&
            (by_list ? is_locked_by_ours(status, shared_) : is_used(path, shared_, true));
        return uses ? path : std::string();
    }

    const FoundPlace& found_;
    bool shared_;
};

bool is_locked(const DevicePlace& place, bool shared) {
    return std::ranges::any_of(
        file_locks(place.device, place.inode),
        [shared](const FileLock& lock) { return !shared || lock.is_exclusive; });
}

// Through a loop device: whether the file below is locked. Where the file has its name here, its lock tells, which the
// caller may hold itself where it has all of the file; elsewhere the list of all locks does.
bool is_file_locked(const FoundPlace& found, bool shared) {
    if (found.file_path.empty()) {
        return false;
    }
    struct stat status {};
    const Descriptor opened(::open(found.file_path.c_str(), kOpenToLook));
    if (opened.valid() && fstat(opened.get(), &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_dev == found.place.device && status.st_ino == found.place.inode) {
        return !found.place.is_whole() && is_used(found.file_path, shared, false);
    }
    return is_locked(found.place, shared);
}

}  // namespace

std::string find_user_of_place(const FoundPlace& found, bool shared) {
    return is_file_locked(found, shared) ? found.file_path : UserSearch(found, shared).find();
}

}  // namespace tiffin::fuse
