// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Packets that a carrier loses on purpose, for trials: a share of them, by chance.
#pragma once

#include <cstdint>

#include "fs/vfs/host.h"

namespace tiffin::rdma_blk::sdr {

// Of one thread at a time.
class TrialLoss {
  public:
    // `drop_ppm`: so many of a million.
    explicit TrialLoss(uint32_t drop_ppm) : drop_ppm_(drop_ppm) {
        host::random_bytes(&random_, sizeof(random_));
        random_ |= 1;
    }

    // Whether the next one is lost.
    bool next() {
        if (drop_ppm_ == 0) {
            return false;
        }
        random_ ^= random_ << 13;  // xorshift64 (Marsaglia)
        random_ ^= random_ >> 7;
        random_ ^= random_ << 17;
        return random_ % 1'000'000 < drop_ppm_;
    }

  private:
    uint32_t drop_ppm_;
    uint64_t random_ = 0;
};

}  // namespace tiffin::rdma_blk::sdr
