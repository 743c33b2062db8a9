// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Losses in bursts: the model against drawn losses, and what is chosen by it.
#include "rdma_blk/sdr/model/burst.h"

#include <gtest/gtest.h>

#include <random>

#include "rdma_blk/sdr/reliability/measurements.h"
#include "rdma_blk/sdr/reliability/scheme_choice.h"

namespace tiffin::rdma_blk::sdr {
namespace {

// Of `count` chunks in the midst of many that are lost in runs.
class DrawnRuns {
  public:
    DrawnRuns(double drop_rate, double mean_run, uint64_t seed)
        : random_(seed),
          ends_(1 / mean_run),
          begins_(drop_rate / (1 - drop_rate) / mean_run),
          is_lost_(std::bernoulli_distribution(drop_rate)(random_)) {}
    uint32_t lost_of(uint32_t count) {
        uint32_t lost = 0;
        for (uint32_t chunk = 0; chunk < count; chunk++) {
            is_lost_ = is_lost_ ? !ends_(random_) : begins_(random_);
            lost += is_lost_ ? 1 : 0;
        }
        return lost;
    }

  private:
    std::mt19937_64 random_;
    std::bernoulli_distribution ends_;
    std::bernoulli_distribution begins_;
    bool is_lost_;
};

TEST(BurstModel, MoreThanIsAsDrawn) {
    struct Case {
        uint32_t count, tolerated;
        double drop_rate, mean_run;
    };
    for (const Case& at : {Case{40, 8, 0.05, 4}, Case{40, 8, 0.02, 16}, Case{34, 2, 0.1, 1.5},
                           Case{3, 1, 0.3, 3}, Case{48, 16, 0.2, 8}, Case{36, 4, 0.01, 2}}) {
        DrawnRuns drawn(at.drop_rate, at.mean_run, 1);
        constexpr int kSamples = 30'000;
        double more = 0;
        double sum = 0;
        for (int sample = 0; sample < kSamples; sample++) {
            const uint32_t lost = drawn.lost_of(at.count);
            more += lost > at.tolerated ? 1 : 0;
            sum += lost > at.tolerated ? lost : 0;
        }
        ASSERT_GT(more, 100);
        const LossTail tail =
            more_than_in_bursts(at.count, at.tolerated, at.drop_rate, at.mean_run);
        // Neighbouring samples share bursts, so they count as fewer; with a fixed seed this is no matter of luck.
        const double error = 6 * std::sqrt(more) / kSamples;
        EXPECT_NEAR(tail.probability, more / kSamples, error) << at.count << " " << at.mean_run;
        EXPECT_NEAR(tail.mean, sum / more, 0.05 * tail.mean) << at.count << " " << at.mean_run;
    }
}

TEST(BurstModel, RunsByChanceAreIndependentLosses) {
    for (const double drop_rate : {1e-6, 1e-3, 0.1, 0.5}) {
        const LossTail independent = more_than(40, 8, drop_rate);
        for (const double mean_run : {0.0, 1.0, 1 / (1 - drop_rate)}) {
            const LossTail tail = more_than_in_bursts(40, 8, drop_rate, mean_run);
            EXPECT_EQ(tail.probability, independent.probability);
            EXPECT_EQ(tail.mean, independent.mean);
        }
        // And there is no jump where bursts begin.
        const double slightly = 1.02 / (1 - drop_rate);
        EXPECT_NEAR(more_than_in_bursts(40, 1, drop_rate, slightly).probability,
                    more_than(40, 1, drop_rate).probability,
                    0.1 * more_than(40, 1, drop_rate).probability + 0.03 * 40 * drop_rate);
    }
    EXPECT_EQ(more_than_in_bursts(4, 4, 0.5, 10).probability, 0);
    EXPECT_EQ(more_than_in_bursts(40, 8, 0, 10).probability, 0);
}

PathMeasurement long_path(double loss, double mean_run) {
    PathMeasurement path;
    path.chunk_bytes = 65536;
    path.round_trip_us = 25'000;
    path.chunk_loss = loss;
    path.rate_bytes_per_s = 50'000'000'000;
    path.mean_loss_run = mean_run;
    return path;
}

TEST(SchemeChoiceInBursts, LongerBurstsTakeMoreParityAndThenNone) {
    constexpr uint64_t kBytes = 128 << 20;
    const SchemeChoice independent = choose_scheme(long_path(1e-3, 1), kBytes);
    const SchemeChoice short_bursts = choose_scheme(long_path(1e-3, 4), kBytes);
    const SchemeChoice long_bursts = choose_scheme(long_path(1e-3, 32), kBytes);
    EXPECT_EQ(independent.kind, SchemeKind::erasure_mds);
    EXPECT_EQ(short_bursts.kind, SchemeKind::erasure_mds);
    EXPECT_GT(short_bursts.parity_chunks, independent.parity_chunks);
    EXPECT_EQ(long_bursts.kind, SchemeKind::selective_repeat_nack);
}

TEST(SchemeChoiceInBursts, AChangeOfBurstsIsNoticed) {
    SchemeChooser chooser;
    constexpr uint64_t kBytes = 128 << 20;
    EXPECT_TRUE(chooser.choose(long_path(1e-3, 1), kBytes).is_erasure());
    EXPECT_FALSE(chooser.choose(long_path(1e-3, 32), kBytes).is_erasure());
}

// On a slow link parity takes longer than a repetition.
TEST(SchemeChoice, TheRateOfThePathCounts) {
    SchemeChooser chooser;
    PathMeasurement path = long_path(1e-3, 1);
    constexpr uint64_t kBytes = 128 << 20;
    EXPECT_TRUE(chooser.choose(path, kBytes).is_erasure());
    path.rate_bytes_per_s = 12'500'000;
    EXPECT_EQ(chooser.choose(path, kBytes).kind, SchemeKind::selective_repeat_nack);
}

TEST(RunMeter, IsTheMeanOfWhatItIsTold) {
    RunMeter meter;
    EXPECT_DOUBLE_EQ(meter.mean_chunks(0), 1);
    EXPECT_DOUBLE_EQ(meter.mean_chunks(0.5), 2);
    for (int message = 0; message < 2000; message++) {
        meter.add(40, 10);
    }
    EXPECT_NEAR(meter.mean_chunks(0), 4, 0.05);
    // The path has changed.
    for (int message = 0; message < 2000; message++) {
        meter.add(1, 1);
    }
    EXPECT_NEAR(meter.mean_chunks(0), 1, 0.4);
    // Nothing, or nonsense, from a peer that does not count.
    const double before = meter.mean_chunks(0);
    meter.add(40, 0);
    meter.add(1, 1e9);
    EXPECT_DOUBLE_EQ(meter.mean_chunks(0), before);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
