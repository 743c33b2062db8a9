// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/space/bitmap_block.h"

#include "fs/vfs/numbers.h"

namespace tiffin::tiffinfs {
namespace {

// Group 0 has both superblocks in front of its bitmap slots.
constexpr uint64_t kFixedBlocksOfGroup0 = 4;
constexpr uint64_t kFixedBlocksOfGroup = 2;

// The part of a BitmapBlock with a checksum of its own.
constexpr size_t kHeaderBytes = offsetof(BitmapBlock, bits);
static_assert(kHeaderBytes == 64, "the header must lie within one write unit of any device");

// So that the header can be trusted when the rest is damaged.
uint32_t header_checksum(const BitmapBlock& block) {
    unsigned char header[kHeaderBytes];
    __builtin_memcpy(header, &block, kHeaderBytes);
    const uint32_t zero = 0;
    __builtin_memcpy(header + offsetof(BitmapBlock, checksum), &zero, sizeof zero);
    __builtin_memcpy(header + offsetof(BitmapBlock, header_checksum), &zero, sizeof zero);
    return host::crc32c(0, header, kHeaderBytes);
}

uint32_t block_checksum(const BitmapBlock& block) {
    constexpr size_t kBehind = offsetof(BitmapBlock, checksum) + sizeof block.checksum;
    const uint32_t zero = 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(&block);
    uint32_t checksum = host::crc32c(0, bytes, offsetof(BitmapBlock, checksum));
    checksum = host::crc32c(checksum, &zero, sizeof zero);
    return host::crc32c(checksum, bytes + kBehind, sizeof block - kBehind);
}

uint64_t load_word(const BitmapBlock& block, uint32_t index) {
    uint64_t word;
    __builtin_memcpy(&word, block.bits + index * sizeof word, sizeof word);
    return word;
}

bool header_is_valid(const Layout& layout, uint64_t group, const BitmapBlock& block) {
    return block.magic == kBitmapMagic && block.volume_nonce == layout.volume_nonce &&
           block.group == group && block.header_checksum == header_checksum(block);
}

// Calls visit(first, count) for the ranges of bits that are always set: fixed blocks, and what lies
// beyond the end of the volume.
template <typename Visit>
void for_each_fixed_range(const Layout& layout, uint64_t group, Visit visit) {
    if (group == 0) {
        visit(0U, static_cast<uint32_t>(kFixedBlocksOfGroup0));
        visit(static_cast<uint32_t>(layout.journal_first_block),
              static_cast<uint32_t>(layout.journal_block_count));
    } else {
        visit(0U, static_cast<uint32_t>(kFixedBlocksOfGroup));
    }
    if (group + 1 == layout.groups()) {
        const uint32_t first = layout.blocks_in_group(group) - kSuperblocksAtEnd;
        visit(first, kBlocksPerGroup - first);
    }
}

// What is wrong with a block whose header is valid; nullptr when nothing is.
const char* find_damage(const Layout& layout, uint64_t group, const BitmapBlock& block) {
    if (block.checksum != block_checksum(block)) {
        return "wrong checksum";
    }
    const uint32_t beyond_end = kBlocksPerGroup - layout.blocks_in_group(group);
    uint32_t set = 0;
    for (uint32_t i = 0; i < kBitmapWords; ++i) {
        set += count_bits(load_word(block, i));
    }
    if (set < beyond_end || set - beyond_end != block.used_blocks) {
        return "wrong count of used blocks";
    }
    bool all_set = true;
    for_each_fixed_range(layout, group, [&](uint32_t first, uint32_t count) {
        for (uint32_t bit = first; bit < first + count; ++bit) {
            all_set = all_set && (block.bits[bit / 8] >> bit % 8 & 1) != 0;
        }
    });
    if (!all_set) {
        return "fixed blocks are not marked used";
    }
    return nullptr;
}

// Whether the block is not part of the history that led to `generation`: a checkpoint that wrote it
// never got its superblock, or that superblock was given up.
bool is_lost(const Layout& layout, const BitmapBlock& block, uint64_t generation) {
    return block.generation > generation ||
           !layout.timelines.contains(block.generation, block.timeline_stamp);
}

constexpr bool overlaps(uint64_t first, uint64_t count, uint64_t other_first,
                        uint64_t other_count) {
    return first < other_first + other_count && other_first < first + count;
}

}  // namespace

Result<Layout> Layout::from(const Superblock& superblock) {
    Layout layout;
    layout.total_blocks = superblock.total_blocks;
    layout.journal_first_block = superblock.journal_first_block;
    layout.journal_block_count = superblock.journal_block_count;
    layout.volume_nonce = superblock.volume_nonce;
    layout.timelines = BitmapTimelines::from(superblock);
    const uint64_t total = layout.total_blocks;
    if (total < kMinimumBlocks || total > kMaximumBlocks || total != round_total_blocks(total)) {
        return Error::euclean;
    }
    const uint64_t behind = layout.groups() == 1 ? total - kSuperblocksAtEnd : kBlocksPerGroup;
    const uint64_t first = layout.journal_first_block;
    if (first < kFixedBlocksOfGroup0 || first > behind ||
        layout.journal_block_count > behind - first) {
        return Error::euclean;
    }
    return layout;
}

uint32_t Layout::blocks_in_group(uint64_t group) const {
    const uint64_t left = total_blocks - group * kBlocksPerGroup;
    return static_cast<uint32_t>(left < kBlocksPerGroup ? left : kBlocksPerGroup);
}

bool Layout::touches_fixed_blocks(uint64_t first_block, uint64_t block_count) const {
    if (block_count == 0) {
        return false;
    }
    if (first_block < kFixedBlocksOfGroup0 ||
        first_block + block_count > total_blocks - kSuperblocksAtEnd ||
        overlaps(first_block, block_count, journal_first_block, journal_block_count)) {
        return true;
    }
    // A group's bitmap slots are its first blocks: the range starts in them or reaches a later
    // group.
    return first_block % kBlocksPerGroup < kFixedBlocksOfGroup ||
           group_of(first_block) != group_of(first_block + block_count - 1);
}

uint64_t Layout::fixed_blocks(uint64_t first_group, uint64_t end_group) const {
    if (first_group >= end_group) {
        return 0;
    }
    uint64_t count = (end_group - first_group) * kFixedBlocksOfGroup;
    if (first_group == 0) {
        count += kFixedBlocksOfGroup0 - kFixedBlocksOfGroup + journal_block_count;
    }
    return end_group == groups() ? count + kSuperblocksAtEnd : count;
}

void Layout::set_fixed_bits(uint64_t group, uint64_t* words) const {
    for_each_fixed_range(*this, group, [&](uint32_t first, uint32_t count) {
        for (uint32_t bit = first; bit < first + count; ++bit) {
            words[bit / 64] |= uint64_t{1} << bit % 64;
        }
    });
}

void start_bitmap_block(const Layout& layout, uint64_t group, uint64_t generation,
                        BitmapBlock& block) {
    __builtin_memset(&block, 0, sizeof block);
    block.magic = kBitmapMagic;
    block.volume_nonce = layout.volume_nonce;
    block.group = group;
    block.generation = generation;
    block.timeline_stamp = layout.timelines.current_stamp();
}

void make_bitmap_block(const Layout& layout, uint64_t group, uint64_t generation,
                       const uint64_t* words, BitmapBlock& block) {
    start_bitmap_block(layout, group, generation, block);
    uint32_t set = 0;
    for (uint32_t i = 0; i < kBitmapWords; ++i) {
        set += count_bits(words[i]);
    }
    block.used_blocks = set - (kBlocksPerGroup - layout.blocks_in_group(group));
    __builtin_memcpy(block.bits, words, kBitmapBytes);
    finish_bitmap_block(block);
}

void finish_bitmap_block(BitmapBlock& block) {
    block.header_checksum = header_checksum(block);
    block.checksum = block_checksum(block);
}

Result<void> read_bitmap_slots(vfs::BlockDevice& device, const Layout& layout, uint64_t group,
                               uint64_t generation, BitmapBlock (&blocks)[2], BitmapSlots& slots) {
    // The slots are neighbours. When one cannot be read it might be the newer one: eio for both.
    TRY(device.read(bitmap_block(group, 0) * kBlockBytes, &blocks, sizeof blocks));
    bool found = false;
    for (uint32_t slot = 0; slot < 2; ++slot) {
        const BitmapBlock& block = blocks[slot];
        if (!header_is_valid(layout, group, block)) {
            // It may have been the newest, so the other one cannot be trusted to be.
            slots.damage = "damaged header";
            return Error::euclean;
        }
        if (is_lost(layout, block, generation)) {
            slots.generation[slot] = BitmapSlots::kUnneeded;
            continue;
        }
        slots.generation[slot] = block.generation;
        const uint64_t newest = slots.generation[slots.newest];
        // Two slots of one generation are copies of each other (the first time a group is written).
        if (!found || block.generation > newest ||
            (block.generation == newest &&
             find_damage(layout, group, blocks[slots.newest]) != nullptr)) {
            slots.newest = slot;
            found = true;
        }
    }
    slots.damage = found ? find_damage(layout, group, blocks[slots.newest])
                         : "no slot of this generation or an older one";
    if (slots.damage != nullptr) {
        const uint32_t blocks_in_group = layout.blocks_in_group(group);
        const uint32_t used_blocks = found ? blocks[slots.newest].used_blocks : blocks_in_group;
        slots.free_blocks = blocks_in_group - smaller(blocks_in_group, used_blocks);
        return Error::euclean;
    }
    return {};
}

Result<void> read_bitmap_slots_apart(vfs::BlockDevice& device, const Layout& layout, uint64_t group,
                                     uint64_t generation, BitmapBlock (&blocks)[2],
                                     BitmapSlots& slots) {
    bool(&is_readable)[2] = slots.is_readable;
    for (uint32_t slot = 0; slot < 2; ++slot) {
        is_readable[slot] =
            device.read(bitmap_block(group, slot) * kBlockBytes, &blocks[slot], sizeof(BitmapBlock))
                .ok();
    }
    if (is_readable[0] && is_readable[1]) {
        return read_bitmap_slots(device, layout, group, generation, blocks, slots);
    }
    const uint32_t other = is_readable[0] ? 0 : 1;
    slots.damage = "it cannot be read";
    // The one that can be read may be the older one.
    slots.free_blocks = layout.blocks_in_group(group);
    slots.may_have_less_free = true;
    bool is_alive = is_readable[other];
    for (uint32_t slot = 0; slot < 2 && !is_alive; ++slot) {
        const uint64_t superblock = superblock_block(layout.total_blocks, slot, 0);
        is_alive = device.read(superblock * kBlockBytes, &blocks[other], sizeof(BitmapBlock)).ok();
    }
    return is_alive ? Error::euclean : Error::eio;
}

Result<void> replace_lost_bitmaps(vfs::BlockDevice& device, const Layout& layout,
                                  uint64_t end_group, uint64_t generation) {
    void* pages = host::allocate_pages(2 * sizeof(BitmapBlock));
    if (pages == nullptr) {
        return Error::enomem;
    }
    auto& blocks = *static_cast<BitmapBlock(*)[2]>(pages);
    Result<void> result;
    for (uint64_t group = 0; group < end_group && result.ok(); ++group) {
        BitmapSlots slots;
        Result<void> read = read_bitmap_slots(device, layout, group, generation, blocks, slots);
        if (!read.ok() && read.error() == Error::eio) {
            read = read_bitmap_slots_apart(device, layout, group, generation, blocks, slots);
        }
        if (!read.ok() && read.error() != Error::euclean) {
            result = read.error();
        }
        for (uint32_t slot = 0; slot < 2 && result.ok(); ++slot) {
            // One that cannot be read may be a lost one, which would count when it can be read again.
            if (slots.is_readable[slot] && (!header_is_valid(layout, group, blocks[slot]) ||
                                            !is_lost(layout, blocks[slot], generation))) {
                continue;
            }
            BitmapBlock& source = read.ok() ? blocks[slots.newest] : blocks[slot];
            if (!read.ok()) {
                __builtin_memset(&source, 0, sizeof source);
            }
            result = device.write(bitmap_block(group, slot) * kBlockBytes, &source, sizeof source);
        }
    }
    host::release_pages(pages, 2 * sizeof(BitmapBlock));
    if (!result.ok()) {
        return result.error();
    }
    return device.geometry().volatile_cache ? device.flush() : Result<void>();
}

}  // namespace tiffin::tiffinfs
