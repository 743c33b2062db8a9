// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/check/shared_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "fs/tiffinfs/volume/extents.h"
#include "fs/vfs/host.h"
#include "fuse/check/block_io.h"
#include "fuse/check/extent_edit.h"

namespace tiffin::check {

using tiffinfs::BlockRange;
using tiffinfs::Key;
using tiffinfs::Kind;
using tiffinfs::MappedExtent;

namespace {

// Reading data to compare checksums takes time; a volume with more conflicts than this is made up.
constexpr size_t kMaximumVerifiedClaims = 4096;

// A part of an extent that lies in a conflict.
struct Claim {
    uint64_t node = 0;
    uint64_t file_block = 0;
    BlockRange range;  // on the device
    uint64_t birth_generation = 0;
    bool verified = false;  // its checksums match what is there

    bool operator<(const Claim& other) const {
        return std::tuple(!verified, ~birth_generation, node, file_block) <
               std::tuple(!other.verified, ~other.birth_generation, other.node, other.file_block);
    }
};

bool data_matches(Context& context, const MappedExtent& extent, BlockRange range) {
    if (!extent.has_checksums()) {
        return false;
    }
    Block block;
    for (uint64_t i = 0; i < range.block_count; ++i) {
        const uint64_t physical = range.first_block + i;
        const uint64_t file_block = extent.file_block + (physical - extent.physical_block);
        if (!read_block(context.device(), physical, block) ||
            host::crc32c(0, block.bytes, sizeof block.bytes) != extent.checksum_of(file_block)) {
            return false;
        }
    }
    return true;
}

void add_claims(Context& context, const std::vector<BlockRange>& conflicts, uint64_t node,
                const MappedExtent& extent, std::vector<Claim>& claims) {
    const uint64_t end = extent.physical_block + extent.block_count;
    auto conflict = std::upper_bound(
        conflicts.begin(), conflicts.end(), extent.physical_block,
        [](uint64_t block, const BlockRange& range) { return block < range.first_block; });
    if (conflict != conflicts.begin()) {
        --conflict;
    }
    for (; conflict != conflicts.end() && conflict->first_block < end; ++conflict) {
        const uint64_t first = std::max(conflict->first_block, extent.physical_block);
        const uint64_t last = std::min(conflict->first_block + conflict->block_count, end);
        if (first >= last) {
            continue;
        }
        Claim claim{node,
                    extent.file_block + (first - extent.physical_block),
                    {first, last - first},
                    extent.birth_generation,
                    false};
        claim.verified =
            claims.size() < kMaximumVerifiedClaims && data_matches(context, extent, claim.range);
        claims.push_back(claim);
    }
}

// Gives up the parts of a claim that better ones have taken.
void lose(Context& context, Repairs& repairs, MissingKeys& missing, const Claim& claim,
          const std::vector<BlockRange>& taken) {
    for (const BlockRange& range : taken) {
        const uint64_t first = claim.file_block + (range.first_block - claim.range.first_block);
        const uint64_t end = first + range.block_count;
        if (!context.found(
                Code::extent_shared,
                fmt::format("{}, blocks {} to {}", node_text(claim.node), first, end - 1),
                fmt::format("blocks {} to {} of the device have another owner", range.first_block,
                            range.first_block + range.block_count - 1))) {
            continue;
        }
        const uint64_t total_blocks = context.layout.total_blocks;
        repairs.later([node = claim.node, first, end, total_blocks](KeySpace& keys) {
            return unmap_range(keys, total_blocks, node, first, end);
        });
        // The next pass marks them as lost.
        missing.add(tiffinfs::make_key(claim.node, Kind::extent, first),
                    tiffinfs::make_key(claim.node, Kind::extent, end));
    }
}

}  // namespace

void sort_and_join(std::vector<BlockRange>& ranges) {
    std::sort(ranges.begin(), ranges.end(), [](const BlockRange& a, const BlockRange& b) {
        return a.first_block < b.first_block;
    });
    size_t kept = 0;
    for (const BlockRange& range : ranges) {
        BlockRange* last = kept == 0 ? nullptr : &ranges[kept - 1];
        if (last != nullptr && range.first_block <= last->first_block + last->block_count) {
            const uint64_t end = std::max(last->first_block + last->block_count,
                                          range.first_block + range.block_count);
            last->block_count = end - last->first_block;
        } else {
            ranges[kept++] = range;
        }
    }
    ranges.resize(kept);
}

Result<void> resolve_shared_blocks(Context& context, KeySpace& keys, const SpaceMap& nodes,
                                   MissingKeys& missing, Objects& objects, Repairs& repairs) {
    // Ranges of a file are unmapped here, whichever of two extents that overlap they belong to.
    if (objects.conflicts.empty() || objects.has_overlap_repairs) {
        return {};
    }
    sort_and_join(objects.conflicts);
    std::vector<Claim> claims;
    TRY(keys.scan([&](Key key, ByteSpan value) {
        MappedExtent extent;
        if (key.node != tiffinfs::kVolumeNode &&
            tiffinfs::parse_extent(key, value, context.layout.total_blocks, extent) &&
            !extent.lost() &&
            !context.layout.touches_fixed_blocks(extent.physical_block, extent.block_count)) {
            add_claims(context, objects.conflicts, key.node, extent, claims);
        }
        return !context.cancelled();
    }));
    std::sort(claims.begin(), claims.end());
    SpaceMap taken(context.layout);
    for (const Claim& claim : claims) {
        if (context.cancelled()) {
            break;
        }
        std::vector<BlockRange> lost;
        nodes.find_marked(claim.range, lost);
        taken.mark(claim.range, &lost);
        sort_and_join(lost);
        lose(context, repairs, missing, claim, lost);
    }
    return {};
}

}  // namespace tiffin::check
