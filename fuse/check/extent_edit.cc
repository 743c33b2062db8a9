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
    const ExtentValue value{extent.physical_block + skipped, extent.birth_generation, count,
                            extent.flags};
    const bool unwritten = (extent.flags & tiffinfs::extent_flag::unwritten) != 0;
    std::vector<unsigned char> bytes(sizeof value + (unwritten ? 0 : count * sizeof(uint32_t)));
    std::memcpy(bytes.data(), &value, sizeof value);
    if (!unwritten) {
        std::memcpy(bytes.data() + sizeof value, extent.checksums + skipped * sizeof(uint32_t),
                    count * sizeof(uint32_t));
    }
    return bytes;
}

Result<void> unmap_range(KeySpace& keys, uint64_t total_blocks, uint64_t node, uint64_t first_block,
                         uint64_t end_block) {
    // No extent is longer than this, so none that begins earlier reaches the range.
    constexpr uint64_t kLongest = tiffinfs::kUnwrittenExtentMaximumBlocks;
    uint64_t cursor = first_block > kLongest ? first_block - kLongest : 0;
    KeyValue found;
    while (TRY(keys.find_first(make_key(node, Kind::extent, cursor),
                               make_key(node, Kind::extent, end_block), found))) {
        cursor = found.key.offset() + 1;
        MappedExtent extent;
        if (!tiffinfs::parse_extent(found.key, found.bytes(), total_blocks, extent)) {
            continue;
        }
        const uint64_t extent_end = extent.file_block + extent.block_count;
        if (extent_end <= first_block) {
            continue;
        }
        if (extent.file_block < first_block) {
            const auto piece = slice_extent(extent, extent.file_block, first_block);
            keys.put(found.key, ByteSpan(piece.data(), piece.size()));
        } else {
            keys.erase(found.key);
        }
        if (extent_end > end_block) {
            const auto piece = slice_extent(extent, end_block, extent_end);
            keys.put(make_key(node, Kind::extent, end_block), ByteSpan(piece.data(), piece.size()));
        }
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
                            make_key(key.node, Kind::extent, 0), previous)) ||
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
