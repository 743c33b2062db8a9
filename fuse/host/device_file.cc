// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/device_file.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "fuse/host/device_place.h"
#include "fuse/host/device_users.h"
#include "fuse/host/place_users.h"
#include "fuse/host/size_text.h"

namespace tiffin::fuse {
namespace {

constexpr uint32_t kFileWriteUnitBytes = 512;
constexpr uint32_t kMaxWriteUnitBytes = 4096;

Problem in_use(const std::string& path) {
    return {path + " is in use by another process (is it mounted?): unmount or stop that first",
            Error::ebusy};
}

Problem cannot_open(const std::string& path, bool read_only, int error_number) {
    const std::string what = "cannot open " + path + ": ";
    const auto code = static_cast<Error>(error_number);
    switch (error_number) {
        case ENOENT:
            return {what + "there is no such file or device" +
                        (path.starts_with("UUID=") || path.starts_with("LABEL=")
                             ? "; only mount.tiffin knows such names, others have "
                               "/dev/disk/by-uuid and by-label"
                             : ""),
                    code};
        case EACCES:
        case EPERM:
            return {what + "permission denied; " + (read_only ? "read" : "read and write") +
                        " access is needed",
                    code};
        case EROFS:
            return {what + "it is read-only", code};
        case EBUSY:
            return in_use(path);
        default:
            return {what + system_error_text(error_number), code};
    }
}

Problem cannot_create(const std::string& path, int error_number) {
    if (error_number == ENOENT) {
        return {"cannot make " + path + ": its directory does not exist", Error::enoent};
    }
    return {"cannot make " + path + ": " + system_error_text(error_number),
            static_cast<Error>(error_number)};
}

Problem wrong_kind(const std::string& path, mode_t mode) {
    if (S_ISDIR(mode)) {
        return {path + " is a directory, not a device: name an image file or a disk",
                Error::eisdir};
    }
    return {path + " is neither a regular file nor a block device", Error::einval};
}

int open_retrying(const char* path, int flags, mode_t mode = 0) {
    int descriptor = -1;
    do {
        descriptor = ::open(path, flags, mode);
    } while (descriptor < 0 && errno == EINTR);
    return descriptor;
}

bool is_block_device(int descriptor) {
    struct stat status {};
    return fstat(descriptor, &status) == 0 && S_ISBLK(status.st_mode);
}

// Opening a disk for writing does not always fail when it cannot be written; only writing does.
bool is_write_protected(int descriptor) {
    int write_protected = 0;
    return is_block_device(descriptor) && ioctl(descriptor, BLKROGET, &write_protected) == 0 &&
           write_protected != 0;
}

}  // namespace

DeviceFile::~DeviceFile() {
    if (exclusive_descriptor_ >= 0) {
        (void)::close(exclusive_descriptor_);
    }
    if (backing_descriptor_ >= 0) {
        (void)::close(backing_descriptor_);
    }
    if (descriptor_ >= 0) {
        // Everything that mattered went through fdatasync(); close() has nothing to add.
        (void)::close(descriptor_);
    }
}

DeviceFile::DeviceFile(DeviceFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      exclusive_descriptor_(std::exchange(other.exclusive_descriptor_, -1)),
      alone_(other.alone_),
      created_(other.created_),
      backing_descriptor_(std::exchange(other.backing_descriptor_, -1)),
      is_block_device_(other.is_block_device_),
      geometry_(other.geometry_) {}

OrProblem<DeviceFile> DeviceFile::open(const std::string& path, Access access,
                                       uint64_t create_size_bytes) {
    const bool shared = access != Access::read_write;
    bool read_only = access == Access::read_only;
    if (path.empty()) {
        return Problem{"the path of the device is empty: write file:PATH"};
    }
    struct stat status {};
    const bool exists = stat(path.c_str(), &status) == 0;
    if (!exists && (errno != ENOENT || shared || create_size_bytes == 0)) {
        return cannot_open(path, shared, errno);
    }
    if (exists && !S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode)) {
        return wrong_kind(path, status.st_mode);
    }
    // Without O_NONBLOCK, a pipe that took the file's place after stat() could make us wait for ever.
    int flags = (read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    if (!exists) {
        flags |= O_CREAT | O_EXCL;
    } else if (S_ISBLK(status.st_mode) && !shared) {
        flags |= O_EXCL;
    }
    // An image holds what its files hold, whatever their permissions: only its owner may read it.
    DeviceFile file(open_retrying(path.c_str(), flags, S_IRUSR | S_IWUSR));
    if (file.descriptor_ < 0 && access == Access::read_first) {
        read_only = true;
        file.descriptor_ = open_retrying(path.c_str(), (flags & ~O_ACCMODE) | O_RDONLY);
    }
    if (file.descriptor_ < 0) {
        return exists ? cannot_open(path, read_only, errno) : cannot_create(path, errno);
    }
    if (!read_only && is_write_protected(file.descriptor_)) {
        if (!shared) {
            return cannot_open(path, read_only, EROFS);
        }
        read_only = true;
    }
    // The kernel takes no lock of ours for a file system that it mounts, and O_EXCL would keep other readers away.
    if (shared && exists && S_ISBLK(status.st_mode) && is_written_by_kernel(status)) {
        return in_use(path);
    }
    file.alone_ = !shared;
    if (OrProblem<bool> locked = file.lock(path, shared); !locked.ok()) {
        return locked.problem();
    }
    OrProblem<int> excluded = exclude_others(file.descriptor_, path, shared);
    if (!excluded.ok()) {
        return excluded.problem();
    }
    file.backing_descriptor_ = excluded.value();
    if (!exists) {
        if (OrProblem<bool> sized = file.set_size(path, create_size_bytes); !sized.ok()) {
            return sized.problem();
        }
        file.created_ = true;
    }
    if (OrProblem<bool> found = file.find_geometry(path, read_only); !found.ok()) {
        return found.problem();
    }
    return file;
}

OrProblem<bool> DeviceFile::set_size(const std::string& path, uint64_t size_bytes) {
    int error = EFBIG;
    if (size_bytes <= INT64_MAX) {
        error = ftruncate(descriptor_, static_cast<off_t>(size_bytes)) == 0 ? 0 : errno;
    }
    if (error != 0) {
        // Created by us a moment ago, locked by us, and of no use.
        (void)unlink(path.c_str());
        return Problem{"cannot make " + path + " " + format_size(size_bytes) +
                           " long: " + system_error_text(error),
                       static_cast<Error>(error)};
    }
    return true;
}

int DeviceFile::take_for_writing(const std::string& path) {
    if (alone_) {
        return 0;
    }
    if (is_block_device_ && exclusive_descriptor_ < 0) {
        exclusive_descriptor_ = open_retrying(path.c_str(), O_RDWR | O_EXCL | O_CLOEXEC);
        if (exclusive_descriptor_ < 0) {
            return errno;
        }
        // What was read before may be of another time: a file system of the kernel writes past these pages.
        (void)ioctl(exclusive_descriptor_, BLKFLSBUF);
    }
    int error = 0;
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 ||
        (backing_descriptor_ >= 0 && flock(backing_descriptor_, LOCK_EX | LOCK_NB) != 0)) {
        error = errno == EWOULDBLOCK ? EBUSY : errno;
    } else if (const auto found = find_place(descriptor_);
               found && !find_user_of_place(*found, false).empty()) {
        error = EBUSY;
    }
    if (error != 0) {
        if (exclusive_descriptor_ >= 0) {
            ::close(exclusive_descriptor_);
            exclusive_descriptor_ = -1;
        }
        // A conversion that fails may have given up the old lock.
        (void)flock(descriptor_, LOCK_SH | LOCK_NB);
        if (backing_descriptor_ >= 0) {
            (void)flock(backing_descriptor_, LOCK_SH | LOCK_NB);
        }
        return error;
    }
    alone_ = true;
    return 0;
}

int lock_device(int descriptor, bool shared) {
    // udev takes a shared lock for a moment whenever it looks at a disk that has changed.
    int attempts = is_block_device(descriptor) ? 20 : 1;
    while (flock(descriptor, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        if (errno == EINTR) {
            continue;
        }
        if (errno != EWOULDBLOCK || --attempts == 0) {
            return errno;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    return 0;
}

OrProblem<bool> DeviceFile::lock(const std::string& path, bool shared) {
    const int error = lock_device(descriptor_, shared);
    if (error == EWOULDBLOCK) {
        return in_use(path);
    }
    if (error != 0) {
        return Problem{"cannot lock " + path + ": " + system_error_text(error),
                       static_cast<Error>(error)};
    }
    return true;
}

// The kernel lets any program open the file behind a loop device: a lock on it keeps away programs that would open it
// with this class. Users of parts of it, and those that see it elsewhere, are searched for.
OrProblem<int> exclude_others(int descriptor, const std::string& path, bool shared) {
    const std::optional<FoundPlace> found = find_place(descriptor);
    if (!found) {
        return -1;
    }
    int file = -1;
    if (!found->file_path.empty() && found->place.is_whole()) {
        file = open_retrying(found->file_path.c_str(), kOpenToLook);
        struct stat status {};
        if (file >= 0 && (fstat(file, &status) != 0 || status.st_dev != found->place.device ||
                          status.st_ino != found->place.inode)) {
            ::close(std::exchange(file, -1));
        }
    }
    std::string user;
    if (file >= 0 && flock(file, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK) {
        user = found->file_path;
    } else {
        user = find_user_of_place(*found, shared);
    }
    if (!user.empty()) {
        if (file >= 0) {
            ::close(file);
        }
        return Problem{
            path + " has its content where " + user +
                " has it, which is in use by another process: unmount or stop that first",
            Error::ebusy};
    }
    return file;
}

OrProblem<bool> DeviceFile::find_geometry(const std::string& path, bool read_only) {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0) {
        return cannot_open(path, read_only, errno);
    }
    geometry_.read_only = read_only;
    geometry_.volatile_cache = true;
    is_block_device_ = S_ISBLK(status.st_mode);
    if (is_block_device_) {
        if (OrProblem<bool> found = find_block_geometry(path); !found.ok()) {
            return found;
        }
    } else if (S_ISREG(status.st_mode)) {
        geometry_.write_unit_bytes = kFileWriteUnitBytes;
    } else {
        return wrong_kind(path, status.st_mode);
    }
    geometry_.size_bytes = size_bytes().value_or(0);
    if (geometry_.size_bytes == 0) {
        const bool is_empty = is_block_device_ || status.st_size == 0;
        return Problem{path + (!is_empty   ? " is too small: it has less than a sector"
                               : read_only ? " is empty: there is nothing to read"
                                           : " is empty: give it a size first, for example with "
                                             "truncate -s 1G")};
    }
    geometry_.supports_discard = alone_ && can_discard();
    return true;
}

OrProblem<bool> DeviceFile::find_block_geometry(const std::string& path) {
    int logical_bytes = 0;
    unsigned physical_bytes = 0;
    int alignment_bytes = 0;
    if (!size_bytes().has_value() || ioctl(descriptor_, BLKSSZGET, &logical_bytes) != 0 ||
        ioctl(descriptor_, BLKPBSZGET, &physical_bytes) != 0 ||
        ioctl(descriptor_, BLKALIGNOFF, &alignment_bytes) != 0) {
        return Problem{"cannot ask " + path + " for its size: " + system_error_text(errno),
                       static_cast<Error>(errno)};
    }
    const auto logical = static_cast<uint32_t>(logical_bytes);
    const uint32_t physical = std::min(static_cast<uint32_t>(physical_bytes), kMaxWriteUnitBytes);
    const bool use_physical =
        alignment_bytes == 0 && std::has_single_bit(physical) && physical >= logical;
    geometry_.write_unit_bytes = use_physical ? physical : logical;
    if (logical_bytes <= 0 || !std::has_single_bit(logical) || logical > kMaxWriteUnitBytes) {
        return Problem{path + " has sectors of " + std::to_string(logical_bytes) +
                       " bytes: at most 4096 are supported"};
    }
    return true;
}

std::optional<uint64_t> DeviceFile::size_bytes() const {
    uint64_t size_bytes = 0;
    if (is_block_device_) {
        if (ioctl(descriptor_, BLKGETSIZE64, &size_bytes) != 0) {
            return std::nullopt;
        }
    } else {
        struct stat status {};
        if (fstat(descriptor_, &status) != 0) {
            return std::nullopt;
        }
        size_bytes = static_cast<uint64_t>(status.st_size);
    }
    return size_bytes - size_bytes % geometry_.write_unit_bytes;
}

// Asks for a discard that changes no content, to see whether the answer is EOPNOTSUPP. A file gets a new time by it.
bool DeviceFile::can_discard() const {
    if (is_block_device_) {
        // A range that is not in whole sectors is refused, but only by devices that can discard.
        uint64_t range[2] = {1, 1};
        return ioctl(descriptor_, BLKDISCARD, &range) == 0 || errno == EINVAL;
    }
    // Beyond the end of the file is nothing that could be lost.
    const std::optional<uint64_t> end_bytes = size_bytes();
    return end_bytes.has_value() &&
           fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(*end_bytes + kMaxWriteUnitBytes), kMaxWriteUnitBytes) == 0;
}

int DeviceFile::discard(uint64_t offset_bytes, uint64_t length_bytes) const {
    int result = 0;
    do {
        if (is_block_device_) {
            uint64_t range[2] = {offset_bytes, length_bytes};
            result = ioctl(descriptor_, BLKDISCARD, &range);
        } else {
            result = fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               static_cast<off_t>(offset_bytes), static_cast<off_t>(length_bytes));
        }
    } while (result != 0 && errno == EINTR);
    return result == 0 ? 0 : errno;
}

}  // namespace tiffin::fuse
