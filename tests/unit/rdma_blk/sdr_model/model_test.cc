// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The model against values computed by hand and against its own assumptions, drawn by chance.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "rdma_blk/sdr/model/erasure_coding.h"
#include "rdma_blk/sdr/model/estimate.h"
#include "rdma_blk/sdr/model/selective_repeat.h"

namespace tiffin::rdma_blk::sdr {
namespace {

// The paper's link: 400 Gbit/s, 25 ms, chunks of 64 KiB.
constexpr double kRoundTripS = 0.025;
constexpr double kChunkTimeS = 65536 * 8 / 400e9;
constexpr double kTimeoutS = 3 * kRoundTripS;

ModelPath path(double drop_rate) { return {kChunkTimeS, kRoundTripS, drop_rate}; }

// One message of the model's assumptions, from the first injection to the last acknowledgement.
class DrawnMessage {
  public:
    explicit DrawnMessage(uint64_t seed) : random_(seed) {}

    double selective_repeat_s(const ModelPath& path, uint64_t chunks, double timeout_s) {
        std::geometric_distribution<uint64_t> losses(1 - path.chunk_drop_rate);
        double last_s = 0;
        for (uint64_t i = 1; i <= chunks; ++i) {
            const double arrival_s =
                static_cast<double>(i) * path.chunk_time_s +
                static_cast<double>(losses(random_)) * (timeout_s + path.chunk_time_s);
            last_s = std::max(last_s, arrival_s);
        }
        return last_s + path.round_trip_s;
    }

    double erasure_coding_s(const ModelPath& path, const ModelErasureCode& code, uint64_t chunks,
                            const ModelFallback& fallback) {
        uint64_t failed = 0;
        for (uint64_t first = 0; first < chunks; first += code.data_chunks) {
            const auto data =
                static_cast<uint32_t>(std::min<uint64_t>(chunks - first, code.data_chunks));
            failed += decodes(path, code, data) ? 0 : data;
        }
        const double injected_s =
            static_cast<double>(chunks + parity_chunks(code, chunks)) * path.chunk_time_s;
        return failed == 0 ? injected_s + path.round_trip_s
                           : injected_s + (1 + fallback.wait_round_trips) * path.round_trip_s +
                                 selective_repeat_s(path, failed, fallback.timeout_s);
    }

  private:
    bool decodes(const ModelPath& path, const ModelErasureCode& code, uint32_t data) {
        std::bernoulli_distribution lost(path.chunk_drop_rate);
        const uint64_t parity = parity_chunks(code, data);
        std::vector<uint32_t> losses_in_group(parity);
        uint32_t losses = 0;
        for (uint32_t chunk = 0; chunk < data + parity; ++chunk) {
            const bool gone = lost(random_);
            // Parity chunk i, which comes after the data, is in group i, too.
            const uint32_t index = chunk < data ? chunk : chunk - data;
            losses_in_group[index % parity] += gone ? 1 : 0;
            losses += gone ? 1 : 0;
        }
        return code.code == ModelCode::mds
                   ? losses <= parity
                   : std::all_of(losses_in_group.begin(), losses_in_group.end(),
                                 [](uint32_t count) { return count <= 1; });
    }

    std::mt19937_64 random_;
};

struct Drawn {
    double mean_s;
    double
        mean_error_s;  // four standard errors: with fixed seeds, more than any right formula is off
    double p99_s;
};

template <typename Function>
Drawn draw(int samples, Function function) {
    std::vector<double> times;
    double sum = 0;
    double sum_of_squares = 0;
    for (int i = 0; i < samples; ++i) {
        times.push_back(function());
        sum += times.back();
        sum_of_squares += times.back() * times.back();
    }
    std::sort(times.begin(), times.end());
    const double mean_s = sum / samples;
    const double variance = std::max(sum_of_squares / samples - mean_s * mean_s, 0.0);
    return {mean_s, 4 * std::sqrt(variance / samples) + 1e-3 * mean_s,
            times[static_cast<size_t>(samples) * 99 / 100]};
}

TEST(SelectiveRepeatModel, WithoutLossIsInjectionAndOneRoundTrip) {
    for (const double chunks : {0.0, 1.0, 32.0, 131072.0}) {
        EXPECT_DOUBLE_EQ(selective_repeat_mean_s(path(0), chunks, kTimeoutS),
                         chunks * kChunkTimeS + kRoundTripS);
        EXPECT_DOUBLE_EQ(selective_repeat_quantile_s(path(0), chunks, kTimeoutS, 0.999),
                         chunks * kChunkTimeS + kRoundTripS);
    }
}

TEST(SelectiveRepeatModel, OneChunkWaitsForItsLossesOnly) {
    // E[Y - 1] = p / (1 - p).
    const double overhead_s = kTimeoutS + kChunkTimeS;
    for (const double drop_rate : {1e-8, 1e-3, 0.1, 0.5}) {
        EXPECT_NEAR(selective_repeat_mean_s(path(drop_rate), 1, kTimeoutS),
                    kChunkTimeS + kRoundTripS + overhead_s * drop_rate / (1 - drop_rate),
                    2 * kChunkTimeS * drop_rate / (1 - drop_rate));
    }
}

TEST(SelectiveRepeatModel, TwoChunksWaitForTheWorse) {
    // E[max(Y1, Y2)] = sum over j >= 0 of 1 - (1 - p^j)^2; the chunks' own distance is small beside a timeout.
    const double drop_rate = 0.25;
    double transmissions = 1;
    for (int j = 1; j < 60; ++j) {
        transmissions += 1 - std::pow(1 - std::pow(drop_rate, j), 2);
    }
    EXPECT_NEAR(selective_repeat_mean_s(path(drop_rate), 2, kTimeoutS),
                2 * kChunkTimeS + kRoundTripS + (transmissions - 1) * (kTimeoutS + kChunkTimeS),
                2 * kChunkTimeS);
}

TEST(SelectiveRepeatModel, RareLossCostsWhatItDelays) {
    // 1e-8 of 2048 chunks: the chunk that is lost, which can be any, arrives O after its first time.
    const double chunks = 2048;
    const double one_loss_s = kTimeoutS + kChunkTimeS - (chunks - 1) / 2 * kChunkTimeS;
    const double expected_s = chunks * kChunkTimeS + kRoundTripS + chunks * 1e-8 * one_loss_s;
    EXPECT_NEAR(selective_repeat_mean_s(path(1e-8), chunks, kTimeoutS), expected_s,
                4e-9 * expected_s);
}

TEST(SelectiveRepeatModel, QuantilesStandWhereTheProbabilityDoes) {
    // One chunk: all but p^j have come after j transmissions.
    const ModelPath one_in_ten = path(0.1);
    const double first_s = kChunkTimeS + kRoundTripS;
    const double period_s = kTimeoutS + kChunkTimeS;
    EXPECT_NEAR(selective_repeat_quantile_s(one_in_ten, 1, kTimeoutS, 0.5), first_s, 2e-6);
    EXPECT_NEAR(selective_repeat_quantile_s(one_in_ten, 1, kTimeoutS, 0.98), first_s + period_s,
                2e-6);
    EXPECT_NEAR(selective_repeat_quantile_s(one_in_ten, 1, kTimeoutS, 0.9985),
                first_s + 2 * period_s, 2e-6);
}

TEST(SelectiveRepeatModel, AgreesWithItsAssumptionsDrawn) {
    DrawnMessage drawn(1);
    for (const double drop_rate : {1e-4, 1e-3, 1e-2, 0.1, 0.5}) {
        for (const uint64_t chunks : {2U, 64U, 700U}) {
            for (const double timeout_s : {kRoundTripS, kTimeoutS}) {
                const ModelPath lossy = path(drop_rate);
                const Drawn seen =
                    draw(4000, [&] { return drawn.selective_repeat_s(lossy, chunks, timeout_s); });
                const auto count = static_cast<double>(chunks);
                EXPECT_NEAR(selective_repeat_mean_s(lossy, count, timeout_s), seen.mean_s,
                            seen.mean_error_s)
                    << drop_rate << " " << chunks;
                // A percentile of few samples of a distribution in steps may lie one step away.
                const double low_s = selective_repeat_quantile_s(lossy, count, timeout_s, 0.985);
                const double high_s = selective_repeat_quantile_s(lossy, count, timeout_s, 0.994);
                EXPECT_GE(seen.p99_s, low_s - kChunkTimeS * 2) << drop_rate << " " << chunks;
                EXPECT_LE(seen.p99_s, high_s + kChunkTimeS * 2) << drop_rate << " " << chunks;
            }
        }
    }
}

TEST(SelectiveRepeatModel, AgreesForMessagesOfManyTimeouts) {
    // Injected for 210 ms, so that a lost chunk may have three more transmissions before the last one leaves.
    const ModelPath lossy{1e-4, 0.02, 0.05};
    DrawnMessage drawn(2);
    const Drawn seen = draw(4000, [&] { return drawn.selective_repeat_s(lossy, 2100, 0.06); });
    EXPECT_NEAR(selective_repeat_mean_s(lossy, 2100, 0.06), seen.mean_s, seen.mean_error_s);
    EXPECT_TRUE(selective_repeat_is_lower_bound(lossy, 2100, 0.06));
    EXPECT_FALSE(selective_repeat_is_lower_bound(lossy, 599, 0.06));
}

TEST(SelectiveRepeatModel, GrowsWithLossSizeAndQuantile) {
    double before_s = 0;
    for (const double drop_rate : {0.0, 1e-8, 1e-5, 1e-3, 0.1, 0.9}) {
        const double mean_s = selective_repeat_mean_s(path(drop_rate), 1000, kTimeoutS);
        EXPECT_GT(mean_s, before_s);
        before_s = mean_s;
    }
    // Rates beyond the greatest, and a certainty, have finite answers.
    EXPECT_DOUBLE_EQ(selective_repeat_mean_s(path(1.0), 1000, kTimeoutS), before_s);
    EXPECT_TRUE(std::isfinite(selective_repeat_quantile_s(path(0.9), 1e6, kTimeoutS, 1.0)));
}

TEST(ChunkDropRate, IsThatOfAnyPacket) {
    EXPECT_DOUBLE_EQ(chunk_drop_rate(0.5, 2), 0.75);
    EXPECT_NEAR(chunk_drop_rate(1e-5, 16), 1.6e-4, 2e-8);
    EXPECT_NEAR(chunk_drop_rate(1e-12, 16), 1.6e-11, 1e-20);
    EXPECT_DOUBLE_EQ(chunk_drop_rate(0, 16), 0);
}

TEST(ErasureCodingModel, SmallCodesByHand) {
    // MDS(2,1): fails when two or three of three are lost.
    const ModelErasureCode mds{ModelCode::mds, 2, 1};
    EXPECT_NEAR(decoding_failure_probability(mds, 2, 0.1), 3 * 0.01 * 0.9 + 0.001, 1e-15);
    // XOR(4,2): groups {0,2} and {1,3}, each with its parity: P_XOR = [(1-p)^3 + 3p(1-p)^2]^2.
    const ModelErasureCode exclusive_or{ModelCode::exclusive_or, 4, 2};
    const double group = 0.9 * 0.9 * 0.9 + 3 * 0.1 * 0.9 * 0.9;
    EXPECT_NEAR(decoding_failure_probability(exclusive_or, 4, 0.1), 1 - group * group, 1e-15);
    // XOR(5,2): groups of three and two data chunks.
    const ModelErasureCode uneven{ModelCode::exclusive_or, 5, 2};
    const double large_group = std::pow(0.9, 4) + 4 * 0.1 * std::pow(0.9, 3);
    EXPECT_NEAR(decoding_failure_probability(uneven, 5, 0.1), 1 - group * large_group, 1e-15);
    // One lost chunk is never too much, and nothing lost fails nothing.
    EXPECT_DOUBLE_EQ(decoding_failure_probability(mds, 2, 0), 0);
    EXPECT_DOUBLE_EQ(decoding_failure_probability(exclusive_or, 0, 0.1), 0);
}

TEST(ErasureCodingModel, TinyProbabilitiesKeepTheirDigits) {
    // C(40,9) p^9 at p = 1e-6, beside which all other terms vanish.
    const ModelErasureCode code{ModelCode::mds, 32, 8};
    const double combinations = 273438880;
    EXPECT_NEAR(decoding_failure_probability(code, 32, 1e-6) / (combinations * 1e-54), 1, 1e-4);
    // A thousand submessages fail a thousand times as often.
    EXPECT_NEAR(fallback_probability(code, 32'000, 1e-6) / (1000 * combinations * 1e-54), 1, 1e-4);
}

TEST(ErasureCodingModel, ThePaperCodesAgreeWithChance) {
    DrawnMessage drawn(3);
    const ModelFallback fallback{0.5, kTimeoutS};
    struct Case {
        ModelErasureCode code;
        double drop_rate;
        uint64_t chunks;
    };
    const Case cases[] = {
        {{ModelCode::mds, 32, 8}, 0.01, 2048},
        {{ModelCode::mds, 32, 8}, 0.1, 64},
        {{ModelCode::mds, 32, 8}, 0.1, 600},
        {{ModelCode::exclusive_or, 32, 8}, 0.01, 64},
        {{ModelCode::exclusive_or, 32, 8}, 0.01, 2048},
        {{ModelCode::exclusive_or, 32, 8}, 0.03, 70},
        {{ModelCode::mds, 4, 2}, 0.05, 33},
    };
    for (const Case& each : cases) {
        const ModelPath lossy = path(each.drop_rate);
        const Drawn seen = draw(
            4000, [&] { return drawn.erasure_coding_s(lossy, each.code, each.chunks, fallback); });
        const double mean_s = erasure_coding_mean_s(lossy, each.code, each.chunks, fallback);
        EXPECT_NEAR(mean_s, seen.mean_s, seen.mean_error_s) << each.drop_rate << " " << each.chunks;
        const double low_s =
            erasure_coding_quantile_s(lossy, each.code, each.chunks, fallback, 0.98);
        const double high_s =
            erasure_coding_quantile_s(lossy, each.code, each.chunks, fallback, 0.996);
        EXPECT_GE(seen.p99_s, low_s * 0.98) << each.drop_rate << " " << each.chunks;
        EXPECT_LE(seen.p99_s, high_s * 1.02) << each.drop_rate << " " << each.chunks;
    }
}

TEST(ErasureCodingModel, WithoutFailuresCostsOnlyItsParity) {
    const ModelErasureCode code{ModelCode::mds, 32, 8};
    EXPECT_EQ(parity_chunks(code, 2048), 512U);
    EXPECT_EQ(parity_chunks(code, 2049), 513U);
    EXPECT_EQ(parity_chunks(code, 1), 1U);
    const ModelFallback fallback{1, kTimeoutS};
    EXPECT_DOUBLE_EQ(erasure_coding_mean_s(path(1e-4), code, 2048, fallback),
                     2560 * kChunkTimeS + kRoundTripS);
    EXPECT_DOUBLE_EQ(erasure_coding_quantile_s(path(1e-4), code, 2048, fallback, 0.999),
                     2560 * kChunkTimeS + kRoundTripS);
}

TEST(Estimate, IsTheModelWhereThatIsExact) {
    // Less than a round trip long, and no repetition is lost, or costs more than a round trip.
    for (const double drop_rate : {0.0, 1e-8, 1e-5, 1e-3}) {
        EXPECT_DOUBLE_EQ(estimate_repeat_on_request_s(path(drop_rate), 2048, 1),
                         selective_repeat_mean_s(path(drop_rate), 2048, kRoundTripS));
        const ModelErasureCode code{ModelCode::mds, 32, 8};
        EXPECT_NEAR(estimate_erasure_coding_s(path(drop_rate), code, 2048, 1),
                    erasure_coding_mean_s(path(drop_rate), code, 2048, {0, kRoundTripS}), 1e-9);
    }
}

TEST(Estimate, SerializesWhatIsRepeatedEarly) {
    // 8 GiB at 10 %: the ninth part more is on the wire, which the model leaves out.
    const double chunks = 131072;
    const double model_s = selective_repeat_mean_s(path(0.1), chunks, kRoundTripS);
    const double estimate_s = estimate_repeat_on_request_s(path(0.1), 131072, 1);
    EXPECT_GT(estimate_s, model_s);
    EXPECT_GT(estimate_s, chunks / 0.9 * kChunkTimeS + kRoundTripS);
}

TEST(Estimate, LaterRequestsCostWhatTheyWait) {
    // One chunk, and E[Y - 1] - p repetitions after the first.
    const double drop_rate = 0.2;
    const double later = drop_rate / (1 - drop_rate) - drop_rate;
    EXPECT_NEAR(estimate_repeat_on_request_s(path(drop_rate), 1, 1.5) -
                    estimate_repeat_on_request_s(path(drop_rate), 1, 1),
                later * 0.5 * kRoundTripS, 1e-6);
}

TEST(Estimate, ErasureCodesGetWorseSmoothly) {
    const ModelErasureCode mds{ModelCode::mds, 32, 8};
    const ModelErasureCode exclusive_or{ModelCode::exclusive_or, 32, 8};
    double mds_before_s = 0;
    double exclusive_or_before_s = 0;
    for (double drop_rate = 1e-8; drop_rate < 0.2; drop_rate *= 1.1) {
        const double mds_s = estimate_erasure_coding_s(path(drop_rate), mds, 2048, 1);
        const double exclusive_or_s =
            estimate_erasure_coding_s(path(drop_rate), exclusive_or, 2048, 1);
        EXPECT_GE(mds_s, mds_before_s * 0.9999) << drop_rate;
        EXPECT_GE(exclusive_or_s, exclusive_or_before_s * 0.9999) << drop_rate;
        EXPECT_LE(mds_s, exclusive_or_s * 1.0001) << drop_rate;
        mds_before_s = mds_s;
        exclusive_or_before_s = exclusive_or_s;
    }
    // Seldom more than one repetition, which ends at most a round trip after everything else.
    EXPECT_LT(mds_before_s, 2560 * kChunkTimeS + 2.2 * kRoundTripS);
}

TEST(ErasureCodingModel, OutOfRangeRatesAreFinite) {
    const ModelErasureCode code{ModelCode::exclusive_or, 32, 8};
    const ModelFallback fallback{1, kTimeoutS};
    EXPECT_TRUE(std::isfinite(erasure_coding_mean_s(path(1.0), code, 1 << 20, fallback)));
    EXPECT_TRUE(std::isfinite(erasure_coding_quantile_s(path(2.0), code, 1 << 20, fallback, 1)));
    EXPECT_DOUBLE_EQ(fallback_probability(code, 1 << 20, -1), 0);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
