// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The suite's calls on a vfs::FileSystem in this process: path walk, descriptors, references and the
// few checks that a kernel's VFS makes before it asks a file system. Permissions are not checked.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fs/vfs/file_system.h"
#include "tests/suite/under_test.h"

namespace tiffin::suite {

// A reference to a node that gives itself back.
class NodeReference {
  public:
    NodeReference() = default;
    // Takes over one reference that the file system has counted.
    NodeReference(vfs::FileSystem& file_system, const vfs::Attributes& attributes)
        : file_system_(&file_system), attributes_(attributes) {}
    NodeReference(NodeReference&& other) noexcept { *this = std::move(other); }
    // Another's reference, which must live longer.
    static NodeReference borrowed(vfs::FileSystem& file_system, const vfs::Attributes& attributes) {
        NodeReference reference(file_system, attributes);
        reference.owned_ = false;
        return reference;
    }
    NodeReference& operator=(NodeReference&& other) noexcept;
    ~NodeReference() { reset(); }

    bool valid() const { return file_system_ != nullptr; }
    vfs::NodeId node() const { return attributes_.node; }
    // As they were when the reference was taken.
    const vfs::Attributes& attributes() const { return attributes_; }
    void reset();

  private:
    vfs::FileSystem* file_system_ = nullptr;
    vfs::Attributes attributes_;
    bool owned_ = true;
};

class CoreUnderTest : public FileSystemUnderTest {
  public:
    // No file system yet; see attach().
    explicit CoreUnderTest(FeatureSet features) : features_(features) {}
    ~CoreUnderTest() override { detach(); }

    // The file system that the calls go to, mounted. The owner calls detach() before unmounting it.
    void attach(vfs::FileSystem& file_system);
    // Closes every open file and gives all references back. No call may be running.
    void detach();
    size_t open_files() const;

    FeatureSet features() const override { return features_; }
    void become(uint32_t user_id, uint32_t group_id) override;
    uint32_t set_umask(uint32_t umask) override { return umask_.exchange(umask & 0777); }

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
    struct OpenFile {
        NodeReference node;
        vfs::Handle handle = 0;
        int flags = 0;
        std::atomic<bool> linkable = false;  // O_TMPFILE without O_EXCL, not linked yet
        std::mutex position_mutex;           // held across a read or write that moves it
        int64_t position = 0;

        bool readable() const { return (flags & O_ACCMODE) != O_WRONLY; }
        bool writable() const { return (flags & O_ACCMODE) != O_RDONLY; }
        bool is_directory() const { return vfs::mode::is_directory(node.attributes().mode); }
    };
    using OpenFilePointer = std::shared_ptr<OpenFile>;

    // Where a path leads. `parent` and `name` tell where its last component stands.
    struct Place {
        NodeReference parent;
        std::string name;
        NodeReference node;              // not valid when there is nothing of that name
        bool must_be_directory = false;  // the path ended with a slash
    };

    // Walks `path` from `start`. 0 also when only the last component is missing.
    int64_t walk(NodeReference start, const std::string& path, bool follow_last, Place& place);
    int64_t walk(const std::string& path, bool follow_last, Place& place);
    // The walk must lead to something.
    int64_t find(const std::string& path, bool follow_last, NodeReference& node);
    // The walk must lead to a name that is free.
    int64_t find_free(const std::string& path, Place& place);
    NodeReference root();

    OpenFilePointer file_of(int file) const;
    int64_t add_file(OpenFilePointer file);
    int64_t open_place(Place& place, int flags, uint32_t mode, NodeReference& node, bool& created);
    int64_t check_open(const vfs::Attributes& attributes, int flags, bool created) const;
    int64_t finish_open(NodeReference node, int flags, bool created);
    int64_t open_temporary(const Place& place, int flags, uint32_t mode);

    int64_t read_at(OpenFile& file, void* buffer, size_t size, int64_t offset);
    int64_t write_at(OpenFile& file, const void* buffer, size_t size, int64_t offset);
    int64_t change(vfs::NodeId node, vfs::AttributeChange change);
    // What a host does when a call has changed content: privileges go. `answer` is the call's.
    int64_t after_change(vfs::NodeId node, int64_t answer);
    int64_t change_times(vfs::NodeId node, const timespec times[2]);
    int64_t change_owner(const std::string& path, bool follow, uint32_t user_id, uint32_t group_id);
    int64_t status(vfs::NodeId node, FileStatus& status);
    vfs::Caller caller() const;

    FeatureSet features_;
    vfs::FileSystem* file_system_ = nullptr;
    std::atomic<uint32_t> umask_ = 022;
    std::atomic<bool> read_only_ = false;
    std::atomic<bool> opens_needed_ = true;  // until the file system says enosys
    std::atomic<uint64_t> directory_reads_ = 0;
    mutable std::mutex files_mutex_;
    std::vector<OpenFilePointer> files_;
};

}  // namespace tiffin::suite
