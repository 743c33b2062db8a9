// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Helpers for the tests of devices.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "fs/vfs/block_device.h"

namespace tiffin::fuse {

using Bytes = std::vector<unsigned char>;

// Bytes that depend on the seed and on their place.
inline Bytes pattern(size_t size_bytes, uint32_t seed) {
    Bytes bytes(size_bytes);
    uint32_t state = seed * 2654435761U + 1;
    for (unsigned char& byte : bytes) {
        state = state * 1664525 + 1013904223;
        byte = static_cast<unsigned char>(state >> 24);
    }
    return bytes;
}

inline Result<void> write_bytes(vfs::BlockDevice& device, uint64_t offset_bytes,
                                const Bytes& bytes) {
    return device.write(offset_bytes, bytes.data(), bytes.size());
}

// What the device holds; empty when reading fails.
inline Bytes read_bytes(vfs::BlockDevice& device, uint64_t offset_bytes, size_t size_bytes) {
    Bytes bytes(size_bytes);
    if (!device.read(offset_bytes, bytes.data(), bytes.size()).ok()) {
        bytes.clear();
    }
    return bytes;
}

// The error number of a result, 0 when there is none.
inline int error_of(const Result<void>& result) {
    return result.ok() ? 0 : errno_value(result.error());
}

// A folder that is gone after the test.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "tiffin-test-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) {
            ADD_FAILURE() << "cannot make a temporary folder " << name;
        }
        path_ = name;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    std::string file(const std::string& name) const { return (path_ / name).string(); }

  private:
    std::filesystem::path path_;
};

// The behaviour that every device shares; `device` is writable and at least 1 MiB long.
void check_device_contract(vfs::BlockDevice& device);

// Many requests at once from several threads through submit(), each thread in its own range; at
// least 4 MiB.
void check_concurrent_submits(vfs::BlockDevice& device);

}  // namespace tiffin::fuse
