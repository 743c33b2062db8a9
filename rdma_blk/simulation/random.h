// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Chance that is the same everywhere: a seed gives the same numbers with every compiler and library, which the
// distributions of <random> do not promise.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace tiffin::rdma_blk::simulation {

// xoshiro256++ by Blackman and Vigna, seeded by SplitMix64 as they recommend. Not for secrets. One thread at a time.
class Random {
  public:
    explicit Random(uint64_t seed) {
        for (uint64_t& word : state_) {
            seed += 0x9e3779b97f4a7c15;
            uint64_t mixed = seed;
            mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
            mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
            word = mixed ^ (mixed >> 31);
        }
    }

    uint64_t next() {
        const uint64_t result = rotate(state_[0] + state_[3], 23) + state_[0];
        const uint64_t shifted = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= shifted;
        state_[3] = rotate(state_[3], 45);
        return result;
    }

    // In (0, 1]: a logarithm of it is finite.
    double uniform() { return static_cast<double>((next() >> 11) + 1) * 0x1p-53; }

    // In [0, bound); bound > 0. The bias is below bound / 2^64.
    uint64_t below(uint64_t bound) {
        return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
    }

    // How many times something of that probability does not happen before it happens: a geometric distribution. One
    // draw instead of one for each trial. The greatest number for a probability of 0.
    uint64_t trials_before(double probability) {
        if (probability >= 1) {
            return 0;
        }
        if (probability <= 0) {
            return kNever;
        }
        const double trials = std::log(uniform()) / std::log1p(-probability);
        return trials < 0x1p62 ? static_cast<uint64_t>(trials) : kNever;
    }

    static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

  private:
    static uint64_t rotate(uint64_t word, int bits) {
        return (word << bits) | (word >> (64 - bits));
    }

    uint64_t state_[4] = {};
};

}  // namespace tiffin::rdma_blk::simulation
