// SPDX-License-Identifier: MIT OR GPL-2.0-only
// From the bytes on a device to a running volume: choosing the superblock, replaying the journal,
// taking ownership.
//
// Replay goes over the journal twice. The first pass finds the blocks that its records map, so that
// the second, which applies the records, does not put tree nodes into them. When the changed nodes
// become too many for memory, a checkpoint is made in the middle, between two frames.
#include "fs/base/allocate.h"
#include "fs/base/text.h"
#include "fs/tiffinfs/volume/choose_generation.h"
#include "fs/tiffinfs/volume/superblock.h"
#include "fs/tiffinfs/volume/transaction_workspace.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// How often replay looks through the rest of the journal for blocks it may use after all.
constexpr uint32_t kMaximumReplayRounds = 1000;

JournalPosition position_of(const Superblock& superblock) {
    return {superblock.journal_position, superblock.journal_sequence,
            superblock.journal_previous_checksum};
}

bool was_unmounted(const Superblock& superblock) {
    return (superblock.state & superblock_state::clean) != 0;
}

// Frees a set when it goes out of scope: it is too large for a kernel stack.
struct SetOwner {
    SuperblockSet* set = make_object<SuperblockSet>();
    ~SetOwner() { destroy_object(set); }
};

bool may_be_written(const Superblock& superblock) {
    return (superblock.read_only_compat_features & ~kKnownReadOnlyCompatFeatures) == 0;
}

Result<void> check_features(const Superblock& superblock, bool read_only) {
    if ((superblock.incompat_features & ~kKnownIncompatFeatures) != 0) {
        log_line(host::LogLevel::error, "the volume uses features this version does not know (",
                 Hex{superblock.incompat_features}, "): use a newer version");
        return Error::eopnotsupp;
    }
    if (!read_only && !may_be_written(superblock)) {
        log_line(host::LogLevel::error, "the volume uses features this version cannot write (",
                 Hex{superblock.read_only_compat_features}, "): mount it read-only");
        return Error::eopnotsupp;
    }
    return {};
}

}  // namespace

Result<void> Volume::start() {
    SetOwner owner;
    if (owner.set == nullptr) {
        return Error::enomem;
    }
    SuperblockSet& set = *owner.set;
    TRY(read_superblocks(device_, set));
    if (set.unusable != nullptr) {
        log_line(host::LogLevel::error, "the newest superblock cannot be used here: ", set.unusable,
                 "; nothing older is taken in its place");
        return Error::euclean;
    }
    if (set.count == 0) {
        if (!set.magic_seen) {
            return Error::einval;
        }
        log_line(host::LogLevel::error, "no copy of the superblock is valid");
        return Error::euclean;
    }
    if ((device_.geometry().read_only || options_.no_recovery) && !options_.read_only) {
        return Error::erofs;
    }
    TRY(check_features(set.found[0], options_.read_only));
    // Without recovery no other generation shows the same state.
    const GenerationChoice choice = TRY(choose_generation(device_, set, !options_.no_recovery));
    Superblock* const chosen = &set.found[choice.index];
    TRY(check_features(*chosen, options_.read_only));
    if (choice.damaged) {
        options_.read_only = true;
        errors_seen_.fetch_add(1, std::memory_order_relaxed);
        log_line(host::LogLevel::error,
                 "the tree is damaged in all generations that the volume has: it is read-only, and "
                 "nothing is written to "
                 "it, so that a repair finds all there is; unmount it and run fsck.tiffin");
    }
    if (chosen->generation != set.found[0].generation) {
        log_line(host::LogLevel::warning, "generation ", set.found[0].generation,
                 " is damaged: going back to generation ", chosen->generation,
                 " and replaying from there");
    }
    newest_generation_ = set.found[0].generation;
    for (uint32_t i = 0; i < set.count; ++i) {
        note_incarnation(set.found[i].incarnation);
    }
    // New nodes must not carry a generation that a lost superblock may have used, and the first new
    // superblock must not replace the one that we start from: its slot is that of the other parity.
    uint64_t generation = newest_generation_ + (set.damaged > 0 ? 3 : 1);
    if (generation % 2 == chosen->generation % 2) {
        ++generation;
    }
    if (set.damaged > 0 || choice.index != 0) {
        // Bitmaps of a lost generation may be about, so whatever it says it was not left cleanly.
        chosen->state &= ~superblock_state::clean;
    }
    {
        MutexLock lock(checkpoint_lock_);
        __builtin_memcpy(found_generations_, set.copy_generations, sizeof found_generations_);
        const bool may_be_newer = set.damaged > 0 || choice.index != 0;
        newer_end_blocks_ = may_be_newer ? set.found[0].total_blocks : 0;
    }
    return start_from(*chosen, generation);
}

Result<void> Volume::start_from(const Superblock& superblock, uint64_t generation) {
    superblock_ = superblock;
    incarnation_ = superblock.incarnation;
    // From the beginning, so that not even damage is noted on the device.
    read_only_.store(options_.no_recovery, std::memory_order_relaxed);
    next_node_.store(superblock.next_node, std::memory_order_relaxed);
    node_count_.reset(static_cast<int64_t>(superblock.node_count));
    if ((superblock.state & superblock_state::errors) != 0) {
        errors_seen_.fetch_add(1, std::memory_order_relaxed);
        log_line(host::LogLevel::warning,
                 "damage was met when the volume was mounted before: unmount it and run "
                 "fsck.tiffin");
    }
    {
        MutexLock lock(checkpoint_lock_);
        durable_ = superblock;
    }
    TRY(allocator_.start(superblock));
    if (!options_.read_only) {
        // Before the first seal, which replay may already need.
        TRY(begin_timeline());
    }
    TRY(cache_.start(superblock.volume_nonce, superblock.total_blocks));
    pool_.start();
    tree_.start({superblock.root_block, superblock.root_generation,
                 static_cast<uint8_t>(superblock.root_level)},
                generation);
    replay_position_ = position_of(superblock);
    if (!options_.no_recovery) {
        replaying_ = true;
        TRY(replay(superblock));
        replaying_ = false;
    }
    if (options_.read_only) {
        // Nothing is written: what was replayed stays in memory.
        read_only_.store(true, std::memory_order_relaxed);
        return {};
    }
    TRY(become_writer());
    offer_growth();
    return start_maintenance();
}

Result<void> Volume::begin_timeline() {
    MutexLock lock(checkpoint_lock_);
    if (allocator_.replaces_lost_bitmaps(durable_)) {
        void* page = host::allocate_pages(kBlockBytes);
        if (page == nullptr) {
            return Error::enomem;
        }
        const Result<void> secured = secure_start(page);
        host::release_pages(page, kBlockBytes);
        TRY(secured);
    }
    return allocator_.begin_timeline(durable_);
}

// Raises the incarnation durably, together with all that replay changed, before the first append. May be
// called again when it has failed.
Result<void> Volume::become_writer() {
    {
        MutexLock lock(checkpoint_lock_);
        if (journal_.capacity_bytes() == 0) {
            note_incarnation(durable_.incarnation);
            incarnation_ = newest_incarnation_ + 1;
            TRY(journal_.start(superblock_, replay_position_, position_of(durable_), incarnation_,
                               tree_.generation()));
        }
        const Superblock before = durable_;
        durable_.mount_count++;
        Result<void> written = checkpoint_locked(Ending::none);
        if (!written.ok()) {
            durable_ = before;
            return written;
        }
    }
    is_writer_ = true;
    return {};
}

Result<void> Volume::remount(bool read_only) {
    TRY(check_running());
    if (read_only == this->read_only()) {
        return {};
    }
    if (read_only) {
        MutexLock lock(checkpoint_lock_);
        return checkpoint_locked(Ending::read_only);
    }
    return has_errors() ? Error::erofs : start_writing(0);
}

Result<void> Volume::thaw(uint64_t errors_before) {
    TRY(check_running());
    if (errors_seen() != errors_before && options_.errors == ErrorsPolicy::remount_read_only) {
        stopped_by_error_.store(true, std::memory_order_relaxed);
        wake_maintenance();
        return Error::erofs;
    }
    return start_writing(errors_before);
}

Result<void> Volume::start_writing(uint64_t errors_before) {
    // Without recovery the journal would be lost with the first write.
    if (!may_be_written(superblock_) || options_.no_recovery) {
        return Error::erofs;
    }
    TRY(device_.start_writing());
    if (is_writer_) {
        // The superblock says that the volume is clean, which must be undone before the first write.
        MutexLock lock(checkpoint_lock_);
        TRY(checkpoint_locked(Ending::none));
    } else {
        // Opened read-only: this is the first time that anything is written.
        TRY(begin_timeline());
        TRY(become_writer());
    }
    TRY(start_maintenance());
    // In this order, and the reverse in damage_met(): one of the two sees the other.
    read_only_.store(false);
    if (errors_seen_.load() != errors_before) {
        apply_errors_policy();
    }
    return check_writable();
}

Result<void> Volume::protect_journal_blocks(const Superblock& superblock, uint64_t& frames) {
    JournalReader reader(device_);
    TRY(reader.start(superblock, replay_position_, was_unmounted(superblock)));
    frames = 0;
    while (true) {
        FrameHeader header;
        ByteSpan payload = TRY(reader.next(header));
        if (payload.empty()) {
            return {};
        }
        frames++;
        RecordIterator records(payload);
        RecordIterator::Record record;
        while (TRY(records.next(record))) {
            if (record.type != RecordType::write_extent) {
                continue;
            }
            if (!check_new_extent(record.value, superblock.total_blocks)) {
                return report_damage("an impossible extent in the journal", record.key.node,
                                     record.key.offset());
            }
            ExtentValue extent;
            __builtin_memcpy(&extent, record.value.data(), sizeof(extent));
            TRY(allocator_.protect_for_replay({extent.physical_block, extent.block_count}));
        }
    }
}

Result<void> Volume::replay(const Superblock& superblock) {
    uint64_t frames = 0;
    Result<void> protecting = protect_journal_blocks(superblock, frames);
    if (!protecting.ok()) {
        allocator_.end_replay();
        return protecting;
    }
    JournalReader reader(device_);
    TRY(reader.start(superblock, replay_position_, was_unmounted(superblock)));
    TransactionWorkspace* workspace = take_workspace();
    if (workspace == nullptr) {
        return Error::enomem;
    }
    Result<void> result;
    while (result.ok()) {
        FrameHeader header;
        Result<ByteSpan> payload = reader.next(header);
        if (!payload.ok() || payload->empty()) {
            result = payload.ok() ? Result<void>() : Result<void>(payload.error());
            break;
        }
        note_incarnation(header.incarnation);
        result = replay_frame(payload.value(), *workspace);
        replay_position_ = reader.position();
        if (result.ok() && !options_.read_only && memory_is_full()) {
            MutexLock lock(checkpoint_lock_);
            result = checkpoint_locked(Ending::none);
        }
    }
    give_back_workspace(workspace);
    allocator_.end_replay();
    allocator_.release_data_frees(0, false);
    TRY(result);
    replay_position_ = reader.position();
    note_incarnation(reader.newest_incarnation());
    if (frames > 0 || reader.torn_bytes() > 0) {
        log_line(host::LogLevel::info, "replayed ", frames, " journal frames");
    }
    if (reader.torn_bytes() > 0) {
        log_line(host::LogLevel::warning,
                 "the journal ends in a frame that was cut off, as a power failure does before it "
                 "is acknowledged: its ",
                 reader.torn_bytes(), " bytes are discarded");
    }
    return {};
}

Result<void> Volume::replay_frame(ByteSpan payload, TransactionWorkspace& workspace) {
    RecordIterator records(payload);
    RecordIterator::Record record;
    while (TRY(records.next(record))) {
        bool scattered = record.type == RecordType::put || record.type == RecordType::erase;
        const bool impossible_value =
            record.type == RecordType::put &&
            (record.value.size() > kMaximumValueBytes || record.key.kind() == Kind::extent) &&
            !(record.key.kind() == Kind::extent && check_extent(record.value, total_blocks()));
        if (impossible_value || record.key.node > kMaximumNode) {
            return report_damage("an impossible record in the journal", record.key.node,
                                 record.key.offset());
        }
        Result<void> prepared = prepare_record(workspace, record.type, record.key, record.value);
        Result<void> reserved;
        if (prepared.ok()) {
            // At neighbouring keys every pinned node may be copied, and both ends split. Only so much:
            // a full volume has not much more.
            const uint32_t nodes = scattered
                                       ? tree_.nodes_needed(1, 0).total()
                                       : workspace.pins.size() + tree_.nodes_needed(2, 0).total();
            reserved = reserve_for_replay(nodes, workspace);
        }
        if (prepared.ok() && reserved.ok()) {
            int change = apply_record(workspace, record.type, record.key, record.value);
            node_count_.add(change);
            for (uint32_t i = 0; i < workspace.freed.size(); ++i) {
                allocator_.mark_data_free(workspace.freed[i], 0);
            }
            if (record.type == RecordType::put && record.key.kind() == Kind::inode &&
                record.key.node >= next_node_.load(std::memory_order_relaxed)) {
                next_node_.store(record.key.node + 1, std::memory_order_relaxed);
            }
        }
        workspace.freed.clear();
        workspace.pins.release();
        pool_.unreserve(workspace.reservation);
        if (!prepared.ok()) {
            log_line(host::LogLevel::error, "the journal does not fit the tree it belongs to");
            return prepared;
        }
        TRY(reserved);
    }
    return {};
}

// Reserves nodes for one record. Without space it looks at what is known better by now: blocks that the
// journal has freed so far may be used, but for those that it maps from here on.
Result<void> Volume::reserve_for_replay(uint32_t nodes, TransactionWorkspace& workspace) {
    Result<void> reserved = pool_.reserve(nodes, SpacePriority::privileged, workspace.reservation);
    if (reserved.ok() || reserved.error() != Error::enospc ||
        replay_rounds_++ == kMaximumReplayRounds) {
        return reserved;
    }
    if (!options_.read_only) {
        // The frames may have been read from a volatile cache. What they freed must not be
        // overwritten as long as they can be lost.
        TRY(flush_device());
    }
    allocator_.end_replay();
    allocator_.release_data_frees(0, true);
    uint64_t frames = 0;
    TRY(protect_journal_blocks(superblock_, frames));
    return pool_.reserve(nodes, SpacePriority::privileged, workspace.reservation);
}

}  // namespace tiffin::tiffinfs
