// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How fast a path delivers: the most that came in a round trip lately, as BBR has it (Cardwell et al., ACM Queue 2016).
#pragma once

#include <algorithm>
#include <cstdint>

#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {

class DeliveryRate {
  public:
    // So much came in a round trip. `is_filled`: as much was on the way as might be; else the path could have taken more,
    // and the round says no more than that it can do this.
    void on_round(uint64_t bytes, uint64_t elapsed_ns, bool is_filled) {
        if (elapsed_ns == 0 || (bytes_per_s_ == 0 && !is_filled)) {
            return;
        }
        const auto seen = static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 /
                                                static_cast<double>(elapsed_ns));
        const uint64_t faded = is_filled ? bytes_per_s_ / kRateMemoryRounds : 0;
        bytes_per_s_ = std::max(seen, bytes_per_s_ - faded);
    }
    // 0: no round has filled the path yet.
    uint64_t bytes_per_s() const { return bytes_per_s_; }

  private:
    uint64_t bytes_per_s_ = 0;
};

}  // namespace tiffin::rdma_blk::sdr
