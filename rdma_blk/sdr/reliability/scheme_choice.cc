// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/reliability/scheme_choice.h"

#include "rdma_blk/sdr/model/estimate.h"
#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr SchemeChoice kNack{SchemeKind::selective_repeat_nack, 0, 0};
// From little to much parity: the share that one needs grows with the loss.
constexpr SchemeChoice kCodes[] = {
    {SchemeKind::erasure_mds, 32, 2},
    {SchemeKind::erasure_mds, 32, 4},
    {SchemeKind::erasure_mds, 32, 8},
    {SchemeKind::erasure_mds, 32, 16},
};

bool is_close(double value, double reference) {
    return value >= reference * 0.9 && value <= reference * 1.1;
}

}  // namespace

SchemeChoice SchemeChooser::choose(const PathMeasurement& path, uint64_t message_bytes) {
    const bool is_known =
        message_bytes_ != 0 && path.chunk_bytes == path_.chunk_bytes &&
        is_close(static_cast<double>(path.rate_bytes_per_s),
                 static_cast<double>(path_.rate_bytes_per_s)) &&
        is_close(path.chunk_loss, path_.chunk_loss) &&
        is_close(path.mean_loss_run, path_.mean_loss_run) &&
        is_close(path.round_trip_us, path_.round_trip_us) &&
        is_close(static_cast<double>(message_bytes), static_cast<double>(message_bytes_));
    if (!is_known) {
        choice_ = choose_scheme(path, message_bytes);
        path_ = path;
        message_bytes_ = message_bytes;
    }
    return choice_;
}

SchemeChoice choose_scheme(const PathMeasurement& path, uint64_t message_bytes) {
    if (message_bytes < kMinErasureBytes || path.chunk_loss <= 0 || path.chunk_bytes == 0) {
        return kNack;
    }
    const uint64_t rate =
        path.rate_bytes_per_s == 0 ? kAssumedRateBytesPerS : path.rate_bytes_per_s;
    const uint64_t chunks = (message_bytes + path.chunk_bytes - 1) / path.chunk_bytes;
    ModelPath model;
    model.chunk_time_s = static_cast<double>(path.chunk_bytes) / static_cast<double>(rate);
    model.round_trip_s = path.round_trip_us * 1e-6;
    model.chunk_drop_rate = path.chunk_loss;
    model.mean_loss_run = path.mean_loss_run;
    constexpr double kRequestRoundTrips = kRepeatNackPercent / 100.0;
    SchemeChoice best = kNack;
    double best_s = estimate_repeat_on_request_s(model, chunks, kRequestRoundTrips);
    for (const SchemeChoice& candidate : kCodes) {
        const ModelErasureCode code{ModelCode::mds, candidate.data_chunks, candidate.parity_chunks};
        if (candidate.parity_chunks > path.parity_buffer_chunks) {
            continue;
        }
        const double mean_s = estimate_erasure_coding_s(model, code, chunks, kRequestRoundTrips);
        if (mean_s < best_s) {
            best = candidate;
            best_s = mean_s;
        }
    }
    return best;
}

}  // namespace tiffin::rdma_blk::sdr
