// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "bench/perf/latency_histogram.h"

#include <algorithm>
#include <bit>

namespace tiffin::fuse {

// Below kParts each nanosecond has a bucket; then each power of two has kParts.
uint32_t LatencyHistogram::index_of(uint64_t ns) {
    if (ns < kParts) {
        return static_cast<uint32_t>(ns);
    }
    const auto power = static_cast<uint32_t>(std::bit_width(ns)) - 1;
    const uint64_t part = (ns >> (power - kPartsBits)) - kParts;
    return ((power - kPartsBits + 1) << kPartsBits) + static_cast<uint32_t>(part);
}

uint64_t LatencyHistogram::first_ns(uint32_t index) {
    if (index < kParts) {
        return index;
    }
    const uint32_t shift = (index >> kPartsBits) - 1;
    return uint64_t{kParts + index % kParts} << shift;
}

void LatencyHistogram::record(uint64_t ns) {
    ++buckets_[std::min(index_of(ns), kBuckets - 1)];
    ++count_;
    total_ns_ += ns;
    least_ns_ = std::min(least_ns_, ns);
    greatest_ns_ = std::max(greatest_ns_, ns);
}

void LatencyHistogram::add(const LatencyHistogram& other) {
    for (uint32_t i = 0; i < kBuckets; ++i) {
        buckets_[i] += other.buckets_[i];
    }
    count_ += other.count_;
    total_ns_ += other.total_ns_;
    least_ns_ = std::min(least_ns_, other.least_ns_);
    greatest_ns_ = std::max(greatest_ns_, other.greatest_ns_);
}

uint64_t LatencyHistogram::percentile_ns(double fraction) const {
    if (count_ == 0) {
        return 0;
    }
    const auto wanted = static_cast<uint64_t>(fraction * static_cast<double>(count_ - 1)) + 1;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < kBuckets; ++i) {
        seen += buckets_[i];
        if (seen >= wanted) {
            return std::clamp(first_ns(i), least_ns_, greatest_ns_);
        }
    }
    return greatest_ns_;
}

}  // namespace tiffin::fuse
