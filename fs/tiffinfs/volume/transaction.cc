// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Transactions: staging, preparing, committing.
#include "fs/tiffinfs/volume/transaction.h"

#include "fs/base/text.h"
#include "fs/tiffinfs/volume/transaction_workspace.h"
#include "fs/tiffinfs/volume/volume.h"
#include "fs/vfs/host.h"

namespace tiffin::tiffinfs {
namespace {

// What a record of an unrelated key takes in the journal at most: inline data is the largest common
// value.
constexpr uint32_t kScatteredRecordBytes = sizeof(RecordHeader) + 1280;
// How often begin() makes room, or waits for it, for transactions that free space.
constexpr uint32_t kMaximumSpaceAttempts = 8;

constexpr uint32_t padded(uint32_t size_bytes) { return (size_bytes + 3U) & ~3U; }

}  // namespace

TransactionWorkspace::~TransactionWorkspace() { host::release(records, records_capacity); }

Result<unsigned char*> TransactionWorkspace::extend(uint32_t size_bytes) {
    if (records_bytes + size_bytes > records_capacity) {
        uint32_t capacity = records_capacity == 0 ? kInitialRecordBytes : records_capacity;
        while (capacity < records_bytes + size_bytes) {
            capacity *= 2;
        }
        auto* grown = static_cast<unsigned char*>(host::allocate(capacity));
        if (grown == nullptr) {
            return Error::enomem;
        }
        if (records_bytes > 0) {
            __builtin_memcpy(grown, records, records_bytes);
        }
        host::release(records, records_capacity);
        records = grown;
        records_capacity = capacity;
    }
    unsigned char* place = records + records_bytes;
    records_bytes += size_bytes;
    return place;
}

uint64_t Transaction::generation() const { return volume_.tree().generation(); }

Result<void> Transaction::begin(SpacePriority priority, TransactionSize size, RoomPolicy room) {
    TIFFIN_EXPECT(volume_, !open());
    uint32_t journal_bytes = static_cast<uint32_t>(sizeof(TransactionHeader)) +
                             size.scattered * kScatteredRecordBytes + size.contiguous_bytes;
    uint32_t space_attempt = 0;
    while (true) {
        TRY(volume_.check_writable());
        if (journal_bytes > volume_.journal().maximum_transaction_bytes()) {
            return Error::enospc;  // a small journal never has room for it
        }
        const uint64_t checkpoints = volume_.counters().checkpoints.load(std::memory_order_acquire);
        if (volume_.must_checkpoint()) {
            TRY(volume_.checkpoint_after(checkpoints));
            continue;
        }
        TransactionWorkspace* workspace = volume_.take_workspace();
        if (workspace == nullptr) {
            return Error::enomem;
        }
        workspace->gate_part = volume_.gate_.enter();
        // Again: a seal for the switch to read-only may have been waited for.
        Result<void> reserved = volume_.check_writable();
        bool space_is_short = false;
        if (reserved.ok()) {
            const NodesNeeded needed =
                volume_.tree().nodes_needed(size.scattered, size.contiguous_bytes);
            workspace->size = size;
            workspace->splits = needed.splits;
            reserved = volume_.pool().reserve(needed.total(), priority, workspace->reservation);
            space_is_short = !reserved.ok() && reserved.error() == Error::enospc;
        }
        if (reserved.ok() && volume_.journal().try_reserve(journal_bytes)) {
            workspace->journal_reserved = journal_bytes;
            workspace->priority = priority;
            workspace_ = workspace;
            return {};
        }
        volume_.pool().unreserve(workspace->reservation);
        volume_.gate_.leave(workspace->gate_part);
        volume_.give_back_workspace(workspace);
        if (reserved.ok()) {
            // Checkpoints free the ring, so this comes to an end.
            TRY(volume_.checkpoint_after(checkpoints));
        } else if (!space_is_short) {
            return reserved.error();
        } else if (room == RoomPolicy::as_it_is) {
            return Error::enospc;
        } else if (!volume_.make_room(space_attempt++, priority, RoomWait::none)) {
            // Other open transactions may hold what one that frees space needs: it comes back with
            // their end, which a checkpoint waits for.
            if (priority != SpacePriority::privileged || space_attempt >= kMaximumSpaceAttempts ||
                volume_.pool().reserved_nodes() == 0) {
                return Error::enospc;
            }
            TRY(volume_.checkpoint());
        }
    }
}

void Transaction::end() {
    if (workspace_ == nullptr) {
        return;
    }
    TIFFIN_ASSERT(!is_applied_);
    workspace_->pins.release();
    workspace_->freed.clear();
    volume_.pool().unreserve(workspace_->reservation);
    if (workspace_->journal_reserved > 0) {
        volume_.journal().unreserve(workspace_->journal_reserved);
        workspace_->journal_reserved = 0;
    }
    workspace_->records_bytes = 0;
    workspace_->record_count = 0;
    workspace_->prepared = false;
    volume_.gate_.leave(workspace_->gate_part);
    volume_.give_back_workspace(workspace_);
    workspace_ = nullptr;
}

// Adds a record's header and returns the place for its value.
Result<unsigned char*> Transaction::stage(RecordType type, Key key, uint32_t value_bytes) {
    TIFFIN_EXPECT(volume_, open() && !workspace_->prepared);
    uint32_t record_bytes = static_cast<uint32_t>(sizeof(RecordHeader)) + padded(value_bytes);
    uint32_t needed =
        static_cast<uint32_t>(sizeof(TransactionHeader)) + workspace_->records_bytes + record_bytes;
    if (needed > workspace_->journal_reserved) {
        // One reservation replaces the other: the journal counts each with its own overhead.
        if (!volume_.journal().try_reserve(needed)) {
            return Error::enospc;
        }
        volume_.journal().unreserve(workspace_->journal_reserved);
        workspace_->journal_reserved = needed;
    }
    unsigned char* place = TRY(workspace_->extend(record_bytes));
    workspace_->last_record = workspace_->records_bytes - record_bytes;
    RecordHeader header{type, 0, static_cast<uint16_t>(value_bytes), key};
    __builtin_memcpy(place, &header, sizeof(header));
    __builtin_memset(place + sizeof(header) + value_bytes, 0, padded(value_bytes) - value_bytes);
    workspace_->record_count++;
    return place + sizeof(RecordHeader);
}

Result<void> Transaction::put(Key key, ByteSpan value, ByteSpan more_value) {
    TIFFIN_EXPECT(volume_, value.size() + more_value.size() <= kMaximumValueBytes);
    unsigned char* place =
        TRY(stage(RecordType::put, key, static_cast<uint32_t>(value.size() + more_value.size())));
    if (!value.empty()) {
        __builtin_memcpy(place, value.data(), value.size());
    }
    if (!more_value.empty()) {
        __builtin_memcpy(place + value.size(), more_value.data(), more_value.size());
    }
    return {};
}

Result<void> Transaction::erase(Key key) {
    TRY(stage(RecordType::erase, key, 0));
    return {};
}

Result<void> Transaction::erase_range(Key first, Key end) {
    unsigned char* place = TRY(stage(RecordType::erase_range, first, sizeof(Key)));
    __builtin_memcpy(place, &end, sizeof(Key));
    return {};
}

Result<void> Transaction::write_extent(uint64_t node, uint64_t file_block, uint64_t physical_block,
                                       uint32_t block_count, uint32_t flags,
                                       Span<const uint32_t> checksums) {
    TIFFIN_EXPECT(volume_,
                  checksums.size() == ((flags & extent_flag::unwritten) != 0 ? 0 : block_count));
    ExtentValue value{physical_block, generation(), block_count, flags};
    size_t checksum_bytes = checksums.size() * sizeof(uint32_t);
    unsigned char* place =
        TRY(stage(RecordType::write_extent, make_key(node, Kind::extent, file_block),
                  static_cast<uint32_t>(sizeof(value) + checksum_bytes)));
    __builtin_memcpy(place, &value, sizeof(value));
    if (checksum_bytes > 0) {
        __builtin_memcpy(place + sizeof(value), checksums.data(), checksum_bytes);
    }
    return {};
}

Result<void> Transaction::unmap(uint64_t node, uint64_t file_block, uint64_t block_count) {
    unsigned char* place =
        TRY(stage(RecordType::unmap, make_key(node, Kind::extent, file_block), sizeof(uint64_t)));
    __builtin_memcpy(place, &block_count, sizeof(block_count));
    return {};
}

namespace {

// Calls function(type, key, value) for each staged record that begins in [offset, end) until one fails.
template <typename Function>
Result<void> for_each_record(const TransactionWorkspace& workspace, uint32_t offset, uint32_t end,
                             Function function) {
    while (offset < end) {
        RecordHeader header;
        __builtin_memcpy(&header, workspace.records + offset, sizeof(header));
        offset += sizeof(header);
        TRY(function(header.type, header.key,
                     ByteSpan(workspace.records + offset, header.value_bytes)));
        offset += padded(header.value_bytes);
    }
    return {};
}

}  // namespace

Result<void> Transaction::prepare() {
    TIFFIN_EXPECT(volume_, open());
    TRY(for_each_record(*workspace_, 0, workspace_->records_bytes,
                        [&](RecordType type, Key key, ByteSpan value) {
                            return prepare_record(*workspace_, type, key, value);
                        }));
    TRY(reserve_copies());
    workspace_->prepared = true;
    return {};
}

// begin() had to guess in how many nodes the changes lie: where leaves are sparse, many. Now they are
// known, and so is what is needed at most. The tree may have grown since, and have more levels to split.
Result<void> Transaction::reserve_copies() {
    NodeReservation& reservation = workspace_->reservation;
    const TransactionSize& size = workspace_->size;
    const uint32_t splits =
        volume_.tree().nodes_needed(size.scattered, size.contiguous_bytes).splits;
    const uint32_t needed = workspace_->pins.count_older(volume_.tree().generation()) +
                            (splits > workspace_->splits ? splits : workspace_->splits);
    if (reservation.nodes < needed) {
        Result<void> reserved =
            volume_.pool().reserve(needed - reservation.nodes, workspace_->priority, reservation);
        if (!reserved.ok()) {
            if (reserved.error() == Error::enospc) {
                volume_.note_space_refusal();
            }
            return reserved;
        }
    }
    reservation.kept = needed;
    reservation.pins = &workspace_->pins;
    return {};
}

void Transaction::apply(uint32_t begin, uint32_t end) {
    TIFFIN_ASSERT(open() && workspace_->prepared);
    int node_change = 0;
    Result<void> applied = for_each_record(
        *workspace_, begin, end, [&](RecordType type, Key key, ByteSpan value) -> Result<void> {
            node_change += apply_record(*workspace_, type, key, value);
            return {};
        });
    TIFFIN_ASSERT(applied.ok());
    if (node_change != 0) {
        volume_.node_count_.add(node_change);
    }
}

uint64_t Transaction::append() {
    const uint64_t ticket = volume_.journal().append(
        ByteSpan(workspace_->records, workspace_->records_bytes), workspace_->record_count,
        workspace_->journal_reserved, &workspace_->journal_pending_bytes);
    workspace_->journal_reserved = 0;
    for (uint32_t i = 0; i < workspace_->freed.size(); ++i) {
        volume_.allocator().mark_data_free(workspace_->freed[i], ticket);
    }
    return ticket;
}

void Transaction::finish() {
    TIFFIN_ASSERT(workspace_->journal_reserved == 0);  // the journal has it
    is_applied_ = false;
    volume_.counters().transactions.add(1);
    const uint64_t pending_bytes = workspace_->journal_pending_bytes;
    end();
    volume_.after_commit(pending_bytes);
}

uint64_t Transaction::commit() {
    TIFFIN_ASSERT(!is_applied_);
    apply(0, workspace_->records_bytes);
    const uint64_t ticket = append();
    finish();
    return ticket;
}

void Transaction::apply_all_but_last() {
    TIFFIN_ASSERT(!is_applied_);
    is_applied_ = true;
    apply(0, workspace_->last_record);
}

uint64_t Transaction::commit_last(ByteSpan value) {
    TIFFIN_ASSERT(is_applied_);
    unsigned char* const record = workspace_->records + workspace_->last_record;
    RecordHeader header;
    __builtin_memcpy(&header, record, sizeof(header));
    TIFFIN_ASSERT(header.type == RecordType::put && header.value_bytes == value.size());
    __builtin_memcpy(record + sizeof(header), value.data(), value.size());
    apply(workspace_->last_record, workspace_->records_bytes);
    return append();
}

}  // namespace tiffin::tiffinfs
