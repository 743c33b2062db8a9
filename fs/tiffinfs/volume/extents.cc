// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Changing the map of a file in the tree: cutting, replacing and joining extents.
#include "fs/tiffinfs/volume/extents.h"

#include "fs/base/allocate.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// The part of an extent that lies in [first, end).
struct Overlap {
    uint64_t first = 0;
    uint64_t end = 0;
};

Overlap overlap_of(const MappedExtent& extent, uint64_t first, uint64_t end) {
    return {extent.file_block > first ? extent.file_block : first,
            extent.end_block() < end ? extent.end_block() : end};
}

// Parses what prepare_extent_change() has checked already.
MappedExtent parse_checked(const KeyAndValue& found, const Allocator& allocator) {
    MappedExtent extent;
    bool valid = parse_extent(found.key, found.bytes(), allocator.total_blocks(), extent);
    TIFFIN_ASSERT(valid);
    return extent;
}

// Puts blocks [first, end) of `extent`, which stay mapped as they are, under a key of their own.
void put_piece(ApplyContext& context, uint64_t node, const MappedExtent& extent, uint64_t first,
               uint64_t end) {
    ExtentValue value{extent.physical_of(first), extent.birth_generation,
                      static_cast<uint32_t>(end - first), extent.flags};
    KeyAndValue& piece = context.piece;
    __builtin_memcpy(piece.value, &value, sizeof(value));
    size_t size_bytes = sizeof(value);
    if (extent.has_checksums()) {
        size_t checksum_bytes = (end - first) * sizeof(uint32_t);
        __builtin_memcpy(piece.value + sizeof(value),
                         extent.checksums + (first - extent.file_block) * sizeof(uint32_t),
                         checksum_bytes);
        size_bytes += checksum_bytes;
    }
    context.tree.put(make_key(node, Kind::extent, first), ByteSpan(piece.value, size_bytes),
                     context.reservation);
}

// What is being mapped into a range; nullptr in its place means: nothing, the range is unmapped.
struct Replacement {
    const ExtentValue* value;
    uint64_t first;
    uint64_t unmarked_end;  // blocks of the replacement from here on are marked used already

    uint64_t physical_of(uint64_t block) const { return value->physical_block + (block - first); }
    void mark_used(Allocator& allocator, uint64_t from, uint64_t end) const {
        if (from < end) {
            allocator.mark_used({physical_of(from), end - from});
        }
    }
};

// Takes [first, end) out of the map, from the end to the beginning, and adds what was mapped there to
// context.freed, except blocks that `replacement` maps at the same place. An extent that begins
// exactly at `kept_key` is left in the tree, for the caller to overwrite; returns true when there is
// one.
bool clear_range(ApplyContext& context, uint64_t node, uint64_t first, uint64_t end,
                 Replacement* replacement) {
    const Key lowest = make_key(node, Kind::extent, 0);
    bool key_left = false;
    uint64_t below = end;
    while (below > first &&
           context.tree.find_last_prepared(make_key(node, Kind::extent, below - 1), lowest,
                                           context.reservation, context.found)) {
        MappedExtent extent = parse_checked(context.found, context.allocator);
        if (extent.end_block() <= first) {
            break;
        }
        Overlap overlap = overlap_of(extent, first, end);
        uint64_t physical = extent.physical_of(overlap.first);
        if (extent.lost()) {
            // Has no blocks to free.
        } else if (replacement != nullptr && replacement->physical_of(overlap.first) == physical) {
            replacement->mark_used(context.allocator, overlap.end, replacement->unmarked_end);
            replacement->unmarked_end = overlap.first;
        } else {
            context.freed.add({physical, overlap.end - overlap.first});
        }
        if (extent.end_block() > end) {
            put_piece(context, node, extent, end, extent.end_block());
        }
        if (extent.file_block < first) {
            put_piece(context, node, extent, extent.file_block, first);
        } else if (extent.file_block == first && replacement != nullptr) {
            key_left = true;
        } else {
            context.tree.erase(context.found.key, context.reservation);
        }
        below = extent.file_block;
    }
    return key_left;
}

// An extent that is cut at `first` leaves a piece up to `end`: no other may begin there.
Result<void> check_nothing_mapped(Tree& tree, uint64_t node, uint64_t first, uint64_t end,
                                  KeyAndValue& scratch) {
    Result<void> found = tree.find_first(make_key(node, Kind::extent, first),
                                         make_key(node, Kind::extent, end), scratch);
    if (found.ok()) {
        return Error::euclean;
    }
    if (found.error() != Error::enoent) {
        return found.error();
    }
    return {};
}

// Appends the new extent to the one right before it, if the two are one piece of the device; returns
// false when they are not.
bool join_with_previous(ApplyContext& context, Key key, const ExtentValue& value,
                        ByteSpan checksums) {
    uint64_t first = key.offset();
    if (first == 0 || !context.tree.find_last_prepared(make_key(key.node, Kind::extent, first - 1),
                                                       make_key(key.node, Kind::extent, 0),
                                                       context.reservation, context.found)) {
        return false;
    }
    MappedExtent previous = parse_checked(context.found, context.allocator);
    if (!continues_extent(previous, first, value)) {
        return false;
    }
    ExtentValue joined = value;
    joined.physical_block = previous.physical_block;
    joined.block_count += previous.block_count;
    KeyAndValue& found = context.found;
    __builtin_memcpy(found.value, &joined, sizeof(joined));
    if (!checksums.empty()) {
        __builtin_memcpy(found.value + found.value_bytes, checksums.data(), checksums.size());
    }
    context.tree.put(found.key, ByteSpan(found.value, found.value_bytes + checksums.size()),
                     context.reservation);
    return true;
}

}  // namespace

FreedRanges::~FreedRanges() {
    if (ranges_ != inline_ranges_) {
        release_array(ranges_, capacity_);
    }
}

Result<void> FreedRanges::reserve(uint32_t count) {
    uint32_t needed = reserved_ + count;
    if (needed > capacity_) {
        uint32_t capacity = capacity_ * 2 > needed ? capacity_ * 2 : needed;
        BlockRange* grown = allocate_array<BlockRange>(capacity);
        if (grown == nullptr) {
            return Error::enomem;
        }
        __builtin_memcpy(grown, ranges_, count_ * sizeof(BlockRange));
        if (ranges_ != inline_ranges_) {
            release_array(ranges_, capacity_);
        }
        ranges_ = grown;
        capacity_ = capacity;
    }
    reserved_ = needed;
    return {};
}

void FreedRanges::add(BlockRange range) {
    if (count_ > 0) {
        // Maps are cleared from the end to the beginning, so both sides are worth a look.
        BlockRange& last = ranges_[count_ - 1];
        if (range.first_block + range.block_count == last.first_block) {
            last.first_block = range.first_block;
            last.block_count += range.block_count;
            return;
        }
        if (last.first_block + last.block_count == range.first_block) {
            last.block_count += range.block_count;
            return;
        }
    }
    TIFFIN_ASSERT(count_ < capacity_);
    ranges_[count_++] = range;
}

uint32_t MappedExtent::checksum_of(uint64_t block) const {
    uint32_t checksum;
    __builtin_memcpy(&checksum, checksums + (block - file_block) * sizeof(uint32_t),
                     sizeof(checksum));
    return checksum;
}

bool continues_extent(const MappedExtent& previous, uint64_t file_block, const ExtentValue& next) {
    return previous.end_block() == file_block && previous.flags == next.flags &&
           previous.birth_generation == next.birth_generation &&
           previous.physical_block + previous.block_count == next.physical_block &&
           previous.block_count + next.block_count <= maximum_extent_blocks(next.flags);
}

bool check_extent(ByteSpan value, uint64_t total_blocks) {
    ExtentValue extent;
    if (value.size() < sizeof(extent)) {
        return false;
    }
    __builtin_memcpy(&extent, value.data(), sizeof(extent));
    if ((extent.flags != 0 && extent.flags != extent_flag::unwritten &&
         extent.flags != extent_flag::lost) ||
        extent.block_count == 0 || extent.block_count > maximum_extent_blocks(extent.flags)) {
        return false;
    }
    if (extent.flags == extent_flag::lost) {
        return extent.physical_block == 0 && value.size() == sizeof(extent);
    }
    bool unwritten = (extent.flags & extent_flag::unwritten) != 0;
    size_t checksum_bytes = unwritten ? 0 : extent.block_count * sizeof(uint32_t);
    if (value.size() != sizeof(extent) + checksum_bytes) {
        return false;
    }
    // The last two blocks of a volume are superblocks. Checked in this order nothing can overflow.
    if (total_blocks < kMinimumBlocks || extent.physical_block >= total_blocks - 2 ||
        extent.block_count > total_blocks - 2 - extent.physical_block) {
        return false;
    }
    uint64_t group = group_of(extent.physical_block);
    return extent.physical_block > bitmap_block(group, 1) &&
           group_of(extent.physical_block + extent.block_count - 1) == group;
}

bool check_new_extent(ByteSpan value, uint64_t total_blocks) {
    ExtentValue extent;
    if (!check_extent(value, total_blocks)) {
        return false;
    }
    __builtin_memcpy(&extent, value.data(), sizeof(extent));
    return (extent.flags & extent_flag::lost) == 0;
}

bool parse_extent(Key key, ByteSpan value, uint64_t total_blocks, MappedExtent& extent) {
    if (key.kind() != Kind::extent || !check_extent(value, total_blocks)) {
        return false;
    }
    ExtentValue stored;
    __builtin_memcpy(&stored, value.data(), sizeof(stored));
    if (key.offset() >= kMaximumFileBlocks ||
        stored.block_count > kMaximumFileBlocks - key.offset()) {
        return false;
    }
    extent.file_block = key.offset();
    extent.physical_block = stored.physical_block;
    extent.birth_generation = stored.birth_generation;
    extent.block_count = stored.block_count;
    extent.flags = stored.flags;
    extent.checksums = value.data() + sizeof(stored);
    return true;
}

Result<void> prepare_extent_change(Tree& tree, Allocator& allocator, uint64_t node,
                                   uint64_t first_block, uint64_t block_count, NodePins& pins,
                                   FreedRanges& freed, KeyAndValue& scratch) {
    if (block_count == 0 || first_block >= kMaximumFileBlocks ||
        block_count > kMaximumFileBlocks - first_block) {
        return Error::euclean;
    }
    uint64_t end = first_block + block_count;
    TRY(tree.prepare(make_key(node, Kind::extent, first_block), make_key(node, Kind::extent, end),
                     pins));
    const Key lowest = make_key(node, Kind::extent, 0);
    uint32_t count = 0;
    uint64_t below = end;
    // Goes one extent further than the range: that one may be joined with what comes.
    while (true) {
        Result<void> found =
            tree.find_last(make_key(node, Kind::extent, below - 1), lowest, scratch, &pins);
        if (!found.ok()) {
            if (found.error() == Error::enoent) {
                break;
            }
            return found.error();
        }
        MappedExtent extent;
        if (!parse_extent(scratch.key, scratch.bytes(), allocator.total_blocks(), extent) ||
            (below < end && extent.end_block() > below)) {
            return Error::euclean;
        }
        if (extent.end_block() <= first_block) {
            break;
        }
        Overlap overlap = overlap_of(extent, first_block, end);
        if (!extent.lost()) {
            TRY(allocator.load({extent.physical_of(overlap.first), overlap.end - overlap.first}));
            ++count;
        }
        below = extent.file_block;
        if (extent.end_block() > end) {
            TRY(check_nothing_mapped(tree, node, end, extent.end_block(), scratch));
        }
        if (below == 0 || below < first_block) {
            break;
        }
    }
    return freed.reserve(count);
}

void apply_write_extent(ApplyContext& context, Key key, ByteSpan value) {
    ExtentValue extent;
    __builtin_memcpy(&extent, value.data(), sizeof(extent));
    uint64_t first = key.offset();
    uint64_t end = first + extent.block_count;
    Replacement replacement{&extent, first, end};
    bool key_left = clear_range(context, key.node, first, end, &replacement);
    replacement.mark_used(context.allocator, first, replacement.unmarked_end);
    if (join_with_previous(context, key, extent, value.subspan(sizeof(extent)))) {
        if (key_left) {
            context.tree.erase(key, context.reservation);
        }
        return;
    }
    context.tree.put(key, value, context.reservation);
}

void apply_unmap(ApplyContext& context, Key key, uint64_t block_count) {
    clear_range(context, key.node, key.offset(), key.offset() + block_count, nullptr);
}

}  // namespace tiffin::tiffinfs
