// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/extent_edit.h"

#include <algorithm>
#include <cstring>

#include "fs/tiffinfs/format.h"

namespace tiffin::check {

using tiffinfs::ExtentValue;
using tiffinfs::Kind;
using tiffinfs::make_key;
using tiffinfs::MappedExtent;

std::vector<unsigned char> slice_extent(const MappedExtent& extent, uint64_t first_block,
                                        uint64_t end_block) {
    TIFFIN_ASSERT(first_block >= extent.file_block && first_block < end_block &&
                  end_block <= extent.file_block + extent.block_count);
    const uint64_t skipped = first_block - extent.file_block;
    const auto count = static_cast<uint32_t>(end_block - first_block);
    const ExtentValue value{extent.physical_of(first_block), extent.birth_generation, count,
                            extent.flags};
    std::vector<unsigned char> bytes(sizeof value +
                                     (extent.has_checksums() ? count * sizeof(uint32_t) : 0));
    std::memcpy(bytes.data(), &value, sizeof value);
    if (extent.has_checksums()) {
        std::memcpy(bytes.data() + sizeof value, extent.checksums + skipped * sizeof(uint32_t),
                    count * sizeof(uint32_t));
    }
    return bytes;
}

namespace {

// Where the extent that ends at or behind `block` begins at the earliest: none is longer than this.
tiffinfs::Key earliest_neighbour(uint64_t node, uint64_t block) {
    constexpr uint64_t kLongest = tiffinfs::kLostExtentMaximumBlocks;
    return make_key(node, Kind::extent, block > kLongest ? block - kLongest : 0);
}

// Leaves of an extent what lies outside of [first_block, end_block).
Result<void> cut_out(KeySpace& keys, uint64_t total_blocks, const KeyValue& found,
                     uint64_t first_block, uint64_t end_block) {
    MappedExtent extent;
    if (!tiffinfs::parse_extent(found.key, found.bytes(), total_blocks, extent) ||
        extent.end_block() <= first_block) {
        return {};
    }
    if (extent.file_block < first_block) {
        const auto piece = slice_extent(extent, extent.file_block, first_block);
        keys.put(found.key, ByteSpan(piece.data(), piece.size()));
    } else {
        keys.erase(found.key);
    }
    if (extent.end_block() > end_block) {
        return fill_gaps(keys, total_blocks, found.key.node, extent, end_block);
    }
    return {};
}

}  // namespace

Result<void> unmap_range(KeySpace& keys, uint64_t total_blocks, uint64_t node, uint64_t first_block,
                         uint64_t end_block) {
    KeyValue found;
    // Of the extents that begin before the range only the last one can reach into it.
    if (first_block > 0 && TRY(keys.find_last(make_key(node, Kind::extent, first_block - 1),
                                              earliest_neighbour(node, first_block), found))) {
        TRY(cut_out(keys, total_blocks, found, first_block, end_block));
    }
    uint64_t cursor = first_block;
    while (TRY(keys.find_first(make_key(node, Kind::extent, cursor),
                               make_key(node, Kind::extent, end_block), found))) {
        cursor = found.key.offset() + 1;
        TRY(cut_out(keys, total_blocks, found, first_block, end_block));
    }
    return {};
}

Result<void> fill_gaps(KeySpace& keys, uint64_t total_blocks, uint64_t node,
                       const MappedExtent& extent, uint64_t first_block) {
    KeyValue found;
    MappedExtent other;
    if (first_block > 0 &&
        TRY(keys.find_last(make_key(node, Kind::extent, first_block - 1),
                           earliest_neighbour(node, first_block), found)) &&
        tiffinfs::parse_extent(found.key, found.bytes(), total_blocks, other)) {
        first_block = std::max(first_block, other.end_block());
    }
    const tiffinfs::Key end = make_key(node, Kind::extent, extent.end_block());
    while (first_block < extent.end_block()) {
        uint64_t gap_end = extent.end_block();
        uint64_t next = gap_end;
        if (TRY(keys.find_first(make_key(node, Kind::extent, first_block), end, found))) {
            gap_end = found.key.offset();
            next = tiffinfs::parse_extent(found.key, found.bytes(), total_blocks, other)
                       ? other.end_block()
                       : gap_end + 1;
        }
        if (first_block < gap_end) {
            const auto piece = slice_extent(extent, first_block, gap_end);
            keys.put(make_key(node, Kind::extent, first_block),
                     ByteSpan(piece.data(), piece.size()));
        }
        first_block = next;
    }
    return {};
}

Result<void> map_extent(KeySpace& keys, uint64_t total_blocks, tiffinfs::Key key, ByteSpan value) {
    ExtentValue extent;
    std::memcpy(&extent, value.data(), sizeof extent);
    const uint64_t first_block = key.offset();
    TRY(unmap_range(keys, total_blocks, key.node, first_block, first_block + extent.block_count));
    KeyValue previous;
    MappedExtent before;
    if (first_block == 0 ||
        !TRY(keys.find_last(make_key(key.node, Kind::extent, first_block - 1),
                            earliest_neighbour(key.node, first_block), previous)) ||
        !tiffinfs::parse_extent(previous.key, previous.bytes(), total_blocks, before) ||
        !tiffinfs::continues_extent(before, first_block, extent)) {
        keys.put(key, value);
        return {};
    }
    extent.physical_block = before.physical_block;
    extent.block_count += before.block_count;
    std::vector<unsigned char> joined = previous.value;
    std::memcpy(joined.data(), &extent, sizeof extent);
    joined.insert(joined.end(), value.data() + sizeof extent, value.data() + value.size());
    keys.put(previous.key, ByteSpan(joined.data(), joined.size()));
    return {};
}

}  // namespace tiffin::check
