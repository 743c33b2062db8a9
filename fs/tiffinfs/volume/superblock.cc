// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/volume/superblock.h"

#include "fs/base/text.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

uint32_t checksum_of(const Superblock& superblock) {
    // The checksum field counts as zero.
    const auto* bytes = reinterpret_cast<const unsigned char*>(&superblock);
    constexpr size_t field = offsetof(Superblock, checksum);
    const uint32_t zero = 0;
    uint32_t checksum = host::crc32c(0, bytes, field);
    checksum = host::crc32c(checksum, &zero, sizeof(zero));
    return host::crc32c(checksum, bytes + field + sizeof(zero),
                        sizeof(Superblock) - field - sizeof(zero));
}

// A page of the host, for one block.
class BlockBuffer {
  public:
    BlockBuffer() : memory_(static_cast<unsigned char*>(host::allocate_pages(kBlockBytes))) {}
    ~BlockBuffer() { host::release_pages(memory_, kBlockBytes); }
    BlockBuffer(const BlockBuffer&) = delete;
    BlockBuffer& operator=(const BlockBuffer&) = delete;
    unsigned char* data() { return memory_; }

  private:
    unsigned char* memory_;
};

// Written rightly by another version, or for a larger device.
bool may_be_right_elsewhere(const Superblock& superblock, uint64_t device_blocks) {
    return superblock.magic == kSuperblockMagic && superblock.checksum == checksum_of(superblock) &&
           (superblock.version != kFormatVersion ||
            (superblock.total_blocks > device_blocks && superblock.total_blocks <= kMaximumBlocks));
}

bool is_empty(const unsigned char* block) {
    for (uint32_t i = 0; i < kBlockBytes; ++i) {
        if (block[i] != 0) {
            return false;
        }
    }
    return true;
}

void insert_sorted(SuperblockSet& set, const Superblock& superblock) {
    uint32_t place = set.count;
    while (place > 0 && set.found[place - 1].generation < superblock.generation) {
        set.found[place] = set.found[place - 1];
        place--;
    }
    set.found[place] = superblock;
    set.count++;
}

}  // namespace

bool check_superblock(const Superblock& superblock, uint64_t device_bytes, const char*& reason) {
    if (superblock.magic != kSuperblockMagic || superblock.checksum != checksum_of(superblock)) {
        reason = "not a valid superblock";
        return false;
    }
    if (superblock.version != kFormatVersion) {
        reason = "made by a version with another format";
        return false;
    }
    if (superblock.total_blocks < kMinimumBlocks || superblock.total_blocks > kMaximumBlocks ||
        superblock.total_blocks > device_bytes / kBlockBytes) {
        reason =
            superblock.total_blocks > kMaximumBlocks || superblock.total_blocks < kMinimumBlocks
                ? "an impossible size"
                : "the volume is larger than the device, whose end may have been cut off";
        return false;
    }
    if (superblock.journal_first_block != kJournalFirstBlock ||
        superblock.journal_block_count < 64 ||
        superblock.journal_block_count > superblock.total_blocks / 2 ||
        superblock.journal_position >= superblock.journal_block_count * kBlockBytes) {
        reason = "an impossible journal";
        return false;
    }
    if (superblock.root_block >= superblock.total_blocks ||
        superblock.root_level > kMaximumRootLevel ||
        superblock.root_generation > superblock.generation || superblock.generation == 0 ||
        superblock.generation >= kCounterLimit || superblock.incarnation >= kCounterLimit ||
        superblock.journal_sequence >= kCounterLimit ||
        superblock.used_blocks > superblock.total_blocks ||
        superblock.initialized_groups > group_count(superblock.total_blocks) ||
        superblock.next_node <= vfs::kRootNode || superblock.next_node > kKeyOffsetMask) {
        reason = "impossible numbers";
        return false;
    }
    return true;
}

Result<void> read_superblocks(vfs::BlockDevice& device, SuperblockSet& set) {
    set.count = 0;
    set.damaged = 0;
    set.magic_seen = false;
    set.unusable = nullptr;
    __builtin_memset(set.copy_generations, 0, sizeof set.copy_generations);
    uint64_t unusable_generation = 0;
    uint64_t device_bytes = device.geometry().size_bytes;
    uint64_t device_blocks = device_bytes / kBlockBytes;
    if (device_blocks < kMinimumBlocks) {
        return {};
    }
    BlockBuffer buffer;
    if (buffer.data() == nullptr) {
        return Error::enomem;
    }
    uint32_t readable = 0;
    uint32_t empty = 0;
    SecondCopies ends(round_total_blocks(device_blocks));
    for (uint32_t i = 0; i < 4; ++i) {
        uint64_t block = superblock_block(ends.total_blocks(i % 2), i % 2, i / 2);
        if (!device.read(block * kBlockBytes, buffer.data(), kBlockBytes).ok()) {
            set.damaged++;
            continue;
        }
        readable++;
        Superblock superblock;
        __builtin_memcpy(&superblock, buffer.data(), sizeof(superblock));
        bool magic = superblock.magic == kSuperblockMagic;
        empty += is_empty(buffer.data()) ? 1 : 0;
        set.magic_seen = set.magic_seen || magic;
        const char* reason = nullptr;
        if (check_superblock(superblock, device_bytes, reason) &&
            superblock.generation % 2 == i % 2) {
            insert_sorted(set, superblock);
            set.copy_generations[i] = superblock.generation;
            if (i < 2) {
                ends.note_first_copy(i, superblock.total_blocks);
            }
        } else {
            set.damaged++;
            if (i < 2 && may_be_right_elsewhere(superblock, device_blocks)) {
                // Of another version, nothing else is known to be where it is in this one.
                const bool is_known = superblock.version == kFormatVersion;
                const uint64_t generation = is_known ? superblock.generation : UINT64_MAX;
                set.unusable = reason;
                unusable_generation =
                    generation > unusable_generation ? generation : unusable_generation;
            }
        }
    }
    if (readable == 0) {
        return Error::eio;
    }
    if (set.count > 0 && set.found[0].generation > unusable_generation) {
        set.unusable = nullptr;
    }
    if (set.count > 0 && set.found[0].generation == kFirstGeneration) {
        // mkfs writes one slot and clears the other.
        set.damaged -= empty < 2 ? empty : 2;
    }
    return {};
}

Result<void> write_superblock(vfs::BlockDevice& device, Superblock& superblock) {
    BlockBuffer buffer;
    if (buffer.data() == nullptr) {
        return Error::enomem;
    }
    return write_superblock(device, superblock, buffer.data(), superblock.total_blocks);
}

Result<void> write_superblock_copy(vfs::BlockDevice& device, Superblock& superblock, uint64_t block,
                                   void* page) {
    superblock.checksum = checksum_of(superblock);
    __builtin_memset(page, 0, kBlockBytes);
    __builtin_memcpy(page, &superblock, sizeof(superblock));
    // A device with small write units needs no more than the structure itself.
    size_t size_bytes =
        device.geometry().write_unit_bytes <= kSuperblockBytes ? kSuperblockBytes : kBlockBytes;
    return device.write(block * kBlockBytes, static_cast<const void*>(page), size_bytes);
}

Result<void> write_superblock(vfs::BlockDevice& device, Superblock& superblock, void* page,
                              uint64_t blocks_before) {
    const uint64_t generation = superblock.generation;
    const uint32_t copies = blocks_before == superblock.total_blocks ? 2 : 3;
    for (uint32_t copy = 0; copy < copies; ++copy) {
        const uint64_t block = copy < 2
                                   ? superblock_block(superblock.total_blocks, generation, copy)
                                   : superblock_block(blocks_before, generation, 1);
        TRY(write_superblock_copy(device, superblock, block, page));
    }
    return {};
}

}  // namespace tiffin::tiffinfs
