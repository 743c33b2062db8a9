// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What to expect of the schemes as they are built here, so that the best one can be chosen for a message.
//
// The paper's model (selective_repeat.h, erasure_coding.h) is only a bound where a message takes longer than a round
// trip: there, losses are repaired while the rest is still being sent, and repetitions take the wire's time. The
// estimates here divide such a message in two: what is sent more than a round trip before its end costs its share of
// the wire and nothing else, and the model is asked about the rest. Moreover a receiver of this project asks for a
// submessage as soon as it knows it to have failed, and only for its missing chunks, where the paper's waits for the end
// of the message and has all of it repeated.
//
// Losses in bursts (ModelPath::mean_loss_run) are fewer events, each of several chunks: selective repeat is given units of
// that length, and a submessage fails with the probability of burst.h.
//
// Pure functions of their arguments, callable from any thread; nothing is allocated. A call costs some microseconds.
#pragma once

#include <cstdint>

#include "rdma_blk/sdr/model/erasure_coding.h"
#include "rdma_blk/sdr/model/selective_repeat.h"

namespace tiffin::rdma_blk::sdr {

// Estimated means, in seconds, from the first injection until the sender knows that everything arrived.
// What was asked for and has not come is asked for again after `request_round_trips`, at least 1.
[[nodiscard]] double estimate_repeat_on_request_s(const ModelPath& path, uint64_t chunks,
                                                  double request_round_trips);
[[nodiscard]] double estimate_erasure_coding_s(const ModelPath& path, const ModelErasureCode& code,
                                               uint64_t chunks, double request_round_trips);

}  // namespace tiffin::rdma_blk::sdr
