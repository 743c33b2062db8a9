// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What the operations on file data share: looking at blocks, small files, single-block copies, intents.
//
// How a file changes. New data goes to blocks that nothing refers to, its checksums are taken, and one
// transaction makes the blocks the file's. Readers take only the object's state lock, shared, while they
// look at the map, and keep a read epoch while they read blocks: so they see what was before or what is
// after, and no block is used again under them. Writers claim the blocks of a whole request (Object::claims), so that
// no other thread changes the map of these between their look and their transaction.
#pragma once

#include <atomic>
#include <cstdint>

#include "fs/tiffinfs/data/data_scratch.h"
#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/objects/file_system.h"
#include "fs/tiffinfs/objects/object.h"
#include "fs/tiffinfs/objects/operations.h"
#include "fs/tiffinfs/volume/transaction.h"
#include "fs/vfs/host.h"
#include "fs/vfs/result.h"
#include "fs/vfs/types.h"

namespace tiffin::tiffinfs {

constexpr uint64_t block_at(uint64_t offset_bytes) { return offset_bytes / kBlockBytes; }
constexpr uint64_t blocks_for(uint64_t size_bytes) {
    return (size_bytes + kBlockBytes - 1) / kBlockBytes;
}

// The checksum of a block of data, as extents keep it.
inline uint32_t data_checksum(const void* block) { return host::crc32c(0, block, kBlockBytes); }

// Says in the log which block of which file is damaged, and returns eio to pass on.
Error report_bad_block(uint64_t node, uint64_t file_block, uint64_t physical_block);
// The same of a block in an extent that a repair has marked as lost.
Error report_lost_block(uint64_t node, uint64_t file_block);

// Errors: estale (deleted), eisdir, einval (neither a regular file nor a directory), euclean (a size that
// cannot be).
Result<void> check_regular(const Object& object) REQUIRES_SHARED(object.state);

inline bool is_inline(const InodeValue& inode) {
    return (inode.inode_flags & inode_flag::inline_data) != 0;
}

// A read epoch for the scope. No thread waits for readers to leave while holding an object's state lock
// (Volume::with_room), so such a lock may be waited for inside an epoch.
class ReadEpoch {
  public:
    explicit ReadEpoch(Volume& volume) : volume_(volume), token_(volume.readers().enter()) {}
    ~ReadEpoch() { volume_.readers().leave(token_); }
    ReadEpoch(const ReadEpoch&) = delete;
    ReadEpoch& operator=(const ReadEpoch&) = delete;

  private:
    Volume& volume_;
    uint32_t token_;
};

// Blocks that were allocated for a transaction; given back unless it commits.
class AllocatedBlocks {
  public:
    AllocatedBlocks(Allocator& allocator, BlockRange range)
        : allocator_(allocator), range_(range) {}
    ~AllocatedBlocks() {
        if (range_.block_count > 0) {
            allocator_.cancel(range_);
        }
    }
    AllocatedBlocks(const AllocatedBlocks&) = delete;
    AllocatedBlocks& operator=(const AllocatedBlocks&) = delete;
    void keep() { range_.block_count = 0; }

  private:
    Allocator& allocator_;
    BlockRange range_;
};

// Allocates up to `wanted` blocks, making room as long as that helps. Not inside a transaction or read
// epoch. Errors: enospc.
Result<BlockRange> allocate_blocks(Volume& volume, uint64_t goal_block, uint64_t wanted,
                                   SpacePriority priority);

// ---- Small files (inline_data.cc) ----------------------------------------------------------------

// Reads the content of a small file to scratch.inline_bytes, zeros behind it, and returns how many bytes
// are stored: at most the file's size. Errors: euclean.
Result<uint32_t> load_inline(Volume& volume, const Object& object, unsigned char* bytes)
    REQUIRES_SHARED(object.state);

// The file leaves the inline form: its content, if any, goes to a block. Changes nothing that a reader
// can see. Errors: enospc.
Result<void> leave_inline(TiffinFileSystem& file_system, Object& object, DataScratch& scratch,
                          SpacePriority priority = SpacePriority::normal)
    REQUIRES(object.claims, object.state);

// ---- Single blocks (block_copy.cc) ---------------------------------------------------------------

// What the block of the file, which lies in `extent`, is before it is written.
OldBlock old_block(const MappedExtent& extent, uint64_t file_block);
// Reads the block to `page` and verifies it. Errors: eio (also: the block is lost).
Result<void> read_block(Volume& volume, uint64_t node, uint64_t file_block, const OldBlock& old,
                        unsigned char* page);
// What block `file_block` of the file holds.
Result<OldBlock> find_old_block(Volume& volume, const Object& object, uint64_t file_block)
    REQUIRES_SHARED(object.state);
// Writes `page` to a new block near `goal_block` and returns its place. The caller gives it back, or
// maps it.
Result<OldBlock> write_new_block(Volume& volume, uint64_t goal_block, const unsigned char* page,
                                 SpacePriority priority);
// A copy of block `file_block` in which bytes [first_byte, end_byte) are zero. Nothing is written, and
// `written` is false in the result, when the block reads as zeros anyway.
Result<OldBlock> copy_with_zeros(Volume& volume, const Object& object, uint64_t file_block,
                                 uint32_t first_byte, uint32_t end_byte, DataScratch& scratch)
    REQUIRES_SHARED(object.state);

// ---- Holes (operations_read.cc) -------------------------------------------------------------------

// As FileSystem::seek(); also tells the file's size at that moment, unless its error is another than enxio.
Result<uint64_t> seek_with_size(TiffinFileSystem& file_system, vfs::NodeId node,
                                uint64_t offset_bytes, vfs::SeekTarget target,
                                uint64_t& size_bytes);

// ---- Intents (intent.cc) --------------------------------------------------------------------------

// Completes what the object's intent says. To be called before every change of the map or size of a file
// whose inode has inode_flag::has_intent.
Result<void> finish_intent(TiffinFileSystem& file_system, Object& object, DataScratch& scratch)
    REQUIRES(object.claims, object.state);
// True when the file must not be read before its intent is finished: extents are on the way from one
// place to another.
Result<bool> intent_blocks_reading(Volume& volume, const Object& object)
    REQUIRES_SHARED(object.state);
// finish_intent() for callers that hold nothing.
Result<void> finish_intent_unlocked(TiffinFileSystem& file_system, Object& object);

// Modification and change time become now: in the transaction that changes content, so that no failure
// comes between the two.
void touch_content(InodeValue& inode);

enum class ContentTimes : uint8_t { keep, touch };

// Frees mapped blocks of [first_block, end_block), up to kStepExtents extents, in one transaction with
// the inode's block count and its times. Returns where it stopped: end_block when nothing is left.
Result<uint64_t> free_blocks_step(TiffinFileSystem& file_system, Object& object,
                                  uint64_t first_block, uint64_t end_block, ContentTimes times)
    REQUIRES(object.state);

// Puts the inode in a transaction of its own.
Result<void> commit_inode(TiffinFileSystem& file_system, Object& object, const InodeValue& inode)
    REQUIRES(object.state);

// Erases the object's intent and its flag.
Result<void> end_intent(TiffinFileSystem& file_system, Object& object) REQUIRES(object.state);

// Takes what a range held off the inode's block count.
inline void subtract_blocks(InodeValue& inode, uint64_t block_count) {
    // The count of a damaged inode may be too small; it does not get worse.
    inode.allocated_blocks -=
        block_count < inode.allocated_blocks ? block_count : inode.allocated_blocks;
}

// So many extents are freed or moved by one transaction.
inline constexpr uint32_t kStepExtents = 64;

}  // namespace tiffin::tiffinfs
