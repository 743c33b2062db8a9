// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Growth of a mounted volume. The superblocks' second copies, at the end, move with it, so it takes two checkpoints:
// after the first the new size is valid, and the old end still has the copies of the generation before and one of the
// new one; after the second no generation needs the old end, and what is new is handed out.
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

// A device that cannot store what lies at the new end (a sparse image on a full file system) says so before anything
// depends on it: a checkpoint that fails makes the volume read-only.
Result<void> Volume::try_new_end(uint64_t total_blocks) {
    void* zeros = host::allocate_pages(kBlockBytes);
    if (zeros == nullptr) {
        return Error::enomem;
    }
    __builtin_memset(zeros, 0, kBlockBytes);
    Result<void> written;
    for (uint64_t slot = 0; slot < 2 && written.ok(); ++slot) {
        written = device_.write(superblock_block(total_blocks, slot, 1) * kBlockBytes,
                                static_cast<const void*>(zeros), kBlockBytes);
    }
    host::release_pages(zeros, kBlockBytes);
    return written;
}

Result<vfs::Growth> Volume::grow() {
    MutexLock lock(checkpoint_lock_);
    TRY(check_writable());
    if (!extend_at_seal_ && !is_extended_) {
        const uint64_t blocks = TRY(blocks_on_device());
        if (blocks < total_blocks() + Allocator::kMinimumGrowthBlocks) {
            return vfs::Growth{total_blocks() * kBlockBytes, total_blocks() * kBlockBytes};
        }
        TRY(try_new_end(blocks));
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
