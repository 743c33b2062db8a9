// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How many of some chunks are lost when losses come in bursts: in runs of neighbours, by the model of Gilbert, in which
// a run goes on with the same probability after each chunk.
#pragma once

#include <algorithm>
#include <cstdint>

#include "rdma_blk/sdr/model/binomial.h"

namespace tiffin::rdma_blk::sdr {

// How many times as long as by chance runs of lost chunks are, if their mean length is `mean_run`: independent losses
// have runs of 1 / (1 - drop_rate). At least 1.
inline double run_stretch(double drop_rate, double mean_run) {
    return std::max(mean_run * (1 - drop_rate), 1.0);
}

// More tolerated chunks than this are not asked about: the largest erasure code's.
inline constexpr uint32_t kMostTolerated = 64;

// Of `count` neighbouring chunks, of which a share `drop_rate` (below 1) is lost in runs of `mean_run`: more than
// `tolerated`, at most kMostTolerated. As more_than() of binomial.h where runs are no longer than by chance.
inline LossTail more_than_in_bursts(uint32_t count, uint32_t tolerated, double drop_rate,
                                    double mean_run) {
    constexpr double kNoBurst = 1.01;
    if (tolerated >= count || drop_rate <= 0 || run_stretch(drop_rate, mean_run) < kNoBurst) {
        return more_than(count, tolerated, drop_rate);
    }
    const uint32_t most = std::min(tolerated, kMostTolerated);
    const double goes_on = 1 - 1 / mean_run;
    const double begins = drop_rate / (1 - drop_rate) / mean_run;
    // Probabilities that so many of the chunks so far were lost, and that the last one arrived, or was lost. The chunk
    // before the first is as any other.
    double arrived[kMostTolerated + 1] = {1 - drop_rate};
    double lost[kMostTolerated + 1] = {drop_rate};
    for (uint32_t chunk = 0; chunk < count; ++chunk) {
        for (uint32_t number = most + 1; number-- > 0;) {
            const double loses =
                number == 0 ? 0 : arrived[number - 1] * begins + lost[number - 1] * goes_on;
            arrived[number] = arrived[number] * (1 - begins) + lost[number] * (1 - goes_on);
            lost[number] = loses;
        }
    }
    LossTail tail;
    double few = 0;
    double lost_of_few = 0;
    for (uint32_t number = 0; number <= most; ++number) {
        few += arrived[number] + lost[number];
        lost_of_few += number * (arrived[number] + lost[number]);
    }
    tail.probability = std::clamp(1 - few, 0.0, 1.0);
    tail.mean = tail.probability > 0 ? (count * drop_rate - lost_of_few) / tail.probability : 0;
    tail.mean = std::clamp<double>(tail.mean, most + 1, count);
    return tail;
}

}  // namespace tiffin::rdma_blk::sdr
