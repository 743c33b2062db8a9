// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/udp/path_probe.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk::sdr {
namespace {

// A path of some width, and a round trip of a millisecond. Returns how many probes were sent.
uint32_t run(PathProbe& probe, uint64_t& now_ns, uint32_t path_bytes, uint64_t duration_ns,
             uint32_t lost_every = 0) {
    uint32_t sent = 0;
    const uint64_t end_ns = now_ns + duration_ns;
    while (probe.next_ns() < end_ns) {
        now_ns = std::max(now_ns, probe.next_ns());
        PathProbe::Probe one;
        if (!probe.next_probe(now_ns, one)) {
            EXPECT_GT(probe.next_ns(), now_ns);  // no busy loop
            continue;
        }
        EXPECT_GT(probe.next_ns(), now_ns);
        sent++;
        const bool is_lost = lost_every != 0 && sent % lost_every == 0;
        if (one.datagram_bytes <= path_bytes && !is_lost) {
            now_ns += 1'000'000;
            probe.on_reply(now_ns, one);
        }
    }
    now_ns = end_ns;
    return sent;
}

TEST(PathProbe, FindsEveryWidth) {
    for (uint32_t path_bytes = 548; path_bytes <= 65507; path_bytes += 97) {
        for (const uint32_t used : {1200U, 1472U, 8960U, 65507U}) {
            PathProbe probe(548, 1200, used, 65507);
            uint64_t now_ns = 1000;
            const uint32_t sent = run(probe, now_ns, path_bytes, 120'000'000'000);
            ASSERT_EQ(probe.state(), PathProbe::State::complete);
            ASSERT_LE(probe.confirmed_bytes(), path_bytes);
            ASSERT_GT(probe.confirmed_bytes() + kPathProbeStepBytes, path_bytes);
            ASSERT_EQ(probe.is_too_narrow(), path_bytes < used) << path_bytes << " " << used;
            ASSERT_LE(sent, 3U * 16U);
        }
    }
}

TEST(PathProbe, OneThatFitsAtOnceTakesThreeProbes) {
    PathProbe probe(548, 1200, 1472, 8972);
    uint64_t now_ns = 1000;
    EXPECT_EQ(run(probe, now_ns, 9000, 10'000'000'000), 3U);
    EXPECT_EQ(probe.confirmed_bytes(), 8972U);
    EXPECT_FALSE(probe.is_too_narrow());
}

TEST(PathProbe, LossesByChanceDoNotCount) {
    PathProbe probe(548, 1200, 1472, 8972);
    uint64_t now_ns = 1000;
    run(probe, now_ns, 1500, 120'000'000'000, 3);
    EXPECT_EQ(probe.state(), PathProbe::State::complete);
    EXPECT_GT(probe.confirmed_bytes() + kPathProbeStepBytes, 1500U);
}

// A peer that stood still for some seconds, or a link that was cut, is no narrow path.
TEST(PathProbe, WhatWasLostInASilenceSaysNothingOfSizes) {
    for (uint64_t seconds = 1; seconds < 20; seconds++) {
        PathProbe probe(548, 1200, 8900, 8972);
        uint64_t now_ns = 1000;
        run(probe, now_ns, 9000, 60'000'000'000);
        probe.on_black_hole(now_ns);
        run(probe, now_ns, 0, seconds * 1'000'000'000);
        run(probe, now_ns, 9000, 5'000'000'000);
        EXPECT_EQ(probe.confirmed_bytes(), 8972U) << seconds;
        EXPECT_FALSE(probe.is_too_narrow()) << seconds;
    }
}

TEST(PathProbe, ABlackHoleIsLookedInto) {
    PathProbe probe(548, 1200, 8900, 8972);
    uint64_t now_ns = 1000;
    run(probe, now_ns, 9000, 60'000'000'000);
    ASSERT_EQ(probe.confirmed_bytes(), 8972U);
    probe.on_black_hole(now_ns);
    EXPECT_EQ(probe.confirmed_bytes(), 0U);
    EXPECT_FALSE(probe.is_too_narrow());  // not known yet
    run(probe, now_ns, 1472, 60'000'000'000);
    EXPECT_TRUE(probe.is_too_narrow());
    EXPECT_LE(probe.confirmed_bytes(), 1472U);
    EXPECT_GT(probe.confirmed_bytes(), 1472U - kPathProbeStepBytes);
}

TEST(PathProbe, NothingGetsThroughAndThenItDoes) {
    PathProbe probe(548, 1200, 1472, 8972);
    uint64_t now_ns = 1000;
    const uint32_t sent = run(probe, now_ns, 0, 60'000'000'000);
    EXPECT_EQ(probe.state(), PathProbe::State::error);
    EXPECT_LE(sent, 61U);
    EXPECT_EQ(probe.confirmed_bytes(), 0U);
    run(probe, now_ns, 9000, 60'000'000'000);
    EXPECT_EQ(probe.confirmed_bytes(), 8972U);
}

TEST(PathProbe, LooksForAWiderPathNowAndThen) {
    PathProbe probe(548, 1200, 1400, 8972);
    uint64_t now_ns = 1000;
    run(probe, now_ns, 1500, 60'000'000'000);
    EXPECT_EQ(run(probe, now_ns, 9000, kPathRaiseNs / 2), 0U);
    EXPECT_GT(run(probe, now_ns, 9000, kPathRaiseNs), 0U);
    EXPECT_EQ(probe.confirmed_bytes(), 8972U);
}

// While a wider path is looked for, datagrams of the size in use still do not fit: to say that they do would forbid the
// pieces that they come in.
TEST(PathProbe, StaysNarrowWhileAWiderPathIsLookedFor) {
    PathProbe probe(548, 1200, 8900, 8972);
    uint64_t now_ns = 1000;
    run(probe, now_ns, 1472, 60'000'000'000);
    ASSERT_TRUE(probe.is_too_narrow());
    ASSERT_EQ(probe.state(), PathProbe::State::complete);
    uint32_t sent = 0;
    for (const uint64_t end_ns = now_ns + 2 * kPathRaiseNs; probe.next_ns() < end_ns;) {
        now_ns = std::max(now_ns, probe.next_ns());
        PathProbe::Probe one;
        sent += probe.next_probe(now_ns, one) ? 1 : 0;
        probe.on_used_size_came(now_ns);  // in pieces
        ASSERT_TRUE(probe.is_too_narrow()) << sent;
        if (one.number != 0 && one.datagram_bytes <= 1472) {
            probe.on_reply(now_ns, one);
            ASSERT_TRUE(probe.is_too_narrow()) << sent;
        }
    }
    EXPECT_GT(sent, 3U);
    run(probe, now_ns, 9000, 2 * kPathRaiseNs);  // it has become wider
    EXPECT_FALSE(probe.is_too_narrow());
    EXPECT_EQ(probe.confirmed_bytes(), 8972U);
}

// At a loss of half of all, three probes in a row are soon lost; data that comes says otherwise.
TEST(PathProbe, DataThatComesIsAnAnswer) {
    PathProbe probe(548, 1200, 1472, 1472);
    PathProbe::Probe one;
    uint64_t now_ns = 1000;
    ASSERT_TRUE(probe.next_probe(now_ns, one));
    probe.on_reply(now_ns, one);
    for (int lost = 0; lost < 2; lost++) {
        now_ns = probe.next_ns();
        ASSERT_TRUE(probe.next_probe(now_ns, one));
        EXPECT_EQ(one.datagram_bytes, 1472U);
    }
    probe.on_used_size_came(now_ns);
    EXPECT_EQ(probe.state(), PathProbe::State::complete);
    EXPECT_EQ(probe.confirmed_bytes(), 1472U);
    probe.on_used_size_came(now_ns);
    EXPECT_EQ(probe.confirmed_bytes(), 1472U);
    // What is known not to fit is cut, and comes for that reason.
    probe.on_black_hole(now_ns);
    run(probe, now_ns, 1300, 60'000'000'000);
    ASSERT_TRUE(probe.is_too_narrow());
    probe.on_used_size_came(now_ns);
    EXPECT_TRUE(probe.is_too_narrow());
}

TEST(PathProbe, BelievesOnlyWhatItAskedFor) {
    PathProbe probe(548, 1200, 1472, 8972);
    PathProbe::Probe one;
    probe.on_reply(500, {1200, 0});  // before anything was sent
    EXPECT_EQ(probe.confirmed_bytes(), 0U);
    ASSERT_TRUE(probe.next_probe(1000, one));
    EXPECT_EQ(one.datagram_bytes, 1200U);
    EXPECT_FALSE(probe.next_probe(1001, one));
    probe.on_reply(2000, {8972, one.number});
    probe.on_reply(2000, {1200, one.number + 1});
    EXPECT_EQ(probe.confirmed_bytes(), 0U);
    probe.on_reply(2000, {1200, one.number});
    EXPECT_EQ(probe.confirmed_bytes(), 1200U);
    probe.on_reply(2000, {1200, one.number});  // doubled
    EXPECT_EQ(probe.state(), PathProbe::State::searching);
    PathProbe::Probe two;
    ASSERT_TRUE(probe.next_probe(2000, two));
    probe.on_reply(2001, {two.datagram_bytes, one.number});  // of another size then
    EXPECT_EQ(probe.confirmed_bytes(), 1200U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
