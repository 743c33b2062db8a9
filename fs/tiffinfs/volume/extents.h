// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Extents in the tree: where the blocks of a file are. These functions change the keys of one file's
// map and tell the allocator; commit and replay call the same ones, so that both derive the same
// splits and merges from a record.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/space/allocator.h"
#include "fs/tiffinfs/tree/tree.h"
#include "fs/vfs/result.h"

namespace tiffin::tiffinfs {

// Physical ranges that a transaction freed. Their number is known before the first change, so
// adding cannot fail.
class FreedRanges {
  public:
    FreedRanges() = default;
    ~FreedRanges();
    FreedRanges(const FreedRanges&) = delete;
    FreedRanges& operator=(const FreedRanges&) = delete;

    // Promises room for `count` more than was promised before. Errors: enomem.
    Result<void> reserve(uint32_t count);
    // Joins with the last range when they touch.
    void add(BlockRange range);
    uint32_t size() const { return count_; }
    const BlockRange& operator[](uint32_t index) const { return ranges_[index]; }
    void clear() {
        count_ = 0;
        reserved_ = 0;
    }

  private:
    static constexpr uint32_t kInlineRanges = 8;
    BlockRange inline_ranges_[kInlineRanges];
    BlockRange* ranges_ = inline_ranges_;
    uint32_t count_ = 0;
    uint32_t reserved_ = 0;
    uint32_t capacity_ = kInlineRanges;
};

// An extent as it stands in the tree.
struct MappedExtent {
    uint64_t file_block = 0;
    uint64_t physical_block = 0;
    uint64_t birth_generation = 0;
    uint32_t block_count = 0;
    uint32_t flags = 0;  // extent_flag
    // With has_checksums(): not aligned; inside the value that was parsed.
    const unsigned char* checksums = nullptr;

    bool unwritten() const { return (flags & extent_flag::unwritten) != 0; }
    bool lost() const { return (flags & extent_flag::lost) != 0; }
    bool has_checksums() const {
        return (flags & (extent_flag::unwritten | extent_flag::lost)) == 0;
    }
    uint64_t end_block() const { return file_block + block_count; }
    // The block that holds `block` of the file, which lies in the extent; 0 in a lost one.
    uint64_t physical_of(uint64_t block) const {
        return lost() ? 0 : physical_block + (block - file_block);
    }
    // Precondition: has_checksums().
    uint32_t checksum_of(uint64_t block) const;
    uint32_t value_bytes() const {
        return static_cast<uint32_t>(sizeof(ExtentValue) +
                                     (has_checksums() ? sizeof(uint32_t) * block_count : 0));
    }
};

// What applying a record works on; scratch space is here because it does not fit a kernel stack.
struct ApplyContext {
    Tree& tree;
    Allocator& allocator;
    NodeReservation& reservation;
    FreedRanges& freed;
    KeyAndValue found;  // scratch
    KeyAndValue piece;  // scratch
};

// Before the first change: loads and pins the leaves that hold the map of [first_block, first_block +
// block_count) of `node` and its neighbours, loads the bitmaps of the extents there, and reserves room
// in `freed`. `scratch` is overwritten. Errors: eio, euclean (also: an extent that cannot be), enomem.
Result<void> prepare_extent_change(Tree& tree, Allocator& allocator, uint64_t node,
                                   uint64_t first_block, uint64_t block_count, NodePins& pins,
                                   FreedRanges& freed, KeyAndValue& scratch);

// RecordType::write_extent: maps `value` (ExtentValue and checksums) at `key`. What was mapped there is
// unmapped first, except where the new blocks are the very blocks mapped there (an unwritten extent
// being written). Marks new blocks used; adds freed ones to context.freed. Joins with the extent before
// it when both are contiguous, of one birth generation and not too long together.
void apply_write_extent(ApplyContext& context, Key key, ByteSpan value);
// RecordType::unmap: frees what is mapped in `block_count` blocks from `key` on.
void apply_unmap(ApplyContext& context, Key key, uint64_t block_count);

// Whether `next`, mapped right behind `previous` in the file, becomes one extent with it: then they
// are one piece of the device, of one birth generation and flags, and not too long together. Part of
// the format: each replay of a journal must join alike, for later records name keys.
bool continues_extent(const MappedExtent& previous, uint64_t file_block, const ExtentValue& next);

// True when `value` is a well-formed extent value for a volume of `total_blocks`: its length fits its
// flags, and its blocks lie in one group and are none of the superblocks and bitmaps.
bool check_extent(ByteSpan value, uint64_t total_blocks);
// The same of an extent that can be mapped anew (RecordType::write_extent): a lost one cannot.
bool check_new_extent(ByteSpan value, uint64_t total_blocks);

// The longest extent with these flags (extent_flag).
constexpr uint32_t maximum_extent_blocks(uint32_t flags) {
    return (flags & extent_flag::lost) != 0        ? kLostExtentMaximumBlocks
           : (flags & extent_flag::unwritten) != 0 ? kUnwrittenExtentMaximumBlocks
                                                   : kWrittenExtentMaximumBlocks;
}

// File blocks are numbered below this; so is the end of every extent.
inline constexpr uint64_t kMaximumFileBlocks = kMaximumFileBytes / kBlockBytes;

// Takes apart what the tree holds at `key`, a key of Kind::extent. False when no such extent can be on
// a volume of `total_blocks`.
bool parse_extent(Key key, ByteSpan value, uint64_t total_blocks, MappedExtent& extent);

}  // namespace tiffin::tiffinfs
