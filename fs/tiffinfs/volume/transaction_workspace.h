// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a transaction works with; kept by the volume and used again, so that a transaction allocates
// nothing in the steady state.
#pragma once

#include <cstdint>

#include "fs/tiffinfs/format.h"
#include "fs/tiffinfs/tree/node_cache.h"
#include "fs/tiffinfs/volume/extents.h"
#include "fs/tiffinfs/volume/transaction.h"

namespace tiffin::tiffinfs {

struct TransactionWorkspace {
    // Workspaces with a larger record buffer than this are not kept.
    static constexpr uint32_t kKeptRecordBytes = 64U << 10;
    static constexpr uint32_t kInitialRecordBytes = 4096;

    TransactionWorkspace(NodeCache& cache, Tree& tree, Allocator& allocator)
        : pins(cache), context{tree, allocator, reservation, freed, {}, {}} {}
    ~TransactionWorkspace();
    TransactionWorkspace(const TransactionWorkspace&) = delete;
    TransactionWorkspace& operator=(const TransactionWorkspace&) = delete;

    // Room for `size_bytes` more of records. Errors: enomem.
    Result<unsigned char*> extend(uint32_t size_bytes);

    unsigned char* records = nullptr;
    uint32_t records_bytes = 0;
    uint32_t records_capacity = 0;
    uint32_t last_record = 0;  // where it begins
    uint32_t record_count = 0;
    uint32_t journal_reserved = 0;
    uint64_t journal_pending_bytes = 0;  // when this was appended
    bool prepared = false;
    SpacePriority priority = SpacePriority::normal;
    TransactionSize size;
    uint32_t splits = 0;  // that its changes could need at most when it began
    NodeReservation reservation;
    NodePins pins;
    FreedRanges freed;
    ApplyContext context;
    uint32_t gate_part = 0;
};

// Loads what applying one record needs; part of Transaction::prepare and of replay.
Result<void> prepare_record(TransactionWorkspace& workspace, RecordType type, Key key,
                            ByteSpan value);
// Applies one record to the tree and the allocator. Returns by how much the number of inodes changed.
int apply_record(TransactionWorkspace& workspace, RecordType type, Key key, ByteSpan value);

}  // namespace tiffin::tiffinfs
