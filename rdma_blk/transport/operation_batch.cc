// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/transport/operation_batch.h"

#include <algorithm>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

bool is_within_limits(const Operation& operation, const Limits& limits) {
    switch (operation.kind) {
        case OperationKind::read:
        case OperationKind::write: {
            const uint64_t bytes = transfer_bytes(operation);
            return operation.buffer_count <= limits.buffer_count &&
                   bytes <= limits.transfer_bytes &&
                   operation.offset_bytes <= wire::kMaxSpaceBytes - bytes;
        }
        case OperationKind::compare_swap:
        case OperationKind::fetch_add:
            return operation.offset_bytes % sizeof(uint64_t) == 0 &&
                   operation.offset_bytes <= wire::kMaxSpaceBytes - sizeof(uint64_t);
        case OperationKind::flush:
            return operation.range_count <= limits.flush_range_count &&
                   std::all_of(operation.ranges, operation.ranges + operation.range_count,
                               [](const ByteRange& range) {
                                   return range.length_bytes <= wire::kMaxSpaceBytes &&
                                          range.offset_bytes <=
                                              wire::kMaxSpaceBytes - range.length_bytes;
                               });
    }
    return false;
}

SortedOperations sort_operations(Operation& first, const Limits& limits) {
    SortedOperations sorted;
    uint64_t now_ns = 0;  // the clock is read only when there are deadlines
    const auto is_late_now = [&now_ns](const Operation& operation) {
        if (operation.deadline_ns != 0 && now_ns == 0) {
            now_ns = host::monotonic_ns();
        }
        return is_late(operation, now_ns);
    };
    Operation* operation = &first;
    while (operation != nullptr) {
        Operation* next = operation->next;
        const bool follows_rejected =
            operation->after_earlier && sorted.rejected.front() != nullptr;
        if (!is_within_limits(*operation, limits)) {
            operation->error = Error::einval;
            sorted.rejected.push_back(*operation);
        } else if (follows_rejected || is_late_now(*operation)) {
            operation->error = follows_rejected ? Error::ecanceled : Error::etimedout;
            sorted.rejected.push_back(*operation);
        } else {
            sorted.accepted.push_back(*operation);
        }
        operation = next;
    }
    return sorted;
}

void count_operations(const OperationQueue& batch, Statistics& statistics) {
    for (const Operation* operation = batch.front(); operation != nullptr;
         operation = operation->next) {
        statistics.operations[static_cast<size_t>(operation->kind) % 6]++;
    }
}

void complete_rejected(const OperationQueue& rejected, Statistics& statistics) {
    count_operations(rejected, statistics);
    Operation* operation = rejected.front();
    while (operation != nullptr) {
        Operation* next = operation->next;
        statistics.outcomes[static_cast<size_t>(Outcome::not_executed)]++;
        complete_operation(*operation, Outcome::not_executed);
        operation = next;
    }
}

}  // namespace tiffin::rdma_blk
