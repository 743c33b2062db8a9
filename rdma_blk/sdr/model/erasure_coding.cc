// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/model/erasure_coding.h"

#include <algorithm>
#include <cmath>

#include "rdma_blk/sdr/model/binomial.h"

namespace tiffin::rdma_blk::sdr {
namespace {

// Of two independent things, at least one.
double either(double first, double second) { return first + second - first * second; }

// Of `count` independent things of the same probability, at least one.
double any_of(double probability, double count) {
    return probability >= 1 ? (count > 0 ? 1.0 : 0.0)
                            : -std::expm1(count * std::log1p(-probability));
}

// What a message has to repeat.
struct Failures {
    double probability = 0;  // that there is anything
    double chunks = 0;       // expected number, given that there is
};

Failures failures_of(const ModelErasureCode& code, uint64_t chunks, double drop_rate) {
    const uint64_t whole = chunks / code.data_chunks;
    const auto rest = static_cast<uint32_t>(chunks % code.data_chunks);
    const double whole_fails = decoding_failure_probability(code, code.data_chunks, drop_rate);
    const double rest_fails = decoding_failure_probability(code, rest, drop_rate);
    Failures failures;
    failures.probability = either(any_of(whole_fails, static_cast<double>(whole)), rest_fails);
    if (failures.probability > 0) {
        const double expected =
            static_cast<double>(whole) * whole_fails * code.data_chunks + rest_fails * rest;
        failures.chunks = expected / failures.probability;
    }
    return failures;
}

// Until the sender knows that everything arrived, when all could be decoded.
double without_failure_s(const ModelPath& path, const ModelErasureCode& code, uint64_t chunks) {
    return static_cast<double>(chunks + parity_chunks(code, chunks)) * path.chunk_time_s +
           path.round_trip_s;
}

}  // namespace

double decoding_failure_probability(const ModelErasureCode& code, uint32_t data_chunks,
                                    double chunk_drop_rate) {
    const double drop_rate = valid_drop_rate(chunk_drop_rate);
    if (data_chunks == 0) {
        return 0;
    }
    const auto parity = static_cast<uint32_t>(parity_chunks(code, data_chunks));
    if (code.code == ModelCode::mds) {
        return more_than(data_chunks + parity, parity, drop_rate).probability;
    }
    // Where m does not divide k, some groups have one chunk more than others.
    const uint32_t small_group = data_chunks / parity;
    const uint32_t larger_groups = data_chunks % parity;
    return either(
        any_of(more_than(small_group + 2, 1, drop_rate).probability, larger_groups),
        any_of(more_than(small_group + 1, 1, drop_rate).probability, parity - larger_groups));
}

double fallback_probability(const ModelErasureCode& code, uint64_t chunks, double chunk_drop_rate) {
    return failures_of(code, chunks, valid_drop_rate(chunk_drop_rate)).probability;
}

uint64_t parity_chunks(const ModelErasureCode& code, uint64_t chunks) {
    return (chunks * code.parity_chunks + code.data_chunks - 1) / code.data_chunks;
}

double erasure_coding_mean_s(const ModelPath& path, const ModelErasureCode& code, uint64_t chunks,
                             const ModelFallback& fallback) {
    const Failures failures = failures_of(code, chunks, valid_drop_rate(path.chunk_drop_rate));
    const double repeated_s = fallback.wait_round_trips * path.round_trip_s +
                              selective_repeat_mean_s(path, failures.chunks, fallback.timeout_s);
    return without_failure_s(path, code, chunks) + failures.probability * repeated_s;
}

double erasure_coding_quantile_s(const ModelPath& path, const ModelErasureCode& code,
                                 uint64_t chunks, const ModelFallback& fallback, double quantile) {
    const Failures failures = failures_of(code, chunks, valid_drop_rate(path.chunk_drop_rate));
    const double good_s = without_failure_s(path, code, chunks);
    if (1 - quantile >= failures.probability) {
        return good_s;
    }
    const double quantile_of_failed = 1 - (1 - quantile) / failures.probability;
    return good_s + fallback.wait_round_trips * path.round_trip_s +
           selective_repeat_quantile_s(path, failures.chunks, fallback.timeout_s,
                                       quantile_of_failed);
}

}  // namespace tiffin::rdma_blk::sdr
