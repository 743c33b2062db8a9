// SPDX-License-Identifier: MIT OR GPL-2.0-only
#pragma once

#include <cstdint>

namespace tiffin::rdma_blk {

inline constexpr uint64_t kMillisecondNs = 1'000'000;
inline constexpr uint64_t kSecondNs = 1'000 * kMillisecondNs;

// What has happened since the caller looked at the clock was not long ago.
constexpr uint64_t elapsed_ns(uint64_t now_ns, uint64_t since_ns) {
    return now_ns > since_ns ? now_ns - since_ns : 0;
}

}  // namespace tiffin::rdma_blk
