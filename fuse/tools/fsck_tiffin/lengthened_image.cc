// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/tools/fsck_tiffin/lengthened_image.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "fs/base/text.h"
#include "fs/vfs/host.h"

namespace tiffin::fuse {

LengthenedImage::LengthenedImage(std::unique_ptr<vfs::BlockDevice> device, std::string path,
                                 uint64_t size_bytes)
    : device_(std::move(device)),
      path_(std::move(path)),
      present_bytes_(device_->geometry().size_bytes),
      geometry_(device_->geometry()) {
    std::error_code ignored;
    const auto bytes = std::filesystem::file_size(path_, ignored);
    former_bytes_ = ignored ? present_bytes_ : bytes;
    geometry_.size_bytes = size_bytes;
}

bool LengthenedImage::make_longer() {
    if (is_longer_) {
        return true;
    }
    if (truncate(path_.c_str(), static_cast<off_t>(geometry_.size_bytes)) != 0) {
        log_line(host::LogLevel::error, "cannot lengthen ", path_.c_str(), ": ",
                 std::strerror(errno));
        return false;
    }
    is_longer_ = true;
    return device_->update_size().value_or(0) >= geometry_.size_bytes;
}

void LengthenedImage::take_back() {
    if (is_longer_ && truncate(path_.c_str(), static_cast<off_t>(former_bytes_)) == 0) {
        is_longer_ = false;
    }
}

// The first `size_bytes` of a read come from the file; the rest of its buffers becomes zeros.
Result<void> LengthenedImage::read_present(const vfs::IoRequest& request, uint64_t size_bytes) {
    std::vector<vfs::IoVector> present;
    for (size_t i = 0; i < request.buffer_count; i++) {
        vfs::IoVector piece = request.buffers[i];
        const uint64_t part = std::min<uint64_t>(piece.size_bytes, size_bytes);
        std::memset(static_cast<unsigned char*>(piece.data) + part, 0, piece.size_bytes - part);
        piece.size_bytes = part;
        size_bytes -= part;
        if (part != 0) {
            present.push_back(piece);
        }
    }
    return present.empty() ? Result<void>()
                           : device_->read(request.offset_bytes, present.data(), present.size());
}

void LengthenedImage::submit(vfs::IoRequest& request) {
    if (request.operation == vfs::IoOperation::read && !is_longer_) {
        const uint64_t present =
            present_bytes_ - std::min<uint64_t>(present_bytes_, request.offset_bytes);
        request.complete(request, read_present(request, present));
    } else if (request.operation == vfs::IoOperation::flush && !is_longer_) {
        request.complete(request, {});
    } else if (make_longer()) {
        device_->submit(request);
    } else {
        request.complete(request, Error::eio);
    }
}

}  // namespace tiffin::fuse
