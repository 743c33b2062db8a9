// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/model/estimate.h"

#include <algorithm>
#include <cmath>

#include "rdma_blk/sdr/model/burst.h"

namespace tiffin::rdma_blk::sdr {
namespace {

// How many times more than once the chunk that is lost most often is repeated, on the average.
double repetitions_after_first(double drop_rate, double chunks) {
    double sum = 0;
    double all_lost = drop_rate * drop_rate;
    while (all_lost * chunks > 1e-6) {
        sum += -std::expm1(chunks * std::log1p(-all_lost));
        all_lost *= drop_rate;
    }
    return sum;
}

// By how much the repetition of the last submessage that failed ends after everything was sent once. It was asked for
// when it had arrived, q submessages before the end: the sum over q of fails (1 - fails)^q (round trip - q times).
double first_repetition_s(const ModelPath& path, double fails, double submessages,
                          double submessage_s) {
    if (fails * submessages <
        1e-4) {  // at most one, anywhere; the closed form would lose its digits
        return fails * submessages *
               (path.round_trip_s - submessage_s * std::max(submessages - 1, 0.0) / 2);
    }
    const double none_fails = std::exp(submessages * std::log1p(-std::min(fails, 1 - 1e-12)));
    const double behind = (1 - fails) * (1 - none_fails) / fails - submessages * none_fails;
    return std::max(path.round_trip_s * (1 - none_fails) - submessage_s * behind, 0.0);
}

// What a submessage that failed lacks.
struct Failure {
    double missing_chunks = 0;  // of data, on the average
    double fails_again =
        0;  // the probability that it cannot be decoded either when these were sent once more
};

// MDS: some of the parity is lost as well; what is left of it stands in for what gets lost again.
Failure failure_of_mds(const ModelErasureCode& code, uint32_t data_chunks, double drop_rate,
                       double mean_run) {
    const auto parity = static_cast<uint32_t>(parity_chunks(code, data_chunks));
    const double all = data_chunks + parity;
    const double lost = more_than_in_bursts(data_chunks + parity, parity, drop_rate, mean_run).mean;
    const double missing = lost * data_chunks / all;
    const double parity_left = parity * (1 - lost / all);
    return {missing, more_than_in_bursts(static_cast<uint32_t>(std::lround(missing)),
                                         static_cast<uint32_t>(std::lround(parity_left)), drop_rate,
                                         mean_run)
                         .probability};
}

// XOR: a class of n chunks lacks two, mostly. In two cases of n one of them is the parity, and the other one is needed;
// else either of both.
Failure failure_of_exclusive_or(const ModelErasureCode& code, double drop_rate) {
    const double class_chunks = static_cast<double>(code.data_chunks) / code.parity_chunks + 1;
    const double with_parity = 2 / class_chunks;
    return {2 - with_parity, drop_rate * (with_parity + (1 - with_parity) * drop_rate)};
}

double failure_probability(const ModelErasureCode& code, uint32_t data_chunks,
                           const ModelPath& path, double drop_rate) {
    if (code.code != ModelCode::mds) {
        return decoding_failure_probability(code, data_chunks, drop_rate);
    }
    const auto parity = static_cast<uint32_t>(parity_chunks(code, data_chunks));
    return more_than_in_bursts(data_chunks + parity, parity, drop_rate, path.mean_loss_run)
        .probability;
}

}  // namespace

double estimate_repeat_on_request_s(const ModelPath& chunk_path, uint64_t chunks,
                                    double request_round_trips) {
    const double drop_rate = valid_drop_rate(chunk_path.chunk_drop_rate);
    const double stretch = run_stretch(drop_rate, chunk_path.mean_loss_run);
    ModelPath path = chunk_path;
    path.chunk_time_s *= stretch;
    const double all = std::max(static_cast<double>(chunks) / stretch, 1.0);
    const double last = std::min(all, path.round_trip_s / path.chunk_time_s);
    const double before_s = (all - last) * path.chunk_time_s / (1 - drop_rate);
    // Every repetition but the first waits longer than the round trip that the model has for it.
    const double longer_s = (request_round_trips - 1) * path.round_trip_s;
    return before_s + selective_repeat_mean_s(path, last, path.round_trip_s) +
           longer_s * repetitions_after_first(drop_rate, last);
}

double estimate_erasure_coding_s(const ModelPath& path, const ModelErasureCode& code,
                                 uint64_t chunks, double request_round_trips) {
    const double drop_rate = valid_drop_rate(path.chunk_drop_rate);
    const auto longest = static_cast<uint32_t>(std::min<uint64_t>(chunks, code.data_chunks));
    const double fails = failure_probability(code, longest, path, drop_rate);
    const Failure failure = code.code == ModelCode::mds
                                ? failure_of_mds(code, longest, drop_rate, path.mean_loss_run)
                                : failure_of_exclusive_or(code, drop_rate);
    const double all = std::max(static_cast<double>(chunks) / code.data_chunks, 1.0);
    const double sent_s =
        static_cast<double>(chunks + parity_chunks(code, chunks)) * path.chunk_time_s;
    const double submessage_s = sent_s / all;
    // What is repeated while the rest is being sent costs the wire's time only.
    const double last = std::min(all, std::max(path.round_trip_s / submessage_s, 1.0));
    const double repeated_s =
        (all - last) * fails * failure.missing_chunks / (1 - drop_rate) * path.chunk_time_s;
    // Later repetitions are to failed submessages what selective repeat's are to chunks.
    const double wait_s = request_round_trips * path.round_trip_s;
    const ModelPath again{path.chunk_time_s, 0, failure.fails_again};
    const double later_s = selective_repeat_mean_s(again, fails * last, wait_s);
    return sent_s + repeated_s + path.round_trip_s +
           first_repetition_s(path, fails, last, submessage_s) + later_s;
}

}  // namespace tiffin::rdma_blk::sdr
