// SPDX-License-Identifier: MIT OR GPL-2.0-only
// fallocate and reserve: what is asked for, and whether the file permits it.
#include "fs/base/text.h"
#include "fs/tiffinfs/data/file_data.h"
#include "fs/tiffinfs/data/file_space.h"
#include "fs/tiffinfs/objects/operations.h"

namespace tiffin::tiffinfs {
namespace {

// The operation that `mode` asks for: an allocate_flag, or 0 for plain allocation. Errors: eopnotsupp,
// einval (modes that are known, but not together).
Result<uint32_t> operation_of(uint32_t mode) {
    uint32_t operation = mode & ~vfs::allocate_flag::keep_size;
    bool keep_size = (mode & vfs::allocate_flag::keep_size) != 0;
    switch (operation) {
        case 0:
        case vfs::allocate_flag::zero_range:
            return operation;
        case vfs::allocate_flag::punch_hole:
            return keep_size ? Result<uint32_t>(operation) : Error::eopnotsupp;
        case vfs::allocate_flag::collapse_range:
        case vfs::allocate_flag::insert_range:
            return keep_size ? Result<uint32_t>(Error::einval) : operation;
        default:
            return Error::eopnotsupp;
    }
}

Result<void> run(uint32_t operation, const SpaceRequest& request, Object& object)
    REQUIRES(object.claims) {
    switch (operation) {
        case vfs::allocate_flag::zero_range:
            return zero_range(request, object);
        case vfs::allocate_flag::punch_hole:
            return punch_hole(request, object);
        case vfs::allocate_flag::collapse_range:
            return collapse_range(request, object);
        case vfs::allocate_flag::insert_range:
            return insert_range(request, object);
        default:
            return allocate_range(request, object);
    }
}

// Errors: enodev, eperm.
Result<void> check_allowed(const Object& object, bool only_adds) REQUIRES_SHARED(object.state) {
    TRY(check_alive(object));
    if (!object.is_regular()) {
        return Error::enodev;
    }
    uint32_t forbidding = vfs::file_flag::immutable;
    if (!only_adds) {
        forbidding |= vfs::file_flag::append_only;
    }
    return (object.inode.file_flags & forbidding) != 0 ? Error::eperm : Result<void>();
}

}  // namespace

Result<void> TiffinFileSystem::allocate(vfs::NodeId node, uint32_t mode, uint64_t offset_bytes,
                                        uint64_t length_bytes) {
    TRY(volume_->check_writable());
    if (length_bytes == 0) {
        return Error::einval;
    }
    uint32_t operation = TRY(operation_of(mode));
    if (offset_bytes >= kMaximumFileBytes || length_bytes > kMaximumFileBytes - offset_bytes) {
        return Error::efbig;
    }
    ObjectPin pin = TRY(objects_.get(node));
    Object& object = *pin;
    DataScratchLease scratch = TRY(data_scratch_.take());
    const bool shifts = operation == vfs::allocate_flag::collapse_range ||
                        operation == vfs::allocate_flag::insert_range;
    // The shift: from the transaction on that sets the size and leaves an intent, it is made. It is not to be
    // made again then, but finished.
    bool begun = false;
    Result<void> done = volume_->with_room(SpacePriority::normal, [&]() -> Result<void> {
        RangeClaim claim;
        TRY(claim_blocks(object, shifts ? 0 : block_at(offset_bytes),
                         shifts ? RangeClaim::kEndOfFile : blocks_for(offset_bytes + length_bytes),
                         claim));
        ClaimScope claimed(object.claims, claim);
        {
            BiasedSharedLock lock(object.state, node);
            TRY(check_allowed(object, operation == 0));
        }
        if (begun) {
            return {};
        }
        SpaceRequest request{*this, *scratch, offset_bytes, length_bytes,
                             (mode & vfs::allocate_flag::keep_size) != 0};
        Result<void> result = run(operation, request, object);
        if (!result.ok() && shifts) {
            BiasedSharedLock lock(object.state, node);
            begun = (object.inode.inode_flags & inode_flag::has_intent) != 0;
        }
        return result;
    });
    if (!done.ok()) {
        if (!begun) {
            return done;
        }
        // An error would say that nothing has changed. The next operation that needs the map finishes it, or gets the error.
        log_line(host::LogLevel::warning, "fallocate: node ", object.node,
                 ": some extents are not moved yet, the next access moves them");
    }
    return finish(object.last_ticket.load(std::memory_order_acquire));
}

Result<void> TiffinFileSystem::promise(uint64_t block_count) {
    TRY(volume_->check_writable());
    return volume_->with_room(SpacePriority::normal, [&]() -> Result<void> {
        if (volume_->allocator().promise(block_count)) {
            return {};
        }
        volume_->note_space_refusal();
        return Error::enospc;
    });
}

void TiffinFileSystem::return_promise(uint64_t block_count) {
    volume_->allocator().return_promise(block_count);
}

Result<void> TiffinFileSystem::reserve(vfs::NodeId node, uint64_t offset_bytes,
                                       uint64_t length_bytes) {
    TRY(volume_->check_writable());
    if (offset_bytes % kBlockBytes != 0 || length_bytes % kBlockBytes != 0) {
        return Error::einval;
    }
    if (offset_bytes >= kMaximumFileBytes || length_bytes > kMaximumFileBytes - offset_bytes) {
        return Error::efbig;
    }
    ObjectPin pin = TRY(objects_.get(node));
    Object& object = *pin;
    DataScratchLease scratch = TRY(data_scratch_.take());
    return volume_->with_room(SpacePriority::normal, [&]() -> Result<void> {
        RangeClaim claim;
        TRY(claim_blocks(object, block_at(offset_bytes), blocks_for(offset_bytes + length_bytes),
                         claim));
        ClaimScope claimed(object.claims, claim);
        SpaceRequest request{*this, *scratch, offset_bytes, length_bytes, true};
        // Unwritten blocks: overwriting what is mapped never fails for want of space.
        return fill_holes(request, object, block_at(offset_bytes),
                          blocks_for(offset_bytes + length_bytes));
    });
}

}  // namespace tiffin::tiffinfs
