// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Work on one file that takes more than one transaction: an intent in the tree says what is left to do,
// so that it goes on after a crash or a failure. The inode's flag says that there is one.
#include "fs/base/text.h"
#include "fs/tiffinfs/data/extent_walk.h"
#include "fs/tiffinfs/data/file_data.h"

namespace tiffin::tiffinfs {
namespace {

Key intent_key(uint64_t node) { return make_key(kVolumeNode, Kind::intent, node); }

// Reads the intent of an object whose flag is set; type 0 when there is none.
Result<IntentValue> load_intent(Volume& volume, uint64_t node) {
    IntentValue intent{};
    Result<void> got = volume.tree().get_value(intent_key(node), intent);
    if (!got.ok() && got.error() != Error::enoent) {
        if (got.error() == Error::euclean || got.error() == Error::erange) {
            return volume.report_damage("intent", node, 0);
        }
        return got.error();
    }
    return intent;
}

Result<void> finish_truncate(TiffinFileSystem& file_system, Object& object,
                             const IntentValue& intent) REQUIRES(object.claims, object.state) {
    // Never blocks that the file's size covers.
    uint64_t first = blocks_for(object.inode.size_bytes);
    first = intent.first_block > first ? intent.first_block : first;
    while (first < kMaximumFileBlocks) {
        first = TRY(
            free_blocks_step(file_system, object, first, kMaximumFileBlocks, ContentTimes::keep));
    }
    return {};
}

// What both directions of shifting must hold for the numbers in an intent.
bool check_shift(const IntentValue& intent) {
    return intent.shift_blocks > 0 && intent.shift_blocks <= kMaximumFileBlocks &&
           intent.first_block <= kMaximumFileBlocks - intent.shift_blocks &&
           intent.next_block >= intent.first_block && intent.next_block <= kMaximumFileBlocks;
}

// Stages the move of the extent in `found` from its key to `new_block`.
Result<void> stage_move(Transaction& transaction, const KeyAndValue& found, uint64_t new_block) {
    TRY(transaction.erase(found.key));
    return transaction.put(make_key(found.key.node, Kind::extent, new_block), found.bytes());
}

// One transaction's worth of extents at and behind intent.next_block moves down. Returns false when
// there are none left.
Result<bool> shift_down_step(Volume& volume, Object& object, IntentValue& intent,
                             DataScratch& scratch) REQUIRES(object.claims, object.state) {
    constexpr uint32_t kMoves = kStepExtents / 2;
    CountedRange counted =
        TRY(count_extents(volume, object.node, intent.next_block, kMaximumFileBlocks, kMoves));
    if (counted.usage.extent_count == 0) {
        return false;
    }
    Transaction transaction(volume);
    TransactionSize size{.scattered = 1, .contiguous_bytes = 2 * counted.usage.extent_bytes};
    TRY(transaction.begin(SpacePriority::privileged, size));
    for (uint32_t i = 0; i < counted.usage.extent_count; ++i) {
        TRY(volume.tree().find_first(make_key(object.node, Kind::extent, intent.next_block),
                                     make_key(object.node, Kind::extent, kMaximumFileBlocks),
                                     scratch.found));
        MappedExtent extent;
        if (!parse_extent(scratch.found.key, scratch.found.bytes(), volume.total_blocks(),
                          extent)) {
            return volume.report_damage("extent", object.node, scratch.found.key.offset());
        }
        TRY(stage_move(transaction, scratch.found, extent.file_block - intent.shift_blocks));
        intent.next_block = extent.end_block();
    }
    TRY(transaction.put_value(intent_key(object.node), intent));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    return true;
}

Result<void> finish_shift_down(TiffinFileSystem& file_system, Object& object, IntentValue intent,
                               DataScratch& scratch) REQUIRES(object.claims, object.state) {
    uint64_t source = intent.first_block + intent.shift_blocks;
    if (intent.next_block < source) {
        // Nothing has moved yet: what lies in the range is what goes away.
        uint64_t first = intent.first_block;
        while (first < source) {
            first = TRY(free_blocks_step(file_system, object, first, source, ContentTimes::keep));
        }
        intent.next_block = source;
    }
    while (TRY(shift_down_step(file_system.volume(), object, intent, scratch))) {
    }
    return {};
}

// One transaction's worth of extents below intent.next_block moves up, the last first. Returns false
// when there are none left.
Result<bool> shift_up_step(Volume& volume, Object& object, IntentValue& intent,
                           DataScratch& scratch) REQUIRES(object.claims, object.state) {
    constexpr uint32_t kMoves = 16;
    constexpr uint32_t kLargestExtentBytes =
        sizeof(LeafSlot) + sizeof(ExtentValue) + sizeof(uint32_t) * kWrittenExtentMaximumBlocks;
    Transaction transaction(volume);
    TransactionSize size{.scattered = 1, .contiguous_bytes = 2 * kMoves * kLargestExtentBytes};
    TRY(transaction.begin(SpacePriority::privileged, size));
    uint32_t moves = 0;
    while (moves < kMoves && intent.next_block > intent.first_block) {
        Result<void> found = volume.tree().find_last(
            make_key(object.node, Kind::extent, intent.next_block - 1),
            make_key(object.node, Kind::extent, intent.first_block), scratch.found);
        if (!found.ok()) {
            if (found.error() != Error::enoent) {
                return found.error();
            }
            break;
        }
        MappedExtent extent;
        if (!parse_extent(scratch.found.key, scratch.found.bytes(), volume.total_blocks(),
                          extent) ||
            extent.end_block() > kMaximumFileBlocks - intent.shift_blocks) {
            return volume.report_damage("extent", object.node, scratch.found.key.offset());
        }
        TRY(stage_move(transaction, scratch.found, extent.file_block + intent.shift_blocks));
        intent.next_block = extent.file_block;
        ++moves;
    }
    if (moves == 0) {
        return false;
    }
    TRY(transaction.put_value(intent_key(object.node), intent));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    return true;
}

}  // namespace

Result<void> finish_intent(TiffinFileSystem& file_system, Object& object, DataScratch& scratch) {
    Volume& volume = file_system.volume();
    TRY(volume.check_writable());
    IntentValue intent = TRY(load_intent(volume, object.node));
    switch (intent.type) {
        case IntentType::truncate:
            TRY(finish_truncate(file_system, object, intent));
            break;
        case IntentType::shift_down:
        case IntentType::shift_up:
            if (!check_shift(intent)) {
                return volume.report_damage("intent", object.node, intent.first_block);
            }
            if (intent.type == IntentType::shift_down) {
                TRY(finish_shift_down(file_system, object, intent, scratch));
            } else {
                while (TRY(shift_up_step(volume, object, intent, scratch))) {
                }
            }
            break;
        default:
            if (static_cast<uint32_t>(intent.type) != 0) {
                return volume.report_damage("intent", object.node,
                                            static_cast<uint32_t>(intent.type));
            }
    }
    return end_intent(file_system, object);
}

Result<void> end_intent(TiffinFileSystem& file_system, Object& object) {
    InodeValue inode = object.inode;
    inode.inode_flags &= ~inode_flag::has_intent;
    Transaction transaction(file_system.volume());
    TRY(transaction.begin(SpacePriority::privileged, {.scattered = 2}));
    TRY(transaction.erase(intent_key(object.node)));
    TRY(transaction.put_value(make_key(object.node, Kind::inode, 0), inode));
    TRY(transaction.prepare());
    raise_ticket(object, transaction.commit());
    object.inode = inode;
    return {};
}

Result<bool> intent_blocks_reading(Volume& volume, const Object& object) {
    IntentValue intent = TRY(load_intent(volume, object.node));
    return intent.type == IntentType::shift_down || intent.type == IntentType::shift_up;
}

Result<void> finish_intent_unlocked(TiffinFileSystem& file_system, Object& object) {
    RangeClaim claim;
    TRY(file_system.claim_blocks(object, 0, RangeClaim::kEndOfFile, claim));
    const ClaimScope released(object.claims, claim);
    return {};
}

// Not analysed, since the claim outlives the function.
Result<void> TiffinFileSystem::claim_blocks(Object& object, uint64_t first_block,
                                            uint64_t end_block,
                                            RangeClaim& claim) NO_THREAD_SAFETY_ANALYSIS {
    object.claims.acquire(claim, first_block, end_block);
    while (true) {
        bool has_intent = false;
        bool needs_all = false;
        {
            BiasedSharedLock lock(object.state, object.node);
            const bool has_data = !object.deleted && object.is_regular();
            has_intent = has_data && (object.inode.inode_flags & inode_flag::has_intent) != 0;
            needs_all = has_intent || (has_data && is_inline(object.inode));
        }
        if (needs_all && !claim.covers_file()) {
            object.claims.release(claim);
            object.claims.acquire(claim, 0, RangeClaim::kEndOfFile);
            continue;
        }
        if (!has_intent) [[likely]] {
            return {};
        }
        Result<DataScratchLease> scratch = data_scratch_.take();
        Result<void> finished = scratch.ok() ? Result<void>() : Result<void>(scratch.error());
        if (scratch.ok()) {
            BiasedExclusiveLock lock(object.state, object.node);
            const bool has_gone =
                object.deleted || (object.inode.inode_flags & inode_flag::has_intent) == 0;
            finished = has_gone ? Result<void>() : finish_intent(*this, object, **scratch);
        }
        if (!finished.ok()) {
            object.claims.release(claim);
            return finished;
        }
    }
}

namespace {

// Erases an intent that belongs to no file, or to one whose inode does not know of it.
Result<void> drop_intent(Volume& volume, uint64_t node, const IntentValue& intent) {
    log_line(host::LogLevel::warning, "intent: node ", node, ": type ",
             static_cast<uint32_t>(intent.type), " belongs to no file, dropped");
    Transaction transaction(volume);
    TRY(transaction.begin(SpacePriority::privileged, {.scattered = 1}));
    TRY(transaction.erase(intent_key(node)));
    TRY(transaction.prepare());
    transaction.commit();
    return {};
}

}  // namespace

Result<void> TiffinFileSystem::resume_intent(uint64_t node, const IntentValue& intent) {
    Result<ObjectPin> pin = objects_.get(node);
    if (!pin.ok()) {
        // Ids are never used again, so the key belongs to no file.
        return pin.error() == Error::estale ? drop_intent(*volume_, node, intent) : pin.error();
    }
    Object& object = **pin;
    {
        BiasedExclusiveLock lock(object.state, node);
        if ((object.inode.inode_flags & inode_flag::has_intent) == 0) {
            // Another thread may have finished it since it was found, or even have begun something new; only
            // under the lock is it known that no intent of this file is wanted.
            const IntentValue now = TRY(load_intent(*volume_, node));
            return static_cast<uint32_t>(now.type) == 0 ? Result<void>()
                                                        : drop_intent(*volume_, node, now);
        }
    }
    return finish_intent_unlocked(*this, object);
}

}  // namespace tiffin::tiffinfs
