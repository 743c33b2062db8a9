// SPDX-License-Identifier: MIT OR GPL-2.0-only
#pragma once

#include "rdma_blk/wire/format.h"

namespace tiffin::rdma_blk {

// `later`, to be executed after `earlier`.
inline wire::Request ordered_after(const wire::Request& earlier, wire::Request later) {
    later.after = later.pending_since = earlier.sequence;
    return later;
}

}  // namespace tiffin::rdma_blk
