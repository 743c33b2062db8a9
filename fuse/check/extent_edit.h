// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Extents as the checker reads and cuts them.
#pragma once

#include <cstdint>
#include <vector>

#include "fs/tiffinfs/volume/extents.h"
#include "fuse/check/key_space.h"

namespace tiffin::check {

// The part [first_block, end_block) of an extent as a value; it must lie inside, and not be empty.
std::vector<unsigned char> slice_extent(const tiffinfs::MappedExtent& extent, uint64_t first_block,
                                        uint64_t end_block);

// Takes [first_block, end_block) out of the map of `node`. Extents that cannot be parsed are left
// alone. Errors: eio.
Result<void> unmap_range(KeySpace& keys, uint64_t total_blocks, uint64_t node, uint64_t first_block,
                         uint64_t end_block);

// Maps of `extent`, from `first_block` on, what nothing else maps. Errors: eio.
Result<void> fill_gaps(KeySpace& keys, uint64_t total_blocks, uint64_t node,
                       const tiffinfs::MappedExtent& extent, uint64_t first_block);

// Maps an extent as replay does (RecordType::write_extent): what was mapped there is unmapped, and the
// extent is joined with the one before it where the format says so. Errors: eio.
Result<void> map_extent(KeySpace& keys, uint64_t total_blocks, tiffinfs::Key key, ByteSpan value);

}  // namespace tiffin::check
