// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What every transport does with a list of operations that is handed to its submit(): what cannot be carried out is
// parted from what can, outside of all locks, and completes at once.
#pragma once

#include "rdma_blk/remote_memory.h"
#include "rdma_blk/session/operation_queue.h"

namespace tiffin::rdma_blk {

// Each in the order of submission.
struct SortedOperations {
    OperationQueue accepted;
    OperationQueue rejected;  // their `error` says why
};

// Whether a server, or a device, could be asked for it at all.
bool is_within_limits(const Operation& operation, const Limits& limits);

// Rejects what is not within the limits (einval), what is late (etimedout), and what is ordered behind either
// (ecanceled).
SortedOperations sort_operations(Operation& first, const Limits& limits);

void count_operations(const OperationQueue& batch, Statistics& statistics);
// Counts them and completes them as not executed.
void complete_rejected(const OperationQueue& rejected, Statistics& statistics);

}  // namespace tiffin::rdma_blk
