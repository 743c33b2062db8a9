// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Small files, whose content is a value in the tree.
#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"

namespace tiffin::tiffinfs {

Result<uint32_t> load_inline(Volume& volume, const Object& object, unsigned char* bytes) {
    uint32_t stored_bytes = 0;
    Result<uint32_t> got = volume.tree().get(make_key(object.node, Kind::inline_data, 0),
                                             MutableByteSpan(bytes, kInlineDataMaximumBytes));
    if (got.ok()) {
        stored_bytes = got.value();
    } else if (got.error() != Error::enoent && got.error() != Error::erange) {
        return got.error();
    }
    bool too_long = !got.ok() && got.error() == Error::erange;
    if (too_long || object.inode.size_bytes > kInlineDataMaximumBytes ||
        stored_bytes > object.inode.size_bytes) {
        return volume.report_damage("inline data", object.node, object.inode.size_bytes);
    }
    __builtin_memset(bytes + stored_bytes, 0, kInlineDataMaximumBytes - stored_bytes);
    return stored_bytes;
}

Result<void> leave_inline(TiffinFileSystem& file_system, Object& object, DataScratch& scratch,
                          SpacePriority priority) {
    Volume& volume = file_system.volume();
    TIFFIN_EXPECT(volume, is_inline(object.inode));
    uint32_t stored_bytes = TRY(load_inline(volume, object, scratch.inline_bytes));
    InodeValue inode = object.inode;
    inode.inode_flags &= ~inode_flag::inline_data;
    OldBlock block;
    if (stored_bytes > 0) {
        unsigned char* page = scratch.page;
        __builtin_memcpy(page, scratch.inline_bytes, stored_bytes);
        __builtin_memset(page + stored_bytes, 0, kBlockBytes - stored_bytes);
        block = TRY(write_new_block(volume, object.goal_block.load(std::memory_order_relaxed), page,
                                    priority));
        inode.allocated_blocks += 1;
    }
    AllocatedBlocks allocated(volume.allocator(), {block.physical_block, block.written ? 1U : 0U});
    Transaction transaction(volume);
    TRY(transaction.begin(priority, extent_change_size({}, 1, 1, 2)));
    if (stored_bytes > 0) {
        TRY(transaction.erase(make_key(object.node, Kind::inline_data, 0)));
        TRY(transaction.write_extent(object.node, 0, block.physical_block, 1, 0,
                                     Span<const uint32_t>(&block.checksum, 1)));
    }
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    allocated.keep();
    object.inode = inode;
    return {};
}

}  // namespace tiffin::tiffinfs
