// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How long to wait before connecting once more.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk {

// 50 ms, 100 ms, ... 2 s after `attempts` failures, each a quarter more or less, so that the clients of a
// server that starts again do not all come at once.
inline uint64_t back_off_ns(uint32_t attempts) {
    constexpr uint64_t kFirstNs = 50'000'000;
    constexpr uint64_t kLastNs = 2'000'000'000;
    const uint64_t whole = std::min(kFirstNs << std::min(attempts, uint32_t{10}), kLastNs);
    uint32_t chance = 0;
    host::random_bytes(&chance, sizeof(chance));
    return whole * 3 / 4 + whole / 2 * (chance % 1024) / 1024;
}

}  // namespace tiffin::rdma_blk
