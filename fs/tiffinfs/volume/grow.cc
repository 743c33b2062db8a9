// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Growth of a mounted volume. The superblocks' second copies, at the end, move with it, so it takes two checkpoints:
// after the first the new size is valid, and the old end still has the copies of the generation before; after the
// second no generation needs the old end, and what is new is handed out.
#include "fs/base/text.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {

Result<uint64_t> Volume::blocks_on_device() {
    const uint64_t blocks = TRY(device_.update_size()) / kBlockBytes;
    return round_total_blocks(blocks < kMaximumBlocks ? blocks : kMaximumBlocks);
}

void Volume::offer_growth() {
    Result<uint64_t> blocks = blocks_on_device();
    if (blocks.ok() && *blocks >= total_blocks() + Allocator::kMinimumGrowthBlocks) {
        log_line(host::LogLevel::info, "the device has room for ", *blocks,
                 " blocks, the volume has ", total_blocks(),
                 ": 'tiffin grow MOUNTPOINT' takes the rest into use");
    }
}

Result<vfs::Growth> Volume::grow() {
    MutexLock lock(checkpoint_lock_);
    TRY(check_writable());
    if (!extend_at_seal_ && !is_extended_) {
        const uint64_t blocks = TRY(blocks_on_device());
        if (blocks < total_blocks() + Allocator::kMinimumGrowthBlocks) {
            return vfs::Growth{total_blocks() * kBlockBytes, total_blocks() * kBlockBytes};
        }
        TRY(allocator_.prepare_growth(blocks));
        extend_at_seal_ = true;
    }
    const uint64_t before = durable_.total_blocks;
    TRY(checkpoint_locked(Ending::none));
    TRY(checkpoint_locked(Ending::none));
    allocator_.finish_growth();
    is_extended_ = false;
    log_line(host::LogLevel::info, "the volume has grown from ", before, " to ", total_blocks(),
             " blocks");
    return vfs::Growth{before * kBlockBytes, total_blocks() * kBlockBytes};
}

}  // namespace tiffin::tiffinfs
