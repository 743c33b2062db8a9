// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What a session may do to a volume: the check of each request that names a range, at the server.
#pragma once

#include <cstdint>

#include "fs/vfs/result.h"
#include "fs/vfs/span.h"
#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

struct SessionAccess {
    uint64_t session_id = 0;
    uint64_t volume_epoch = 0;
    bool is_writer = false;  // holds the lease, granted under volume_epoch
    uint64_t data_bytes = 0;
    // In the control space a writer may change the words and its own part; all may read everything.
    uint64_t control_bytes = 0;
    uint64_t words_offset = 0;
    uint64_t words_bytes = 0;
    uint64_t client_offset = 0;  // of this session's own part
    uint64_t client_bytes = 0;
};

// Errors: erofs (changes by a session without the lease), estale (of another epoch than the lease's), eio
// (beyond the end, or a part of the control space that is not the session's to change). Flushes: the ranges
// are checked by check_flush_range().
Result<void> check_access(const SessionAccess& access, const wire::Request& request);
Result<void> check_flush_range(const SessionAccess& access, const wire::Request& request,
                               const wire::FlushRange& range);

}  // namespace tiffin::rdma_blk
