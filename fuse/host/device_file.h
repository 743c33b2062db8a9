// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Opening a file or disk for FileDevice: exclusion, geometry, discard.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fs/vfs/block_device.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

// Locks the file or disk as all programs of ours do (flock), without waiting for longer than udev takes to look at a disk.
// Returns 0 or an error number; EWOULDBLOCK: others have it.
[[nodiscard]] int lock_device(int descriptor, bool shared);

// Refuses the open file or disk at `path`, which the caller has locked, where another program uses the place of its content.
// Returns a descriptor to keep open, which locks the file below a loop device; -1: there is none, or the search has found it.
OrProblem<int> exclude_others(int descriptor, const std::string& path, bool shared);

// An open, locked regular file or block device; movable. See FileDevice for the rules.
class DeviceFile {
  public:
    // `create_size_bytes` is the size of a file that does not exist yet; 0: it must exist.
    enum class Access : uint8_t {
        read_write,  // alone
        read_only,   // with other readers
        // As read_only, until take_for_writing(); what cannot be written becomes read_only.
        read_first,
    };
    static OrProblem<DeviceFile> open(const std::string& path, Access access,
                                      uint64_t create_size_bytes);
    ~DeviceFile();
    DeviceFile(DeviceFile&& other) noexcept;
    DeviceFile& operator=(DeviceFile&&) = delete;

    // Whether open() has made the file.
    bool created() const { return created_; }
    int descriptor() const { return descriptor_; }
    // As it was found at the beginning.
    const vfs::DeviceGeometry& geometry() const { return geometry_; }
    // How large it is now, in whole write units. Nothing: it does not tell.
    std::optional<uint64_t> size_bytes() const;

    // Makes readers the only user. Returns 0 or an errno number; ebusy when there are others.
    int take_for_writing(const std::string& path);

    // Whether discard() works. Only of what the caller has alone: a file gets a new time.
    bool can_discard() const;
    // Gives up the content of a range of whole write units, not empty. Returns 0 or an errno number.
    int discard(uint64_t offset_bytes, uint64_t length_bytes) const;

  private:
    explicit DeviceFile(int descriptor) : descriptor_(descriptor) {}

    OrProblem<bool> set_size(const std::string& path, uint64_t size_bytes);
    OrProblem<bool> lock(const std::string& path, bool shared);
    OrProblem<bool> find_geometry(const std::string& path, bool read_only);
    OrProblem<bool> find_block_geometry(const std::string& path);

    int descriptor_;
    // Of a disk that was opened to be read first: holds it against other writers and mounts.
    int exclusive_descriptor_ = -1;
    bool alone_ = false;
    bool created_ = false;
    int backing_descriptor_ = -1;  // of exclude_others()
    bool is_block_device_ = false;
    vfs::DeviceGeometry geometry_;
};

}  // namespace tiffin::fuse
