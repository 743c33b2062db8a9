// SPDX-License-Identifier: MIT OR GPL-2.0-only
// tiffinfs in this process, by paths: short enough to write scripts of operations in tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fs/tiffinfs/tiffinfs.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/file_system.h"

namespace tiffin::test {

// What can be seen of an object from outside.
struct SeenObject {
    uint32_t mode = 0;
    uint32_t link_count = 0;
    uint64_t size_bytes = 0;
    std::string content;  // of a file; the target of a symlink
    std::map<std::string, std::string> xattrs;

    bool operator==(const SeenObject&) const = default;
};
inline constexpr const char* kUnreadable = "(EIO)";
using SeenTree = std::map<std::string, SeenObject>;  // by path, such as "/a/b"; the root is "/"
// What the first difference is, in words; empty when there is none.
std::string difference(const SeenTree& a, const SeenTree& b);

// One volume on a device that outlives it. Paths begin with '/' and have no "." and "..".
// Every call keeps no reference to what it found. Several threads may call operations, each on paths that no
// other one changes.
class TestVolume {
  public:
    explicit TestVolume(vfs::BlockDevice& device) : device_(device) {}
    // Without unmount(): as after a crash of this process.
    ~TestVolume() { abandon(); }
    TestVolume(const TestVolume&) = delete;
    TestVolume& operator=(const TestVolume&) = delete;

    // Options without timers, so that what is written does not depend on time.
    static tiffinfs::MountOptions quiet_options();

    Result<void> make(uint64_t journal_bytes = 1U << 20);
    Result<void> mount(const tiffinfs::MountOptions& options = quiet_options());
    Result<void> unmount();
    void abandon();
    bool is_mounted() const { return file_system_ != nullptr; }
    vfs::FileSystem& file_system() { return *file_system_; }

    // ---- Operations. Errors as of vfs::FileSystem; enoent and enotdir also on the way. ----
    Result<vfs::NodeId> find(const std::string& path);
    Result<vfs::Attributes> attributes(const std::string& path);
    Result<void> create(const std::string& path, uint32_t mode = vfs::mode::regular | 0644);
    Result<void> make_directory(const std::string& path);
    Result<void> make_symlink(const std::string& path, const std::string& target);
    Result<void> link(const std::string& path, const std::string& new_path);
    Result<void> unlink(const std::string& path);
    Result<void> remove_directory(const std::string& path);
    Result<void> rename(const std::string& path, const std::string& new_path, uint32_t flags = 0);
    // Creates the file when it does not exist.
    Result<void> write(const std::string& path, uint64_t offset_bytes, std::string_view data);
    // The content, or its beginning: damaged files may say that they are very long.
    static constexpr uint64_t kReadMaximumBytes = 16U << 20;
    Result<std::string> read(const std::string& path);
    // A part of it. Errors: eio where it is shorter.
    Result<std::string> read(const std::string& path, uint64_t offset_bytes, size_t size_bytes);
    Result<void> truncate(const std::string& path, uint64_t size_bytes);
    Result<void> allocate(const std::string& path, uint32_t mode, uint64_t offset_bytes,
                          uint64_t length_bytes);
    Result<void> set_xattr(const std::string& path, const std::string& name,
                           std::string_view value);
    Result<void> remove_xattr(const std::string& path, const std::string& name);
    Result<void> fsync(const std::string& path);
    Result<void> sync();
    Result<std::vector<std::string>> list(const std::string& path);
    // A file without a name, with content; the reference to it is kept until unmount.
    Result<vfs::NodeId> make_temporary(std::string_view data);

    // Everything there is. Fails when anything cannot be read, or shows content that gives EIO as kUnreadable.
    enum class Unreadable : uint8_t { fails, shown };
    Result<SeenTree> see(Unreadable unreadable = Unreadable::fails);

  private:
    struct Place {
        vfs::NodeId parent = vfs::kRootNode;
        std::string name;
    };
    Result<Place> place_of(const std::string& path);
    Result<void> see_object(const std::string& path, Unreadable unreadable, SeenTree& tree);

    vfs::BlockDevice& device_;
    vfs::FileSystem* file_system_ = nullptr;
};

// Content that is different for each seed and each block.
std::string test_content(uint64_t seed, size_t size_bytes);

// Fills a mounted volume with one of everything, and `files` small files more.
Result<void> populate(TestVolume& volume, uint32_t files);

}  // namespace tiffin::test
