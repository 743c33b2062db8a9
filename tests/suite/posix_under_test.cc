// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/suite/posix_under_test.h"

#include <dirent.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstring>

namespace tiffin::suite {

namespace {

int64_t answer(int64_t result) { return result < 0 ? -errno : result; }

timespec time_of(const statx_timestamp& time) {
    return timespec{time.tv_sec, static_cast<long>(time.tv_nsec)};
}

int64_t status_at(int directory, const char* path, int flags, FileStatus& status) {
    struct statx raw {};
    if (::statx(directory, path, flags | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS | STATX_BTIME,
                &raw) < 0) {
        return -errno;
    }
    status.node = raw.stx_ino;
    status.mode = raw.stx_mode;
    status.link_count = raw.stx_nlink;
    status.user_id = raw.stx_uid;
    status.group_id = raw.stx_gid;
    status.device_major = raw.stx_rdev_major;
    status.device_minor = raw.stx_rdev_minor;
    status.size_bytes = raw.stx_size;
    status.allocated_bytes = raw.stx_blocks * 512;
    status.access_time = time_of(raw.stx_atime);
    status.modification_time = time_of(raw.stx_mtime);
    status.change_time = time_of(raw.stx_ctime);
    status.has_birth_time = (raw.stx_mask & STATX_BTIME) != 0;
    status.birth_time = time_of(raw.stx_btime);
    return 0;
}

// Of the thread. What root may do that is no matter of files by its name, such as seeing trusted attributes.
void set_administrator(bool is_administrator) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    if (::syscall(SYS_capget, &header, data) != 0) {
        return;
    }
    constexpr uint32_t kBit = 1U << CAP_SYS_ADMIN;
    data[0].effective = is_administrator ? data[0].effective | (data[0].permitted & kBit)
                                         : data[0].effective & ~kBit;
    ::syscall(SYS_capset, &header, data);
}

}  // namespace

PosixUnderTest::PosixUnderTest(std::string root, FeatureSet features)
    : root_(std::move(root)), features_(features) {}

std::string PosixUnderTest::absolute(const std::string& path) const {
    return path.empty() ? root_ : root_ + "/" + path;
}

// The ids that the kernel looks at for files belong to the thread, and giving up user 0 for them
// also gives up the capabilities that concern files.
void PosixUnderTest::become(uint32_t user_id, uint32_t group_id) {
    if (user_id != 0) {
        ::setfsgid(group_id);
        ::setfsuid(user_id);
        set_administrator(false);
    } else {
        set_administrator(true);
        ::setfsuid(0);
        ::setfsgid(group_id);
    }
}

uint32_t PosixUnderTest::set_umask(uint32_t umask) { return ::umask(umask); }

int64_t PosixUnderTest::open_at(int directory, const std::string& path, int flags, uint32_t mode) {
    return answer(::openat(directory, directory == AT_FDCWD ? absolute(path).c_str() : path.c_str(),
                           flags | O_CLOEXEC, mode));
}

int64_t PosixUnderTest::close(int file) { return answer(::close(file)); }

int64_t PosixUnderTest::read(int file, void* buffer, size_t size) {
    return answer(::read(file, buffer, size));
}

int64_t PosixUnderTest::write(int file, const void* buffer, size_t size) {
    return answer(::write(file, buffer, size));
}

int64_t PosixUnderTest::pread(int file, void* buffer, size_t size, int64_t offset) {
    return answer(::pread(file, buffer, size, offset));
}

int64_t PosixUnderTest::pwrite(int file, const void* buffer, size_t size, int64_t offset) {
    return answer(::pwrite(file, buffer, size, offset));
}

int64_t PosixUnderTest::lseek(int file, int64_t offset, int whence) {
    return answer(::lseek(file, offset, whence));
}

int64_t PosixUnderTest::ftruncate(int file, int64_t size) {
    return answer(::ftruncate(file, size));
}

int64_t PosixUnderTest::truncate(const std::string& path, int64_t size) {
    return answer(::truncate(absolute(path).c_str(), size));
}

int64_t PosixUnderTest::fallocate(int file, int mode, int64_t offset, int64_t length) {
    return answer(::fallocate(file, mode, offset, length));
}

int64_t PosixUnderTest::copy_file_range(int source, int64_t source_offset, int destination,
                                        int64_t destination_offset, uint64_t length) {
    loff_t from = source_offset;
    loff_t to = destination_offset;
    return answer(::copy_file_range(source, &from, destination, &to, length, 0));
}

int64_t PosixUnderTest::fsync(int file) { return answer(::fsync(file)); }

int64_t PosixUnderTest::fdatasync(int file) { return answer(::fdatasync(file)); }

int64_t PosixUnderTest::syncfs(int file) { return answer(::syncfs(file)); }

int64_t PosixUnderTest::stat(const std::string& path, FileStatus& status) {
    return status_at(AT_FDCWD, absolute(path).c_str(), 0, status);
}

int64_t PosixUnderTest::lstat(const std::string& path, FileStatus& status) {
    return status_at(AT_FDCWD, absolute(path).c_str(), AT_SYMLINK_NOFOLLOW, status);
}

int64_t PosixUnderTest::fstat(int file, FileStatus& status) {
    return status_at(file, "", AT_EMPTY_PATH, status);
}

int64_t PosixUnderTest::chmod(const std::string& path, uint32_t mode) {
    return answer(::chmod(absolute(path).c_str(), mode));
}

int64_t PosixUnderTest::fchmod(int file, uint32_t mode) { return answer(::fchmod(file, mode)); }

int64_t PosixUnderTest::chown(const std::string& path, uint32_t user_id, uint32_t group_id) {
    return answer(::chown(absolute(path).c_str(), user_id, group_id));
}

int64_t PosixUnderTest::lchown(const std::string& path, uint32_t user_id, uint32_t group_id) {
    return answer(::lchown(absolute(path).c_str(), user_id, group_id));
}

int64_t PosixUnderTest::utimens(const std::string& path, const timespec times[2], int flags) {
    return answer(::utimensat(AT_FDCWD, absolute(path).c_str(), times, flags));
}

int64_t PosixUnderTest::futimens(int file, const timespec times[2]) {
    return answer(::futimens(file, times));
}

int64_t PosixUnderTest::get_flags(int file, uint32_t& flags) {
    int raw = 0;
    int64_t result = answer(::ioctl(file, FS_IOC_GETFLAGS, &raw));
    flags = static_cast<uint32_t>(raw);
    return result;
}

int64_t PosixUnderTest::set_flags(int file, uint32_t flags) {
    int raw = static_cast<int>(flags);
    return answer(::ioctl(file, FS_IOC_SETFLAGS, &raw));
}

int64_t PosixUnderTest::get_generation(int file, uint64_t& generation) {
    // The command's number says long, but what is written is an int.
    int raw = 0;
    int64_t result = answer(::ioctl(file, FS_IOC_GETVERSION, &raw));
    generation = static_cast<uint32_t>(raw);
    return result;
}

int64_t PosixUnderTest::link(const std::string& path, const std::string& new_path) {
    return answer(::link(absolute(path).c_str(), absolute(new_path).c_str()));
}

int64_t PosixUnderTest::link_file(int file, const std::string& new_path) {
    return answer(::linkat(file, "", AT_FDCWD, absolute(new_path).c_str(), AT_EMPTY_PATH));
}

int64_t PosixUnderTest::unlink(const std::string& path) {
    return answer(::unlink(absolute(path).c_str()));
}

int64_t PosixUnderTest::mkdir(const std::string& path, uint32_t mode) {
    return answer(::mkdir(absolute(path).c_str(), mode));
}

int64_t PosixUnderTest::rmdir(const std::string& path) {
    return answer(::rmdir(absolute(path).c_str()));
}

int64_t PosixUnderTest::rename(const std::string& path, const std::string& new_path,
                               unsigned flags) {
    return answer(
        ::renameat2(AT_FDCWD, absolute(path).c_str(), AT_FDCWD, absolute(new_path).c_str(), flags));
}

int64_t PosixUnderTest::symlink(const std::string& target, const std::string& path) {
    return answer(::symlink(target.c_str(), absolute(path).c_str()));
}

int64_t PosixUnderTest::readlink(const std::string& path, char* buffer, size_t size) {
    return answer(::readlink(absolute(path).c_str(), buffer, size));
}

int64_t PosixUnderTest::mknod(const std::string& path, uint32_t mode, uint32_t device_major,
                              uint32_t device_minor) {
    return answer(::mknod(absolute(path).c_str(), mode, ::makedev(device_major, device_minor)));
}

int64_t PosixUnderTest::read_directory(int file, size_t buffer_bytes,
                                       std::vector<DirectoryRecord>& records) {
    std::string buffer(buffer_bytes, '\0');
    int64_t size = answer(::syscall(SYS_getdents64, file, buffer.data(), buffer.size()));
    if (size <= 0) {
        return size;
    }
    int64_t count = 0;
    for (int64_t at = 0; at < size; ++count) {
        dirent64 entry{};
        const char* raw = buffer.data() + at;
        constexpr size_t header_bytes = offsetof(dirent64, d_name);
        std::memcpy(&entry, raw, header_bytes);
        records.push_back(
            {raw + header_bytes, entry.d_ino, entry.d_type, static_cast<int64_t>(entry.d_off)});
        at += entry.d_reclen;
    }
    return count;
}

int64_t PosixUnderTest::get_xattr(const std::string& path, const std::string& name, void* buffer,
                                  size_t size) {
    return answer(::lgetxattr(absolute(path).c_str(), name.c_str(), buffer, size));
}

int64_t PosixUnderTest::set_xattr(const std::string& path, const std::string& name,
                                  const void* value, size_t size, int flags) {
    return answer(::lsetxattr(absolute(path).c_str(), name.c_str(), value, size, flags));
}

int64_t PosixUnderTest::list_xattr(const std::string& path, char* buffer, size_t size) {
    return answer(::llistxattr(absolute(path).c_str(), buffer, size));
}

int64_t PosixUnderTest::remove_xattr(const std::string& path, const std::string& name) {
    return answer(::lremovexattr(absolute(path).c_str(), name.c_str()));
}

int64_t PosixUnderTest::statfs(SpaceStatus& status) {
    struct statvfs raw {};
    if (::statvfs(root_.c_str(), &raw) < 0) {
        return -errno;
    }
    status.block_bytes = raw.f_frsize;
    status.total_blocks = raw.f_blocks;
    status.free_blocks = raw.f_bfree;
    status.available_blocks = raw.f_bavail;
    status.total_nodes = raw.f_files;
    status.free_nodes = raw.f_ffree;
    status.name_max_bytes = raw.f_namemax;
    return 0;
}

std::string PosixUnderTest::mount_point() const {
    std::string path = root_;
    for (;;) {
        size_t slash = path.rfind('/');
        if (slash == std::string::npos || slash == 0) {
            return path;
        }
        struct statx own {};
        ::statx(AT_FDCWD, path.c_str(), 0, 0, &own);
        if ((own.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0) {
            return path;
        }
        path.resize(slash);
    }
}

int64_t PosixUnderTest::remount(bool read_only) {
    // Files that were closed or unlinked a moment ago may still be on their way out of the kernel.
    constexpr int attempts = 200;
    int64_t result = -EBUSY;
    for (int i = 0; i < attempts && result == -EBUSY; ++i) {
        if (i > 0) {
            ::usleep(50'000);
        }
        result = answer(::mount(nullptr, mount_point().c_str(), nullptr,
                                MS_REMOUNT | (read_only ? MS_RDONLY : 0), nullptr));
    }
    return result;
}

int64_t PosixUnderTest::shutdown(uint32_t mode) {
    int directory = ::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        return -errno;
    }
    constexpr unsigned long shutdown_command = _IOR('X', 125, uint32_t);  // FS_IOC_SHUTDOWN
    int64_t result = answer(::ioctl(directory, shutdown_command, &mode));
    ::close(directory);
    return result;
}

int64_t PosixUnderTest::map(int file, int64_t offset, size_t length, int protection,
                            unsigned char*& memory) {
    void* address = ::mmap(nullptr, length, protection, MAP_SHARED, file, offset);
    if (address == MAP_FAILED) {
        return -errno;
    }
    memory = static_cast<unsigned char*>(address);
    return 0;
}

int64_t PosixUnderTest::unmap(unsigned char* memory, size_t length) {
    return answer(::munmap(memory, length));
}

int64_t PosixUnderTest::sync_map(unsigned char* memory, size_t length) {
    return answer(::msync(memory, length, MS_SYNC));
}

}  // namespace tiffin::suite
