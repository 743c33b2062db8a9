// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Single blocks of file data: finding, reading, verifying, and copies of which a part is zero.
#include "fs/base/text.h"
#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

class OneBlockVisitor final : public ExtentVisitor {
  public:
    OneBlockVisitor(uint64_t block, OldBlock& old) : block_(block), old_(old) {}

    bool visit(const MappedExtent& extent) override {
        old_ = old_block(extent, block_);
        return false;
    }

  private:
    uint64_t block_;
    OldBlock& old_;
};

}  // namespace

Error report_lost_block(uint64_t node, uint64_t file_block) {
    log_line(host::LogLevel::error, "data: lost since a repair of the volume: node ", node,
             ", offset ", file_block * kBlockBytes);
    return Error::eio;
}

OldBlock old_block(const MappedExtent& extent, uint64_t file_block) {
    if (extent.unwritten()) {
        return {};
    }
    return {true, extent.physical_of(file_block),
            extent.lost() ? 0 : extent.checksum_of(file_block)};
}

Error report_bad_block(uint64_t node, uint64_t file_block, uint64_t physical_block) {
    log_line(host::LogLevel::error, "data: wrong checksum: node ", node, ", offset ",
             file_block * kBlockBytes, ", device offset ", physical_block * kBlockBytes);
    return Error::eio;
}

Result<void> check_regular(const Object& object) {
    TRY(check_alive(object));
    if (!object.is_regular()) {
        return object.is_directory() ? Error::eisdir : Error::einval;
    }
    // Sums of sizes and offsets cannot overflow below that.
    return object.inode.size_bytes > kMaximumFileBytes ? Error::euclean : Result<void>();
}

Result<BlockRange> allocate_blocks(Volume& volume, uint64_t goal_block, uint64_t wanted,
                                   SpacePriority priority) {
    for (uint32_t attempt = 0;; ++attempt) {
        Result<BlockRange> range = volume.allocator().allocate(goal_block, wanted, priority);
        if (range.ok() || range.error() != Error::enospc ||
            !volume.make_room(attempt, priority, RoomWait::none)) {
            return range;
        }
    }
}

Result<void> read_block(Volume& volume, uint64_t node, uint64_t file_block, const OldBlock& old,
                        unsigned char* page) {
    if (old.physical_block == 0) [[unlikely]] {
        return report_lost_block(node, file_block);
    }
    TRY(volume.device().read(old.physical_block * kBlockBytes, page, kBlockBytes));
    if (data_checksum(page) != old.checksum) [[unlikely]] {
        return report_bad_block(node, file_block, old.physical_block);
    }
    return {};
}

Result<OldBlock> find_old_block(Volume& volume, const Object& object, uint64_t file_block) {
    OldBlock old;
    OneBlockVisitor visitor(file_block, old);
    TRY(walk_extents(volume, object.node, file_block, file_block + 1, visitor));
    return old;
}

Result<OldBlock> write_new_block(Volume& volume, uint64_t goal_block, const unsigned char* page,
                                 SpacePriority priority) {
    BlockRange range = TRY(allocate_blocks(volume, goal_block, 1, priority));
    AllocatedBlocks allocated(volume.allocator(), range);
    TRY(volume.device().write(range.first_block * kBlockBytes, page, kBlockBytes));
    volume.journal().data_written();
    allocated.keep();
    return OldBlock{true, range.first_block, data_checksum(page)};
}

Result<OldBlock> copy_with_zeros(Volume& volume, const Object& object, uint64_t file_block,
                                 uint32_t first_byte, uint32_t end_byte, DataScratch& scratch) {
    OldBlock old = TRY(find_old_block(volume, object, file_block));
    if (!old.written) {
        return OldBlock{};
    }
    unsigned char* page = scratch.page;
    TRY(read_block(volume, object.node, file_block, old, page));
    __builtin_memset(page + first_byte, 0, end_byte - first_byte);
    return write_new_block(volume, old.physical_block, page, SpacePriority::privileged);
}

}  // namespace tiffin::tiffinfs
