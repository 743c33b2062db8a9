// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Words of the control space are read by other processes, and by network cards, while they are written.
#pragma once

namespace tiffin::rdma_blk {

// Who sees `value` there sees all that was written before, too.
template <typename T>
void store_release(T& place, T value) {
    __atomic_store_n(&place, value, __ATOMIC_RELEASE);
}

}  // namespace tiffin::rdma_blk
