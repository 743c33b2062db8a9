// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/model/selective_repeat.h"

#include <algorithm>
#include <cmath>

namespace tiffin::rdma_blk::sdr {
namespace {

// What is left out of a sum of probabilities, and so the relative error of the results.
constexpr double kNegligible = 1e-12;
// More timeouts than any message needs at kModelMaxDropRate: 0.9^1024 is 1e-47.
constexpr int kMaxPeriods = 1024;

// When the chunks of a message were last needed, as a distribution. Time starts here when the last chunk has been
// injected once; before that a message is never complete.
//
// After u seconds the chunk that was sent q chunks before the last one has had floor((u + q T) / O) + 1
// transmissions, with T the chunk time and O = RTO + T. So the chunks form groups, each of neighbours with the same
// number, and the logarithm of the probability that all have arrived is a sum over few groups. Positions count as
// real numbers, which moves a time by less than T and makes that logarithm linear between known points.
class CompletionTime {
  public:
    CompletionTime(const ModelPath& path, double chunks, double timeout_s)
        : drop_rate_(valid_drop_rate(path.chunk_drop_rate)),
          chunks_(std::max(chunks, 0.0)),
          chunk_time_s_(path.chunk_time_s),
          period_s_(timeout_s + path.chunk_time_s) {}

    double injection_s() const { return chunks_ * chunk_time_s_; }
    double period_s() const { return period_s_; }

    // The logarithm of the probability that the message is complete after `after_s`.
    double log_complete(double after_s) const {
        if (drop_rate_ == 0 || chunks_ == 0) {
            return 0;
        }
        double log_probability = 0;
        double transmissions = std::floor(after_s / period_s_) + 1;
        double group_start = 0;  // chunks before the last one
        while (group_start < chunks_) {
            const double end = (transmissions * period_s_ - after_s) / chunk_time_s_;
            const double group_end = std::min(std::max(end, group_start), chunks_);
            const double all_lost = std::pow(drop_rate_, transmissions);
            if (all_lost * chunks_ < kNegligible) {
                break;
            }
            log_probability += (group_end - group_start) * std::log1p(-all_lost);
            group_start = group_end;
            ++transmissions;
        }
        return log_probability;
    }

    // Within a period the one point where log_complete() bends: where the first chunk gets one more transmission.
    double bend_s(double period_start_s) const {
        const double first_chunk_s = period_start_s + injection_s();
        const double next = (std::floor(first_chunk_s / period_s_) + 1) * period_s_;
        return std::min(next - injection_s(), period_start_s + period_s_);
    }

  private:
    double drop_rate_;
    double chunks_;
    double chunk_time_s_;
    double period_s_;
};

// The integral of 1 - exp(f) over `length`, where f runs linearly from `first` to `last`, both at most 0. Written so
// that small values keep their digits: a drop rate of 1e-8 still has to give something.
double incomplete_s(double length, double first, double last) {
    const double rise = last - first;
    if (rise > 1) {
        return length * (1 - (std::exp(last) - std::exp(first)) / rise);
    }
    const double mean_growth = std::abs(rise) < 1e-3
                                   ? rise / 2 + rise * rise / 6 + rise * rise * rise / 24
                                   : std::expm1(rise) / rise - 1;
    return -length * (std::expm1(first) + std::exp(first) * mean_growth);
}

}  // namespace

double chunk_drop_rate(double packet_drop_rate, uint32_t packets_per_chunk) {
    return -std::expm1(packets_per_chunk * std::log1p(-std::min(packet_drop_rate, 1 - 1e-9)));
}

double selective_repeat_mean_s(const ModelPath& path, double chunks, double timeout_s) {
    const CompletionTime completion(path, chunks, timeout_s);
    double waiting_s = 0;
    double start_s = 0;
    double at_start = completion.log_complete(0);
    for (int period = 0; period < kMaxPeriods && at_start < -kNegligible; ++period) {
        const double bend_s = completion.bend_s(start_s);
        const double end_s = start_s + completion.period_s();
        const double at_bend = completion.log_complete(bend_s);
        const double at_end = completion.log_complete(end_s);
        waiting_s += incomplete_s(bend_s - start_s, at_start, at_bend) +
                     incomplete_s(end_s - bend_s, at_bend, at_end);
        start_s = end_s;
        at_start = at_end;
    }
    return completion.injection_s() + waiting_s + path.round_trip_s;
}

double selective_repeat_quantile_s(const ModelPath& path, double chunks, double timeout_s,
                                   double quantile) {
    const CompletionTime completion(path, chunks, timeout_s);
    const double wanted = std::log(std::min(quantile, 1 - kNegligible));
    const double earliest_s = completion.injection_s() + path.round_trip_s;
    double high_s = 0;
    int period = 0;
    while (completion.log_complete(high_s) < wanted && period < kMaxPeriods) {
        high_s += completion.period_s();
        ++period;
    }
    if (period == 0) {
        return earliest_s;
    }
    double low_s = high_s - completion.period_s();
    while (high_s - low_s > path.chunk_time_s / 16) {
        const double middle_s = (low_s + high_s) / 2;
        (completion.log_complete(middle_s) < wanted ? low_s : high_s) = middle_s;
    }
    return earliest_s + high_s;
}

}  // namespace tiffin::rdma_blk::sdr
