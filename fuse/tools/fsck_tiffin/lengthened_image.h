// SPDX-License-Identifier: MIT OR GPL-2.0-only
// An image file whose end is missing, as if it were there and all zeros. The file is made longer with the first write, so that
// a check that repairs nothing leaves it as it is: its length tells what is missing, also to a program that copies the rest.
#pragma once

#include <memory>
#include <string>

#include "fs/vfs/block_device.h"

namespace tiffin::fuse {

class LengthenedImage final : public vfs::BlockDevice {
  public:
    // `device` is the image at `path`, and shorter than `size_bytes`.
    LengthenedImage(std::unique_ptr<vfs::BlockDevice> device, std::string path,
                    uint64_t size_bytes);

    const vfs::DeviceGeometry& geometry() const override { return geometry_; }
    void submit(vfs::IoRequest& request) override;

    bool is_longer() const { return is_longer_; }
    // The file gets the whole size, or its former one: nothing refers to what has been written. False: it cannot, and the log
    // says why.
    bool make_longer();
    void take_back();

  private:
    Result<void> read_present(const vfs::IoRequest& request, uint64_t size_bytes);

    std::unique_ptr<vfs::BlockDevice> device_;
    std::string path_;
    uint64_t former_bytes_;   // of the file
    uint64_t present_bytes_;  // of them, those that the device has
    vfs::DeviceGeometry geometry_;
    bool is_longer_ = false;
};

}  // namespace tiffin::fuse
