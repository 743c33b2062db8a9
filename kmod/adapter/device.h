// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A block device of the kernel, by way of the framework's services.
#pragma once

#include "fs/vfs/block_device.h"
#include "kmod/vfs/abi.h"

namespace tiffin::kmod {

class KernelDevice final : public vfs::BlockDevice {
  public:
    // `device` may be nullptr, for file systems without one: then nothing is called.
    KernelDevice(const tiffin_services& services, tiffin_device* device);

    const vfs::DeviceGeometry& geometry() const override { return geometry_; }
    Result<uint64_t> update_size() override;
    void submit(vfs::IoRequest& request) override;
    // The record with PREFLUSH and FUA: the kernel does what a device cannot.
    Result<void> write_ordered(Span<const vfs::OrderedWrite> data,
                               const vfs::OrderedWrite& record) override;
    bool combines_ordered_writes() const override { return true; }

  private:
    const tiffin_services& services_;
    tiffin_device* device_;
    vfs::DeviceGeometry geometry_;
};

}  // namespace tiffin::kmod
