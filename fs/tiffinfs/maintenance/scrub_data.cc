// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The third phase of a scrub: the data of all files, found through the tree in use.
#include "fs/base/text.h"
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/maintenance/scrub.h"
#include "fs/tiffinfs/volume/extents.h"
#include "fs/tiffinfs/volume/volume.h"

namespace tiffin::tiffinfs {
namespace {

// A step ends after so many keys, or so much data.
constexpr uint32_t kStepKeys = 256;
constexpr uint64_t kStepBytes = 4U << 20;

}  // namespace

Result<void> Scrub::check_data() {
    Key next{progress_.cursor[1], progress_.cursor[2]};
    uint64_t bytes_before = progress_.checked_bytes;
    for (uint32_t i = 0; i < kStepKeys && next != kMaximumKey &&
                         progress_.checked_bytes - bytes_before < kStepBytes;
         ++i) {
        next = TRY(check_next_key(next));
    }
    if (next == kMaximumKey) {
        enter_phase(Phase::finished);
    } else {
        progress_.cursor[1] = next.node;
        progress_.cursor[2] = next.kind_and_offset;
    }
    return {};
}

// Checks the first extent at or after `first`, or takes one step towards it, and returns where to go
// on; kMaximumKey at the end.
Result<Key> Scrub::check_next_key(Key first) {
    // The extent is looked up inside the epoch in which its blocks are read.
    ReadEpoch epoch(volume_);
    Result<void> result = volume_.tree().find_first(first, kMaximumKey, *found_);
    if (!result.ok()) {
        if (result.error() == Error::enoent) {
            return kMaximumKey;
        }
        if (result.error() == Error::enomem) {
            return result.error();
        }
        return skip_damage(first);
    }
    progress_.cursor[3] = 0;
    Key key = found_->key;
    Key extents = make_key(key.node, Kind::extent, 0);
    if (key < extents) {
        return extents;
    }
    if (key.kind() != Kind::extent) {
        return key.node == ~uint64_t{0} ? kMaximumKey : make_key(key.node + 1, Kind::extent, 0);
    }
    MappedExtent extent;
    if (parse_extent(key, found_->bytes(), volume_.total_blocks(), extent)) {
        check_extent_data(extent, key);
    } else {
        // The policy for damage applies; here it only counts.
        (void)volume_.report_damage("extent", key.node, key.offset());
        count_error();
    }
    return next_key(key);
}

// The tree itself is damaged at `first`: what can be found behind is still worth a look. How many nodes are
// lost is not known, so the steps over them grow; cursor[3] counts them. The phase before has usually
// counted the damaged node, on the device.
Key Scrub::skip_damage(Key first) {
    if (progress_.cursor[3] == 0 && progress_.errors_found == 0) {
        count_error();
    }
    if (progress_.cursor[3] >= 63) {
        return kMaximumKey;
    }
    uint64_t skipped = uint64_t{1} << progress_.cursor[3]++;
    return skipped < kMaximumKey.node - first.node ? Key{first.node + skipped, 0} : kMaximumKey;
}

void Scrub::check_extent_data(const MappedExtent& extent, Key key) {
    if (!extent.has_checksums()) {
        return;
    }
    uint64_t block = extent.file_block;
    while (block < extent.end_block()) {
        uint64_t left = extent.end_block() - block;
        uint64_t count = left < kBufferBlocks ? left : kBufferBlocks;
        uint64_t bad_block = 0;
        if (read_and_compare(extent, block, count, bad_block)) {
            block += count;
            continue;
        }
        // A second look, at this block alone.
        uint64_t again = 0;
        if (still_mapped(extent, key) && !read_and_compare(extent, bad_block, 1, again)) {
            (void)report_bad_block(key.node, bad_block, extent.physical_of(bad_block));
            count_error();
        }
        block = bad_block + 1;
    }
    count_bytes(uint64_t{extent.block_count} * kBlockBytes);
}

// Compares blocks [first, first + count) of the extent with their checksums. When it returns false,
// those before `bad_block` are good.
bool Scrub::read_and_compare(const MappedExtent& extent, uint64_t first, uint64_t count,
                             uint64_t& bad_block) {
    uint64_t offset = extent.physical_of(first) * kBlockBytes;
    const auto* content = static_cast<const unsigned char*>(
        volume_.device().direct_address(offset, count * kBlockBytes));
    if (content == nullptr) {
        content = buffer_;
        if (!volume_.device().read(offset, buffer_, count * kBlockBytes).ok()) {
            // Which one cannot be read shows when they are read one by one.
            bad_block = first;
            for (uint64_t i = 0; count > 1 && i < count; ++i) {
                if (!read_and_compare(extent, first + i, 1, bad_block)) {
                    return false;
                }
            }
            return count > 1;
        }
    }
    for (uint64_t i = 0; i < count; ++i) {
        if (data_checksum(content + i * kBlockBytes) != extent.checksum_of(first + i)) {
            bad_block = first + i;
            return false;
        }
    }
    return true;
}

// Whether the tree still says the same about the extent.
bool Scrub::still_mapped(const MappedExtent& extent, Key key) {
    Result<void> result = volume_.tree().find_first(key, next_key(key), *second_look_);
    MappedExtent now;
    return result.ok() && parse_extent(key, second_look_->bytes(), volume_.total_blocks(), now) &&
           now.physical_block == extent.physical_block && now.flags == extent.flags &&
           now.birth_generation == extent.birth_generation && now.block_count == extent.block_count;
}

}  // namespace tiffin::tiffinfs
