// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Taking a range out of a file, and making room in one. Both leave an intent with their first
// transaction, which also sets the new size, and then do what it says; no other thread can look in between.
#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/data/file_space.h"

namespace tiffin::tiffinfs {
namespace {

bool is_whole_blocks(const SpaceRequest& request) {
    return request.offset_bytes % kBlockBytes == 0 && request.length_bytes % kBlockBytes == 0;
}

// The inode as it is after the shift, which is still to be done.
InodeValue shifted_inode(const Object& object, uint64_t size_bytes) REQUIRES(object.state) {
    InodeValue inode = object.inode;
    inode.size_bytes = size_bytes;
    touch_content(inode);
    inode.inode_flags |= inode_flag::has_intent;
    return inode;
}

Result<void> commit_with_intent(Transaction& transaction, Object& object, const InodeValue& inode,
                                const IntentValue& intent) REQUIRES(object.state) {
    TRY(transaction.put_value(make_key(kVolumeNode, Kind::intent, object.node), intent));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    object.inode = inode;
    return {};
}

// Stages an extent for blocks [first, end) of one that is mapped already, under its own key.
Result<void> stage_piece(Transaction& transaction, uint64_t node, const MappedExtent& extent,
                         uint64_t first, uint64_t end) {
    ExtentValue value{extent.physical_of(first), extent.birth_generation,
                      static_cast<uint32_t>(end - first), extent.flags};
    ByteSpan checksums;
    if (extent.has_checksums()) {
        checksums = ByteSpan(extent.checksums + (first - extent.file_block) * sizeof(uint32_t),
                             (end - first) * sizeof(uint32_t));
    }
    return transaction.put(make_key(node, Kind::extent, first),
                           ByteSpan(reinterpret_cast<const unsigned char*>(&value), sizeof(value)),
                           checksums);
}

// Cuts the extent that lies across `block`, if there is one, in two.
Result<void> stage_split(Volume& volume, Transaction& transaction, const Object& object,
                         uint64_t block, KeyAndValue& found) REQUIRES(object.state) {
    Result<void> before = volume.tree().find_last(make_key(object.node, Kind::extent, block),
                                                  make_key(object.node, Kind::extent, 0), found);
    if (!before.ok()) {
        return before.error() == Error::enoent ? Result<void>() : before;
    }
    MappedExtent extent;
    if (!parse_extent(found.key, found.bytes(), volume.total_blocks(), extent)) {
        return volume.report_damage("extent", object.node, found.key.offset());
    }
    if (extent.file_block == block || extent.end_block() <= block) {
        return {};
    }
    TRY(stage_piece(transaction, object.node, extent, extent.file_block, block));
    return stage_piece(transaction, object.node, extent, block, extent.end_block());
}

// Errors: efbig, when the last extent would end too far out.
Result<void> check_room_behind(Volume& volume, const Object& object, uint64_t shift_blocks,
                               KeyAndValue& found) REQUIRES(object.state) {
    Result<void> last =
        volume.tree().find_last(make_key(object.node, Kind::extent, kMaximumFileBlocks),
                                make_key(object.node, Kind::extent, 0), found);
    if (!last.ok()) {
        return last.error() == Error::enoent ? Result<void>() : last;
    }
    MappedExtent extent;
    if (!parse_extent(found.key, found.bytes(), volume.total_blocks(), extent)) {
        return volume.report_damage("extent", object.node, found.key.offset());
    }
    return extent.end_block() > kMaximumFileBlocks - shift_blocks ? Error::efbig : Result<void>();
}

}  // namespace

Result<void> collapse_range(const SpaceRequest& request, Object& object) {
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    if (!is_whole_blocks(request) || request.end_bytes() >= object.inode.size_bytes) {
        return Error::einval;
    }
    uint64_t first = block_at(request.offset_bytes);
    {
        Transaction transaction(request.volume());
        TRY(transaction.begin(SpacePriority::privileged, {.scattered = 2}));
        IntentValue intent{IntentType::shift_down, 0, first, block_at(request.length_bytes), first};
        TRY(commit_with_intent(
            transaction, object,
            shifted_inode(object, object.inode.size_bytes - request.length_bytes), intent));
    }
    return finish_intent(request.file_system, object, request.scratch);
}

Result<void> insert_range(const SpaceRequest& request, Object& object) {
    Volume& volume = request.volume();
    BiasedExclusiveLock lock(object.state, object.node);
    TRY(check_regular(object));
    if (!is_whole_blocks(request) || request.offset_bytes >= object.inode.size_bytes) {
        return Error::einval;
    }
    if (request.length_bytes > kMaximumFileBytes - object.inode.size_bytes) {
        return Error::efbig;
    }
    uint64_t shift_blocks = block_at(request.length_bytes);
    TRY(check_room_behind(volume, object, shift_blocks, request.scratch.found));
    if (is_inline(object.inode)) {
        TRY(leave_inline(request.file_system, object, request.scratch));
    }
    uint64_t first = block_at(request.offset_bytes);
    {
        Transaction transaction(volume);
        TRY(transaction.begin(SpacePriority::overwriting, extent_change_size({}, 2, 0, 2)));
        TRY(stage_split(volume, transaction, object, first, request.scratch.found));
        IntentValue intent{IntentType::shift_up, 0, first, shift_blocks, kMaximumFileBlocks};
        TRY(commit_with_intent(
            transaction, object,
            shifted_inode(object, object.inode.size_bytes + request.length_bytes), intent));
    }
    return finish_intent(request.file_system, object, request.scratch);
}

}  // namespace tiffin::tiffinfs
