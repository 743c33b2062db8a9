// SPDX-License-Identifier: MIT OR GPL-2.0-only
// How long things took: counts in buckets that are 1/32 of a power of two wide, so that a percentile is
// exact to about three per cent.
#pragma once

#include <array>
#include <cstdint>

namespace tiffin::fuse {

// Not for several threads: each has its own, and they are added up.
class LatencyHistogram {
  public:
    static constexpr uint32_t kPartsBits = 5;
    static constexpr uint32_t kParts = 1U << kPartsBits;  // of a power of two
    static constexpr uint32_t kBuckets = 60U << kPartsBits;

    void record(uint64_t ns);
    void add(const LatencyHistogram& other);

    uint64_t count() const { return count_; }
    uint64_t mean_ns() const { return count_ == 0 ? 0 : total_ns_ / count_; }
    uint64_t least_ns() const { return count_ == 0 ? 0 : least_ns_; }
    uint64_t greatest_ns() const { return greatest_ns_; }
    // The time within which this part (0 to 1) of all was done; 0 when there were none.
    uint64_t percentile_ns(double fraction) const;

    // The buckets: [first_ns(i), first_ns(i + 1)).
    uint64_t bucket(uint32_t index) const { return buckets_[index]; }
    static uint64_t first_ns(uint32_t index);

  private:
    static uint32_t index_of(uint64_t ns);

    std::array<uint64_t, kBuckets> buckets_{};
    uint64_t count_ = 0;
    uint64_t total_ns_ = 0;
    uint64_t least_ns_ = UINT64_MAX;
    uint64_t greatest_ns_ = 0;
};

}  // namespace tiffin::fuse
