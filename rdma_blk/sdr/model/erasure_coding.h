// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How long a message needs with erasure coding, computed: section 4.2.3 and appendix B of "SDR-RDMA"
// (arXiv:2505.05366). The assumptions are those of selective_repeat.h.
//
// A message of M chunks is cut into submessages of k data chunks, each protected by m parity chunks; the last one,
// if it is shorter, by the same share of them, rounded up. A receiver that
// cannot decode all of them waits until b round trips after everything should have arrived, then asks for the failed
// submessages again, by selective repeat. Encoding and decoding are hidden behind the wire.
#pragma once

#include <cstdint>

#include "rdma_blk/sdr/model/selective_repeat.h"

namespace tiffin::rdma_blk::sdr {

enum class ModelCode : uint8_t {
    // Parity chunk i is the exclusive or of the data chunks j with j mod m = i: one lost chunk in each of these m
    // groups, its parity among them, can be had back.
    exclusive_or,
    // Maximum distance separable, as Reed-Solomon: any m lost chunks of the k + m.
    mds,
};

struct ModelErasureCode {
    ModelCode code = ModelCode::mds;
    uint32_t data_chunks = 32;   // k: 1 to 255
    uint32_t parity_chunks = 8;  // m: 1 to 255; exclusive_or: at most k
};

// What follows a submessage that could not be decoded.
struct ModelFallback {
    double wait_round_trips =
        1;                 // b: after the time at which the last parity chunk should have arrived
    double timeout_s = 0;  // RTO of selective repeat
};

// That one submessage of `data_chunks` (the code's k; fewer in the last one of a message) cannot be decoded:
// 1 - P_MDS or 1 - P_XOR of appendix B, exact also where it is tiny.
[[nodiscard]] double decoding_failure_probability(const ModelErasureCode& code,
                                                  uint32_t data_chunks, double chunk_drop_rate);

// That at least one of a message's submessages cannot be decoded.
[[nodiscard]] double fallback_probability(const ModelErasureCode& code, uint64_t chunks,
                                          double chunk_drop_rate);

// Parity chunks sent with a message of that size: M / R, rounded up.
[[nodiscard]] uint64_t parity_chunks(const ModelErasureCode& code, uint64_t chunks);

// As selective_repeat_mean_s() and selective_repeat_quantile_s(), for a message of at least one chunk. One thing is
// sharper than in the paper: selective repeat is given the number of chunks expected in case there is a failure,
// with the probability of that case, not a number that was averaged over all cases first.
[[nodiscard]] double erasure_coding_mean_s(const ModelPath& path, const ModelErasureCode& code,
                                           uint64_t chunks, const ModelFallback& fallback);
[[nodiscard]] double erasure_coding_quantile_s(const ModelPath& path, const ModelErasureCode& code,
                                               uint64_t chunks, const ModelFallback& fallback,
                                               double quantile);

}  // namespace tiffin::rdma_blk::sdr
