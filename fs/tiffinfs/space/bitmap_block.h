// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Free space on the device: which blocks are fixed structures, and the two bitmap slots of a group.
// The allocator, mkfs and the checker share this.
//
// Which slot counts: both slots are written when a group is first used, later ones in turn, and the
// header has a checksum of its own within one write unit. So after a torn write the header still
// tells which generation the slot was meant for, and a damaged slot is never mistaken for an older
// one. bitmap_timelines.h is about slots that a power failure cut off from the volume's history.
#pragma once

#include <cstdint>

#include "fs/base/relaxed_number.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/bitmap_timelines.h"
#include "fs/vfs/block_device.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

// Both slots of a group, as they lie side by side on the device.
struct alignas(kBlockBytes) TwoBitmaps {
    BitmapBlock blocks[2];
};

// At the end of the volume, in its last group.
inline constexpr uint32_t kSuperblocksAtEnd = 2;
inline constexpr uint32_t kBitmapWords = kBlocksPerGroup / 64;

// How many bits of `word` are set. Without the compiler's own function: where the processor's
// instruction may not be used it would call one of the compiler's library.
constexpr uint32_t count_bits(uint64_t word) {
    word -= (word >> 1) & 0x5555555555555555;
    word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return static_cast<uint32_t>((word * 0x0101010101010101) >> 56);
}

// The part of a superblock that says where things are, and how bitmaps are told to be the volume's.
struct Layout {
    RelaxedNumber total_blocks;  // grows with the volume; nothing else changes
    uint64_t journal_first_block = 0;
    uint64_t journal_block_count = 0;
    uint64_t volume_nonce = 0;
    BitmapTimelines timelines;

    // Errors: euclean when the structures cannot be where the superblock puts them: a journal that
    // does not lie in group 0 behind its bitmaps, or a last group too small for its own structures
    // (mkfs rounds the volume down by round_total_blocks()).
    static Result<Layout> from(const Superblock& superblock);

    uint64_t groups() const { return group_count(total_blocks); }
    // Blocks of `group` that lie inside the volume.
    uint32_t blocks_in_group(uint64_t group) const;
    bool contains(uint64_t first_block, uint64_t block_count) const {
        return first_block <= total_blocks && block_count <= total_blocks - first_block;
    }
    // Whether the range, which lies inside the volume, touches superblocks, bitmaps or the journal.
    bool touches_fixed_blocks(uint64_t first_block, uint64_t block_count) const;
    // How many fixed blocks the groups [first_group, end_group) have.
    uint64_t fixed_blocks(uint64_t first_group, uint64_t end_group) const;
    // Sets the bits of the fixed blocks of `group` and those beyond the end of the volume in
    // kBitmapWords words; the others stay.
    void set_fixed_bits(uint64_t group, uint64_t* words) const;
};

// The greatest size of a volume that fits `blocks` blocks and whose last group has room for its own
// structures.
constexpr uint64_t round_total_blocks(uint64_t blocks) {
    const uint64_t tail = blocks % kBlocksPerGroup;
    return blocks > kBlocksPerGroup && tail < 8 ? blocks - tail : blocks;
}

// Makes the block that goes to the device, stamped with the layout's current timeline: `words` has
// a bit for every used block, fixed ones and those beyond the end of the volume included.
// BitmapBlock::used_blocks leaves the latter out.
void make_bitmap_block(const Layout& layout, uint64_t group, uint64_t generation,
                       const uint64_t* words, BitmapBlock& block);
// The same in two steps: everything but bits and used_blocks, and, when the caller has filled those
// in, both checksums.
void start_bitmap_block(const Layout& layout, uint64_t group, uint64_t generation,
                        BitmapBlock& block);
void finish_bitmap_block(BitmapBlock& block);

// What is in the two slots of a group.
struct BitmapSlots {
    // Those that no superblock will ever need have kUnneeded.
    static constexpr uint64_t kUnneeded = ~uint64_t{0};
    uint64_t generation[2] = {};
    uint32_t newest = 0;  // the slot that counts
    // After euclean: what was wrong, and with how many free blocks the group was counted. A header tells, which has a
    // checksum of its own; 0 when that is damaged, too.
    const char* damage = nullptr;
    uint32_t free_blocks = 0;
    // It is not known which header counts: free_blocks is the most that there can be.
    bool may_have_less_free = false;
    bool is_readable[2] = {true, true};
};

// Reads both slots of `group` into `blocks` (allocate_pages) and finds the newest whose generation
// is at most `generation`. Errors: eio; euclean when it cannot be told, or is damaged.
Result<void> read_bitmap_slots(vfs::BlockDevice& device, const Layout& layout, uint64_t group,
                               uint64_t generation, BitmapBlock (&blocks)[2], BitmapSlots& slots);

// After eio, outside of replay: a slot that cannot be read while the rest of the device can is damage of that group
// (euclean), as a wrong checksum is. Errors: those of read_bitmap_slots(); eio when the device cannot be read at all.
Result<void> read_bitmap_slots_apart(vfs::BlockDevice& device, const Layout& layout, uint64_t group,
                                     uint64_t generation, BitmapBlock (&blocks)[2],
                                     BitmapSlots& slots);

// Looks through all groups below `end_group` for slots that are newer than `generation` or do not
// belong to the timelines of `layout`, and makes them copies of the slot that counts (or, in a
// damaged group, invalid, as slots that cannot be read). So the list of timelines can start over. Flushes at the end. Errors:
// eio, enomem.
Result<void> replace_lost_bitmaps(vfs::BlockDevice& device, const Layout& layout,
                                  uint64_t end_group, uint64_t generation);

}  // namespace tiffin::tiffinfs
