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
    CheckingVisitor(uint64_t total_blocks, uint64_t covered_end, ExtentVisitor& visitor)
        : total_blocks_(total_blocks), covered_end_(covered_end), visitor_(visitor) {}

    bool visit(Key key, ByteSpan value) override {
        MappedExtent extent;
        if (!parse_extent(key, value, total_blocks_, extent) || extent.file_block < covered_end_) {
            damaged_ = true;
            damaged_block_ = key.offset();
            return false;
        }
        covered_end_ = extent.end_block();
        return visitor_.visit(extent);
    }

    bool damaged() const { return damaged_; }
    uint64_t damaged_block() const { return damaged_block_; }
    uint64_t covered_end() const { return covered_end_; }

  private:
    uint64_t total_blocks_;
    uint64_t covered_end_;
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
                          KeyAndValue& scratch, ExtentVisitor& visitor) {
    if (first_block >= end_block) {
        return {};
    }
    Tree& tree = volume.tree();
    CheckingVisitor checking(volume.total_blocks(), 0, visitor);
    // The extent that covers the first block may begin far before it.
    Result<void> found = tree.find_last(make_key(node, Kind::extent, first_block),
                                        make_key(node, Kind::extent, 0), scratch);
    if (found.ok()) {
        MappedExtent extent;
        if (!parse_extent(scratch.key, scratch.bytes(), volume.total_blocks(), extent)) {
            return volume.report_damage("extent", node, scratch.key.offset());
        }
        if (extent.end_block() > first_block && !checking.visit(scratch.key, scratch.bytes())) {
            return {};
        }
    } else if (found.error() != Error::enoent) {
        return found.error();
    }
    if (checking.covered_end() < end_block) {
        // Also over what that extent covers: another one that begins there is damage.
        TRY(tree.scan(make_key(node, Kind::extent, first_block + 1),
                      make_key(node, Kind::extent, end_block), checking));
    }
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
                                   uint64_t end_block, uint32_t maximum_extents,
                                   KeyAndValue& scratch) {
    CountedRange range;
    range.counted_end = end_block;
    CountingVisitor counting(first_block, end_block, maximum_extents, range);
    TRY(walk_extents(volume, node, first_block, end_block, scratch, counting));
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
