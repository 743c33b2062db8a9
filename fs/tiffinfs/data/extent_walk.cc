// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fs/tiffinfs/data/extent_walk.h"

#include "fs/tiffinfs/volume/transaction.h"
#include "fs/tiffinfs/volume/volume.h"

namespace tiffin::tiffinfs {
namespace {

// What an extent takes in a leaf without its checksums.
constexpr uint32_t kExtentBytes = sizeof(LeafSlot) + sizeof(ExtentValue);

// Between the tree's keys and the visitor: checks each extent and its place.
class CheckingVisitor final : public TreeVisitor {
  public:
    CheckingVisitor(uint64_t total_blocks, uint64_t first_block, uint64_t end_block,
                    ExtentVisitor& visitor)
        : total_blocks_(total_blocks),
          first_block_(first_block),
          end_block_(end_block),
          visitor_(visitor) {}

    bool visit(Key key, ByteSpan value) override {
        MappedExtent extent;
        if (!parse_extent(key, value, total_blocks_, extent) || extent.file_block < covered_end_) {
            damaged_ = true;
            damaged_block_ = key.offset();
            return false;
        }
        covered_end_ = extent.end_block();
        if (covered_end_ <= first_block_) {
            visitor_.visit_before(extent);
            return true;
        }
        // Behind others, also over what the last one covers: another one that begins there is damage.
        const bool covers_all = extent.file_block <= first_block_ && covered_end_ >= end_block_;
        return visitor_.visit(extent) && !covers_all;
    }

    bool damaged() const { return damaged_; }
    uint64_t damaged_block() const { return damaged_block_; }

  private:
    uint64_t total_blocks_;
    uint64_t first_block_;
    uint64_t end_block_;
    uint64_t covered_end_ = 0;
    ExtentVisitor& visitor_;
    bool damaged_ = false;
    uint64_t damaged_block_ = 0;
};

class CountingVisitor final : public ExtentVisitor {
  public:
    CountingVisitor(uint64_t first_block, uint64_t end_block, uint32_t maximum_extents,
                    CountedRange& range)
        : first_(first_block), end_(end_block), maximum_(maximum_extents), range_(range) {}

    bool visit(const MappedExtent& extent) override {
        if (range_.usage.extent_count == maximum_) {
            range_.counted_end = last_end_;
            return false;
        }
        add_usage(range_.usage, extent, first_, end_);
        last_end_ = extent.end_block();
        return true;
    }

  private:
    uint64_t first_;
    uint64_t end_;
    uint32_t maximum_;
    uint64_t last_end_ = 0;
    CountedRange& range_;
};

}  // namespace

Result<void> walk_extents(Volume& volume, uint64_t node, uint64_t first_block, uint64_t end_block,
                          ExtentVisitor& visitor) {
    if (first_block >= end_block) {
        return {};
    }
    CheckingVisitor checking(volume.total_blocks(), first_block, end_block, visitor);
    // The extent that covers the first block may begin far before it.
    TRY(volume.tree().scan_from_last(make_key(node, Kind::extent, 0),
                                     make_key(node, Kind::extent, first_block),
                                     make_key(node, Kind::extent, end_block), checking));
    if (checking.damaged()) {
        return volume.report_damage("extent", node, checking.damaged_block());
    }
    return {};
}

void add_usage(MapUsage& usage, const MappedExtent& extent, uint64_t first_block,
               uint64_t end_block) {
    uint64_t first = extent.file_block > first_block ? extent.file_block : first_block;
    uint64_t end = extent.end_block() < end_block ? extent.end_block() : end_block;
    if (first < end) {
        usage.mapped_blocks += extent.lost() ? 0 : end - first;
        uint32_t bytes = static_cast<uint32_t>(sizeof(LeafSlot)) + extent.value_bytes();
        usage.extent_count += 1;
        usage.extent_bytes += bytes;
        if (first > extent.file_block || end < extent.end_block()) {
            // Two pieces have one key and one header more than the whole.
            usage.cut_bytes += bytes + kExtentBytes;
        }
    }
}

Result<CountedRange> count_extents(Volume& volume, uint64_t node, uint64_t first_block,
                                   uint64_t end_block, uint32_t maximum_extents) {
    CountedRange range;
    range.counted_end = end_block;
    CountingVisitor counting(first_block, end_block, maximum_extents, range);
    TRY(walk_extents(volume, node, first_block, end_block, counting));
    return range;
}

TransactionSize extent_change_size(const MapUsage& usage, uint32_t new_extents, uint32_t new_blocks,
                                   uint32_t scattered) {
    constexpr uint32_t kLargestExtentBytes =
        kExtentBytes + sizeof(uint32_t) * kWrittenExtentMaximumBlocks;
    TransactionSize size;
    size.scattered = scattered;
    size.contiguous_bytes = usage.extent_bytes + usage.cut_bytes + new_extents * kExtentBytes +
                            new_blocks * static_cast<uint32_t>(sizeof(uint32_t)) +
                            (new_extents > 0 ? kLargestExtentBytes : 0);
    return size;
}

}  // namespace tiffin::tiffinfs
