// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A block device in memory of the kernel, in two characters.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "fs/vfs/block_device.h"
#include "tests/vm/module/core_test.h"

namespace tiffin::vm {

enum class DeviceKind : uint8_t {
    direct,     // its memory can be read in place; requests complete within submit()
    interrupt,  // a disk: requests complete in an interrupt, in any order, and the cache is volatile
};

// All functions may be called from any threads at once. What breaks the contract of vfs::IoRequest
// (buffers on a stack, places outside of write units) is logged and counted, and fails.
class MemoryDevice final : public vfs::BlockDevice {
  public:
    explicit MemoryDevice(DeviceKind kind) : kind_(kind) {}
    // All requests must have completed.
    ~MemoryDevice() override;
    MemoryDevice(const MemoryDevice&) = delete;
    MemoryDevice& operator=(const MemoryDevice&) = delete;

    // Errors: enomem.
    Result<void> open(uint64_t size_bytes);

    const vfs::DeviceGeometry& geometry() const override { return geometry_; }
    void submit(vfs::IoRequest& request) override;
    const void* direct_address(uint64_t offset_bytes, uint64_t size_bytes) override;

    // Until it is started again every request fails with eio, as after a loss of power.
    void stop() { stopped_.store(true, std::memory_order_relaxed); }
    void start() { stopped_.store(false, std::memory_order_relaxed); }
    // Inverts one byte behind the file system's back.
    void damage(uint64_t offset_bytes) { memory_[offset_bytes] ^= 0xff; }

    uint64_t requests() const { return requests_.load(std::memory_order_relaxed); }
    uint64_t requests_completed_in_interrupts() const {
        return in_interrupt_.load(std::memory_order_relaxed);
    }
    uint64_t breaches_of_contract() const { return breaches_.load(std::memory_order_relaxed); }
    // Buffers that a disk could not reach without a copy: not aligned to a sector of 512 bytes. Only
    // those of callers may be.
    uint64_t unaligned_buffers() const { return unaligned_.load(std::memory_order_relaxed); }

  private:
    bool keeps_contract(const vfs::IoRequest& request);
    Result<void> carry_out(const vfs::IoRequest& request);
    static void interrupted(void* device);

    DeviceKind kind_;
    vfs::DeviceGeometry geometry_;
    unsigned char* memory_ = nullptr;
    tiffin_interrupt* interrupt_ = nullptr;
    std::atomic<vfs::IoRequest*> pending_{nullptr};  // linked by `next`
    std::atomic<bool> stopped_{false};
    std::atomic<uint64_t> requests_{0};
    std::atomic<uint64_t> in_interrupt_{0};
    std::atomic<uint64_t> breaches_{0};
    std::atomic<uint64_t> unaligned_{0};
};

}  // namespace tiffin::vm
