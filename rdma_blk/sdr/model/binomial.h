// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How many of some chunks are lost.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tiffin::rdma_blk::sdr {

struct LossTail {
    double probability = 0;  // that more are lost than tolerated
    double mean = 0;         // of the number that is lost, given that
};

// Of `count` chunks, each lost with `drop_rate` (below 1), independently: more than `tolerated`. Summed from above the
// tolerated number, not as a complement, since at small drop rates the complement rounds to nothing.
inline LossTail more_than(uint32_t count, uint32_t tolerated, double drop_rate) {
    LossTail tail;
    if (tolerated >= count || drop_rate <= 0) {
        return tail;
    }
    const uint32_t first = tolerated + 1;
    double term = std::pow(1 - drop_rate, count - first);
    for (uint32_t i = 0; i < first; ++i) {
        term *= (count - i) / (i + 1.0) * drop_rate;
    }
    double sum = 0;
    for (uint32_t lost = first; lost <= count; ++lost) {
        tail.probability += term;
        sum += term * lost;
        term *= (count - lost) / (lost + 1.0) * drop_rate / (1 - drop_rate);
    }
    tail.mean = tail.probability > 0 ? sum / tail.probability : first;
    tail.probability = std::min(tail.probability, 1.0);
    return tail;
}

}  // namespace tiffin::rdma_blk::sdr
