// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The front of a device, for a volume that is smaller than it and whose superblocks there are lost: the second copies are
// at the volume's end, and so at the end of this.
#pragma once

#include <memory>
#include <utility>

#include "fs/vfs/block_device.h"

namespace tiffin::fuse {

class DeviceFront final : public vfs::BlockDevice {
  public:
    // `size_bytes`: not more than the device has.
    DeviceFront(std::unique_ptr<vfs::BlockDevice> device, uint64_t size_bytes)
        : device_(std::move(device)), geometry_(device_->geometry()) {
        TIFFIN_ASSERT(size_bytes <= geometry_.size_bytes);
        geometry_.size_bytes = size_bytes;
    }

    const vfs::DeviceGeometry& geometry() const override { return geometry_; }
    void submit(vfs::IoRequest& request) override { device_->submit(request); }
    bool help(const std::atomic<uint32_t>& count, uint32_t seen) override {
        return device_->help(count, seen);
    }

  private:
    std::unique_ptr<vfs::BlockDevice> device_;
    vfs::DeviceGeometry geometry_;
};

}  // namespace tiffin::fuse
