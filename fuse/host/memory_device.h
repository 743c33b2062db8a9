// SPDX-License-Identifier: MIT OR GPL-2.0-only
// mem:SIZE, a block device in this process's memory.
#pragma once

#include <memory>

#include "fs/vfs/block_device.h"
#include "fuse/host/problem.h"

namespace tiffin::fuse {

// Anonymous memory that reads as zeros at first and is gone with the process. Pages are taken from
// the system when they are first written, and given back by discard(): a device may be larger than
// the machine's memory, as long as what is written to it is not.
//
// All functions may be called from any threads at once; every request completes within submit().
class MemoryDevice final : public vfs::BlockDevice {
  public:
    static constexpr uint64_t kPageBytes = 4096;

    // The size is rounded down to whole pages and must be at least one.
    static OrProblem<std::unique_ptr<MemoryDevice>> create(uint64_t size_bytes,
                                                           bool read_only = false);
    ~MemoryDevice() override;
    MemoryDevice(const MemoryDevice&) = delete;
    MemoryDevice& operator=(const MemoryDevice&) = delete;

    const vfs::DeviceGeometry& geometry() const override { return geometry_; }
    void submit(vfs::IoRequest& request) override;
    const void* direct_address(uint64_t offset_bytes, uint64_t size_bytes) override;
    using vfs::BlockDevice::read;
    using vfs::BlockDevice::write;
    Result<void> read(uint64_t offset_bytes, const vfs::IoVector* buffers,
                      size_t buffer_count) override;
    Result<void> write(uint64_t offset_bytes, const vfs::IoVector* buffers,
                       size_t buffer_count) override;
    Result<void> flush() override { return {}; }
    // Whole pages inside the range read as zeros afterwards, the rest keeps its content.
    Result<void> discard(uint64_t offset_bytes, uint64_t length_bytes) override;

  private:
    MemoryDevice(unsigned char* memory, uint64_t size_bytes, bool read_only);

    unsigned char* memory_;
    vfs::DeviceGeometry geometry_;
};

}  // namespace tiffin::fuse
