// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The suite's calls as real system calls below a directory of a mounted file system.
#pragma once

#include <string>

#include "tests/suite/under_test.h"

namespace tiffin::suite {

class PosixUnderTest : public FileSystemUnderTest {
  public:
    // `root` is an existing directory; `features` is what its file system is said to have.
    PosixUnderTest(std::string root, FeatureSet features);

    // Makes another directory the root that paths start from.
    void set_root(const std::string& root) { root_ = root; }

    FeatureSet features() const override { return features_; }
    void become(uint32_t user_id, uint32_t group_id) override;
    uint32_t set_umask(uint32_t umask) override;

    int64_t open_at(int directory, const std::string& path, int flags, uint32_t mode) override;
    int64_t close(int file) override;
    int64_t read(int file, void* buffer, size_t size) override;
    int64_t write(int file, const void* buffer, size_t size) override;
    int64_t pread(int file, void* buffer, size_t size, int64_t offset) override;
    int64_t pwrite(int file, const void* buffer, size_t size, int64_t offset) override;
    int64_t lseek(int file, int64_t offset, int whence) override;
    int64_t ftruncate(int file, int64_t size) override;
    int64_t truncate(const std::string& path, int64_t size) override;
    int64_t fallocate(int file, int mode, int64_t offset, int64_t length) override;
    int64_t copy_file_range(int source, int64_t source_offset, int destination,
                            int64_t destination_offset, uint64_t length) override;
    int64_t fsync(int file) override;
    int64_t fdatasync(int file) override;
    int64_t syncfs(int file) override;

    int64_t stat(const std::string& path, FileStatus& status) override;
    int64_t lstat(const std::string& path, FileStatus& status) override;
    int64_t fstat(int file, FileStatus& status) override;
    int64_t chmod(const std::string& path, uint32_t mode) override;
    int64_t fchmod(int file, uint32_t mode) override;
    int64_t chown(const std::string& path, uint32_t user_id, uint32_t group_id) override;
    int64_t lchown(const std::string& path, uint32_t user_id, uint32_t group_id) override;
    int64_t utimens(const std::string& path, const timespec times[2], int flags) override;
    int64_t futimens(int file, const timespec times[2]) override;
    int64_t get_flags(int file, uint32_t& flags) override;
    int64_t set_flags(int file, uint32_t flags) override;
    int64_t get_generation(int file, uint64_t& generation) override;

    int64_t link(const std::string& path, const std::string& new_path) override;
    int64_t link_file(int file, const std::string& new_path) override;
    int64_t unlink(const std::string& path) override;
    int64_t mkdir(const std::string& path, uint32_t mode) override;
    int64_t rmdir(const std::string& path) override;
    int64_t rename(const std::string& path, const std::string& new_path, unsigned flags) override;
    int64_t symlink(const std::string& target, const std::string& path) override;
    int64_t readlink(const std::string& path, char* buffer, size_t size) override;
    int64_t mknod(const std::string& path, uint32_t mode, uint32_t device_major,
                  uint32_t device_minor) override;
    int64_t read_directory(int file, size_t buffer_bytes,
                           std::vector<DirectoryRecord>& records) override;

    int64_t get_xattr(const std::string& path, const std::string& name, void* buffer,
                      size_t size) override;
    int64_t set_xattr(const std::string& path, const std::string& name, const void* value,
                      size_t size, int flags) override;
    int64_t list_xattr(const std::string& path, char* buffer, size_t size) override;
    int64_t remove_xattr(const std::string& path, const std::string& name) override;

    int64_t statfs(SpaceStatus& status) override;
    int64_t remount(bool read_only) override;
    int64_t shutdown(uint32_t mode) override;

    int64_t map(int file, int64_t offset, size_t length, int protection,
                unsigned char*& memory) override;
    int64_t unmap(unsigned char* memory, size_t length) override;
    int64_t sync_map(unsigned char* memory, size_t length) override;

  private:
    std::string absolute(const std::string& path) const;
    // The path up to the point where its file system is mounted.
    std::string mount_point() const;

    std::string root_;
    FeatureSet features_;
};

}  // namespace tiffin::suite
