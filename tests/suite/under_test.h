// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the suite is written against: the calls of POSIX and Linux on one file system.
//
// Two implementations: PosixUnderTest makes real system calls below a directory of a mounted file
// system, whatever host serves it; CoreUnderTest (core_under_test.h) is a small kernel's VFS on top of
// a vfs::FileSystem in this process.
//
// Conventions, as of the system calls themselves: a call returns a number that is not negative, or
// the negative of an errno value. Paths are relative to the root of the file system under test (a
// leading '/' is allowed and means the same); they may hold any byte but NUL. All calls may be made
// by several threads at once.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "tests/suite/features.h"

namespace tiffin::suite {

// stat(2) and statx(2) in one. Times are exact to the nanosecond.
struct FileStatus {
    uint64_t node = 0;
    uint32_t mode = 0;
    uint32_t link_count = 0;
    uint32_t user_id = 0;
    uint32_t group_id = 0;
    uint32_t device_major = 0;
    uint32_t device_minor = 0;
    uint64_t size_bytes = 0;
    uint64_t allocated_bytes = 0;
    timespec access_time{};
    timespec modification_time{};
    timespec change_time{};
    bool has_birth_time = false;
    timespec birth_time{};
};

struct SpaceStatus {
    uint64_t block_bytes = 0;
    uint64_t total_blocks = 0;
    uint64_t free_blocks = 0;
    uint64_t available_blocks = 0;
    uint64_t total_nodes = 0;
    uint64_t free_nodes = 0;
    uint64_t name_max_bytes = 0;
};

struct DirectoryRecord {
    std::string name;
    uint64_t node = 0;
    uint8_t type = 0;    // DT_REG and so on
    int64_t cookie = 0;  // what lseek(SEEK_SET) on the directory takes to go on after this one
};

class FileSystemUnderTest {
  public:
    virtual ~FileSystemUnderTest() = default;

    virtual FeatureSet features() const = 0;
    bool has(Feature feature) const { return features().contains(feature); }

    // ---- Who calls: for the calling thread only, except the umask, which is the process's ------
    // Makes the thread act as this user without capabilities; user 0 is root again.
    virtual void become(uint32_t user_id, uint32_t group_id) = 0;
    virtual uint32_t set_umask(uint32_t umask) = 0;

    // ---- Open files -------------------------------------------------------------------------
    // `directory` is a descriptor, or AT_FDCWD for the root of the file system.
    virtual int64_t open_at(int directory, const std::string& path, int flags, uint32_t mode) = 0;
    int64_t open(const std::string& path, int flags, uint32_t mode = 0) {
        return open_at(AT_FDCWD, path, flags, mode);
    }
    virtual int64_t close(int file) = 0;
    virtual int64_t read(int file, void* buffer, size_t size) = 0;
    virtual int64_t write(int file, const void* buffer, size_t size) = 0;
    virtual int64_t pread(int file, void* buffer, size_t size, int64_t offset) = 0;
    virtual int64_t pwrite(int file, const void* buffer, size_t size, int64_t offset) = 0;
    // Also of directories, with the cookies of read_directory().
    virtual int64_t lseek(int file, int64_t offset, int whence) = 0;
    virtual int64_t ftruncate(int file, int64_t size) = 0;
    virtual int64_t truncate(const std::string& path, int64_t size) = 0;
    virtual int64_t fallocate(int file, int mode, int64_t offset, int64_t length) = 0;
    virtual int64_t copy_file_range(int source, int64_t source_offset, int destination,
                                    int64_t destination_offset, uint64_t length) = 0;
    virtual int64_t fsync(int file) = 0;
    virtual int64_t fdatasync(int file) = 0;
    virtual int64_t syncfs(int file) = 0;

    // ---- Attributes -------------------------------------------------------------------------
    virtual int64_t stat(const std::string& path, FileStatus& status) = 0;
    virtual int64_t lstat(const std::string& path, FileStatus& status) = 0;
    virtual int64_t fstat(int file, FileStatus& status) = 0;
    virtual int64_t chmod(const std::string& path, uint32_t mode) = 0;
    virtual int64_t fchmod(int file, uint32_t mode) = 0;
    // 0xffffffff leaves an id as it is.
    virtual int64_t chown(const std::string& path, uint32_t user_id, uint32_t group_id) = 0;
    virtual int64_t lchown(const std::string& path, uint32_t user_id, uint32_t group_id) = 0;
    // times[0] access, times[1] modification; tv_nsec may be UTIME_NOW or UTIME_OMIT. `flags` may
    // hold AT_SYMLINK_NOFOLLOW.
    virtual int64_t utimens(const std::string& path, const timespec times[2], int flags) = 0;
    virtual int64_t futimens(int file, const timespec times[2]) = 0;
    // FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IOC_GETVERSION.
    virtual int64_t get_flags(int file, uint32_t& flags) = 0;
    virtual int64_t set_flags(int file, uint32_t flags) = 0;
    virtual int64_t get_generation(int file, uint64_t& generation) = 0;

    // ---- Names ------------------------------------------------------------------------------
    virtual int64_t link(const std::string& path, const std::string& new_path) = 0;
    // linkat(AT_EMPTY_PATH): gives an open file a name.
    virtual int64_t link_file(int file, const std::string& new_path) = 0;
    virtual int64_t unlink(const std::string& path) = 0;
    virtual int64_t mkdir(const std::string& path, uint32_t mode) = 0;
    virtual int64_t rmdir(const std::string& path) = 0;
    virtual int64_t rename(const std::string& path, const std::string& new_path,
                           unsigned flags) = 0;
    virtual int64_t symlink(const std::string& target, const std::string& path) = 0;
    virtual int64_t readlink(const std::string& path, char* buffer, size_t size) = 0;
    virtual int64_t mknod(const std::string& path, uint32_t mode, uint32_t device_major,
                          uint32_t device_minor) = 0;
    // getdents64: appends some records (at most about `buffer_bytes` of them) from the descriptor's
    // position, moves it, and returns how many; 0 at the end.
    virtual int64_t read_directory(int file, size_t buffer_bytes,
                                   std::vector<DirectoryRecord>& records) = 0;

    // ---- Extended attributes: of the file that a path names, symlinks are not followed ------
    virtual int64_t get_xattr(const std::string& path, const std::string& name, void* buffer,
                              size_t size) = 0;
    virtual int64_t set_xattr(const std::string& path, const std::string& name, const void* value,
                              size_t size, int flags) = 0;
    virtual int64_t list_xattr(const std::string& path, char* buffer, size_t size) = 0;
    virtual int64_t remove_xattr(const std::string& path, const std::string& name) = 0;

    // ---- The whole file system ---------------------------------------------------------------
    virtual int64_t statfs(SpaceStatus& status) = 0;
    // Needs Feature::read_only_remount.
    virtual int64_t remount(bool read_only) = 0;
    // FS_IOC_SHUTDOWN; needs Feature::shutdown. `mode`: 0 flush, 1 journal only, 2 discard.
    virtual int64_t shutdown(uint32_t mode) = 0;

    // ---- Memory; needs Feature::mmap -----------------------------------------------------------
    // `protection` as of mmap; always MAP_SHARED. The address goes to `memory`.
    virtual int64_t map(int file, int64_t offset, size_t length, int protection,
                        unsigned char*& memory) = 0;
    virtual int64_t unmap(unsigned char* memory, size_t length) = 0;
    virtual int64_t sync_map(unsigned char* memory, size_t length) = 0;
};

}  // namespace tiffin::suite
