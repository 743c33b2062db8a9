// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Trim, scrub and growth.
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/maintenance/scrub.h"

namespace tiffin::tiffinfs {

Result<uint64_t> TiffinFileSystem::trim(uint64_t offset_bytes, uint64_t length_bytes,
                                        uint64_t minimum_bytes) {
    TRY(volume_->check_writable());
    if (!volume_->device().geometry().supports_discard) {
        return Error::eopnotsupp;
    }
    uint64_t total_blocks = volume_->total_blocks();
    // Only whole blocks inside the range; the end may be anywhere, also beyond the volume.
    uint64_t first = offset_bytes / kBlockBytes + (offset_bytes % kBlockBytes != 0 ? 1 : 0);
    if (first >= total_blocks || length_bytes < kBlockBytes) {
        return Error::einval;
    }
    uint64_t end_bytes =
        length_bytes > ~uint64_t{0} - offset_bytes ? ~uint64_t{0} : offset_bytes + length_bytes;
    uint64_t end = block_at(end_bytes);
    end = end < total_blocks ? end : total_blocks;
    if (end <= first) {
        return uint64_t{0};
    }
    uint64_t minimum_blocks =
        minimum_bytes / kBlockBytes + (minimum_bytes % kBlockBytes != 0 ? 1 : 0);
    uint64_t trimmed_blocks = TRY(
        volume_->allocator().trim({first, end - first}, minimum_blocks > 0 ? minimum_blocks : 1));
    return trimmed_blocks * kBlockBytes;
}

Result<void> TiffinFileSystem::scrub(vfs::ScrubProgress& progress) {
    Scrub step(*volume_, progress);
    return step.step();
}

Result<vfs::Growth> TiffinFileSystem::grow() { return volume_->grow(); }

}  // namespace tiffin::tiffinfs
