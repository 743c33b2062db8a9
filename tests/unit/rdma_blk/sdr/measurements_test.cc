// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/reliability/measurements.h"

#include <gtest/gtest.h>

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint32_t kPercent = 150;

class MeasuredPath {
  public:
    explicit MeasuredPath(uint32_t usual_us) {
        for (int i = 0; i < 100; i++) {
            answer(usual_us);
        }
    }
    // One packet at a time.
    void answer(uint32_t sample_us) {
        now_us_ += sample_us;
        round_trip.add(sample_us, now_us_ - sample_us, now_us_);
    }
    // Several, sent one after the other, and answered together.
    void answer_at_once(uint32_t sample_us, uint32_t count) {
        now_us_ += sample_us;
        for (uint32_t i = 0; i < count; i++) {
            round_trip.add(sample_us - i, now_us_ - sample_us + i, now_us_);
        }
    }

    RoundTrip round_trip{1000};

  private:
    uint64_t now_us_ = 1'000'000;
};

// A peer that stood still for two seconds: its answer says nothing of the path.
TEST(RoundTrip, OneLateSampleDoesNotMakeRepetitionsLate) {
    for (const uint32_t usual_us : {50U, 1000U, 20'000U}) {
        MeasuredPath path(usual_us);
        const uint64_t before_ns = path.round_trip.timeout_ns(kPercent);
        path.answer(2'000'000);
        EXPECT_LE(path.round_trip.timeout_ns(kPercent), 5 * before_ns) << usual_us;
        for (int i = 0; i < 20; i++) {
            path.answer(usual_us);
        }
        path.answer_at_once(2'000'000, 64);
        EXPECT_LE(path.round_trip.timeout_ns(kPercent), 5 * before_ns) << usual_us;
    }
}

TEST(RoundTrip, APathThatHasBecomeLongerIsFollowed) {
    MeasuredPath path(1000);
    for (int i = 0; i < 50; i++) {
        path.answer(50'000);
    }
    EXPECT_GT(path.round_trip.smoothed_us(), 45'000U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
