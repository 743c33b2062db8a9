// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Making an empty file system: one leaf with the root directory, bitmaps, one superblock.
#include "fs/base/allocate.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/space/bitmap_block.h"
#include "fs/tiffinfs/tiffinfs.h"
#include "fs/tiffinfs/tree/node.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

constexpr uint64_t kMinimumJournalBytes = 1U << 20;
// The journal lies in group 0, behind its bitmaps.
constexpr uint64_t kMaximumJournalBytes = (kBlocksPerGroup - kJournalFirstBlock) * kBlockBytes;

uint64_t choose_journal_bytes(uint64_t volume_bytes) {
    uint64_t bytes = volume_bytes / 16;
    if (bytes < kMinimumJournalBytes) {
        return kMinimumJournalBytes;
    }
    return bytes < kMaximumJournalBytes ? bytes : kMaximumJournalBytes;
}

Result<void> fill_superblock(Superblock& superblock, uint64_t size_bytes,
                             const MakeOptions& options) {
    superblock = Superblock{};
    superblock.magic = kSuperblockMagic;
    superblock.version = kFormatVersion;
    superblock.total_blocks = round_total_blocks(size_bytes / kBlockBytes);
    if (superblock.total_blocks < kMinimumBlocks || superblock.total_blocks > kMaximumBlocks ||
        options.label.size_bytes >= kLabelBytes) {
        return Error::einval;
    }
    uint64_t volume_bytes = superblock.total_blocks * kBlockBytes;
    uint64_t journal_bytes =
        options.journal_bytes != 0 ? options.journal_bytes : choose_journal_bytes(volume_bytes);
    if (journal_bytes < kMinimumJournalBytes || journal_bytes > kMaximumJournalBytes ||
        journal_bytes > volume_bytes / 2) {
        return Error::einval;
    }
    superblock.journal_first_block = kJournalFirstBlock;
    superblock.journal_block_count = journal_bytes / kBlockBytes;
    if (options.label.size_bytes > 0) {
        __builtin_memcpy(superblock.label, options.label.data, options.label.size_bytes);
    }
    uint8_t zero[sizeof(superblock.uuid)] = {};
    if (__builtin_memcmp(options.uuid, zero, sizeof(zero)) == 0) {
        host::random_bytes(superblock.uuid, sizeof(superblock.uuid));
        // RFC 9562, version 4.
        superblock.uuid[6] = static_cast<uint8_t>((superblock.uuid[6] & 0x0f) | 0x40);
        superblock.uuid[8] = static_cast<uint8_t>((superblock.uuid[8] & 0x3f) | 0x80);
    } else {
        __builtin_memcpy(superblock.uuid, options.uuid, sizeof(superblock.uuid));
    }
    host::random_bytes(&superblock.volume_nonce, sizeof(superblock.volume_nonce));
    host::random_bytes(superblock.hash_key, sizeof(superblock.hash_key));
    superblock.created_ns = host::realtime_ns();
    superblock.written_ns = superblock.created_ns;
    superblock.generation = kFirstGeneration;
    superblock.incarnation = 1;
    superblock.state = superblock_state::clean;
    superblock.next_node = vfs::kRootNode + 1;
    superblock.node_count = 1;
    superblock.journal_sequence = 1;
    return {};
}

InodeValue root_inode(const MakeOptions& options) {
    InodeValue inode{};
    inode.mode = vfs::mode::directory | (options.root_mode & vfs::mode::permission_mask);
    inode.link_count = 2;
    inode.user_id = options.root_user_id;
    inode.group_id = options.root_group_id;
    inode.parent = vfs::kRootNode;
    host::random_bytes(&inode.generation, sizeof(inode.generation));
    vfs::Timestamp now = Volume::now();
    DiskTime time{now.seconds, now.nanoseconds, 0};
    inode.access_time = time;
    inode.modification_time = time;
    inode.change_time = time;
    inode.birth_time = time;
    return inode;
}

Result<void> write_root_leaf(vfs::BlockDevice& device, const Superblock& superblock,
                             const InodeValue& inode) {
    auto* page = static_cast<unsigned char*>(host::allocate_pages(kBlockBytes));
    if (page == nullptr) {
        return Error::enomem;
    }
    format_page(page, superblock.volume_nonce, superblock.root_block, kFirstGeneration, 0);
    leaf_put(page, 0, make_key(vfs::kRootNode, Kind::inode, 0),
             ByteSpan(reinterpret_cast<const unsigned char*>(&inode), sizeof(inode)));
    seal_page(page);
    Result<void> written = device.write(superblock.root_block * kBlockBytes, page, kBlockBytes);
    host::release_pages(page, kBlockBytes);
    return written;
}

// In pieces, so that a signal ends a long one. What a device does not discard is only slower, or holds old content.
void discard_all(vfs::BlockDevice& device) {
    constexpr uint64_t kPieceBytes = uint64_t{1} << 30;
    const vfs::DeviceGeometry& geometry = device.geometry();
    if (!geometry.supports_discard) {
        return;
    }
    for (uint64_t at = 0; at < geometry.size_bytes; at += kPieceBytes) {
        const uint64_t left = geometry.size_bytes - at;
        if (!device.discard(at, left < kPieceBytes ? left : kPieceBytes).ok()) {
            return;
        }
    }
}

// What an older file system may have left: superblocks in the slot of the generation before, those of a larger one at the end
// of the device, and the first frame of its journal, which looks like one of ours that was cut off.
Result<void> clear_leftovers(vfs::BlockDevice& device, const Superblock& superblock) {
    void* zeros = host::allocate_pages(kBlockBytes);
    if (zeros == nullptr) {
        return Error::enomem;
    }
    __builtin_memset(zeros, 0, kBlockBytes);
    Result<void> result;
    const uint64_t device_blocks = device.geometry().size_bytes / kBlockBytes;
    // As those see it who look for superblocks; and as older versions did.
    const uint64_t largest_blocks = round_total_blocks(device_blocks);
    for (uint32_t slot = 0; slot < 2; ++slot) {
        for (const uint64_t block : {superblock_block(superblock.total_blocks, slot, 0),
                                     superblock_block(superblock.total_blocks, slot, 1),
                                     superblock_block(largest_blocks, slot, 1),
                                     superblock_block(device_blocks, slot, 1)}) {
            if (result.ok()) {
                result = device.write(block * kBlockBytes, zeros, kBlockBytes);
            }
        }
    }
    if (result.ok()) {
        result = device.write(superblock.journal_first_block * kBlockBytes, zeros, kBlockBytes);
    }
    host::release_pages(zeros, kBlockBytes);
    return result;
}

Result<void> make_with(Allocator& allocator, vfs::BlockDevice& device, Superblock& superblock,
                       const MakeOptions& options) {
    if (options.discard) {
        discard_all(device);
    }
    TRY(clear_leftovers(device, superblock));
    TRY(device.flush());
    TRY(allocator.start(superblock));
    TRY(allocator.format_fixed_blocks(superblock));
    BlockRange root = TRY(allocator.allocate(0, 1, SpacePriority::privileged));
    allocator.mark_used(root);
    superblock.root_block = root.first_block;
    superblock.root_generation = kFirstGeneration;
    TRY(write_root_leaf(device, superblock, root_inode(options)));
    TRY(allocator.seal(kFirstGeneration));
    TRY(allocator.write_sealed());
    superblock.used_blocks = allocator.sealed_used_blocks();
    superblock.initialized_groups = allocator.sealed_initialized_groups();
    TRY(device.flush());
    TRY(write_superblock(device, superblock));
    return device.flush();
}

}  // namespace

Result<void> make_file_system(vfs::BlockDevice& device, const MakeOptions& options) {
    if (device.geometry().read_only) {
        return Error::erofs;
    }
    const uint64_t device_bytes = device.geometry().size_bytes;
    if (options.volume_bytes > device_bytes) {
        return Error::einval;
    }
    // Large structures live on the heap: this code runs on kernel stacks too.
    auto* superblock = make_object<Superblock>();
    auto* readers = make_object<ReaderEpochs>();
    Allocator* allocator = readers != nullptr ? make_object<Allocator>(device, *readers) : nullptr;
    Result<void> result = Error::enomem;
    if (superblock != nullptr && allocator != nullptr) {
        result = fill_superblock(
            *superblock, options.volume_bytes != 0 ? options.volume_bytes : device_bytes, options);
        if (result.ok()) {
            result = make_with(*allocator, device, *superblock, options);
        }
    }
    destroy_object(allocator);
    destroy_object(readers);
    destroy_object(superblock);
    return result;
}

Result<bool> holds_file_system(vfs::BlockDevice& device) {
    auto* set = make_object<SuperblockSet>();
    if (set == nullptr) {
        return Error::enomem;
    }
    Result<void> read = read_superblocks(device, *set);
    bool seen = set->magic_seen;
    destroy_object(set);
    TRY(read);
    return seen;
}

Result<void> read_superblock(vfs::BlockDevice& device, Superblock& superblock) {
    auto* set = make_object<SuperblockSet>();
    if (set == nullptr) {
        return Error::enomem;
    }
    Result<void> read = read_superblocks(device, *set);
    if (read.ok() && set->count == 0) {
        read = Error::einval;
    }
    if (read.ok()) {
        superblock = set->found[0];
    }
    destroy_object(set);
    return read;
}

}  // namespace tiffin::tiffinfs
