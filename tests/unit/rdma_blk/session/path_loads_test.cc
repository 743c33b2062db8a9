// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/session/path_loads.h"

#include <gtest/gtest.h>

#include <deque>

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kMsNs = 1'000'000;
constexpr uint16_t kSlots = 64;
constexpr uint32_t kBoth = 3;

// Two links in virtual time: each carries what it gets one after the other, at its rate, and answers its delay later.
class PathLoadsTest : public ::testing::Test {
  protected:
    struct Link {
        uint64_t bytes_per_ms;
        uint64_t delay_ns;
        uint64_t free_ns = 0;  // when it has carried what it got
        uint64_t carried_bytes = 0;
        std::deque<std::pair<uint64_t, uint16_t>> under_way{};  // when it is answered, slot
    };
    void set_links(const Link& one, const Link& other) {
        links_[0] = one;
        links_[1] = other;
        machine_.opened(0, now_ns_, 1000 * kMsNs, 0);
        (void)machine_.next(now_ns_);
        machine_.joined(1, now_ns_, 0);
        uint64_t answered_ns = now_ns_;
        for (int sample = 0; sample < 200; sample++) {
            answered_ns += std::max(one.delay_ns, other.delay_ns);
            machine_.measured(0, one.delay_ns, answered_ns);
            machine_.measured(1, other.delay_ns, answered_ns);
        }
        EXPECT_NEAR(static_cast<double>(machine_.delay_ns(1)), static_cast<double>(other.delay_ns),
                    static_cast<double>(other.delay_ns) / 10);
    }
    void send(uint16_t slot, uint64_t bytes) {
        const size_t path = loads_.best(candidates_, bytes, machine_, now_ns_);
        Link& link = links_[path];
        loads_.sent(slot, path, bytes, now_ns_);
        link.free_ns = std::max(link.free_ns, now_ns_) + bytes * kMsNs / link.bytes_per_ms;
        link.under_way.push_back({link.free_ns + link.delay_ns, slot});
        link.carried_bytes += bytes;
        most_under_way_ = std::max(most_under_way_, links_[1].under_way.size());
    }
    // So many requests of that size, `depth` of them at a time. Returns how long that took.
    uint64_t carry(uint64_t requests, uint64_t bytes, uint16_t depth) {
        const uint64_t began_ns = now_ns_;
        for (uint16_t slot = 0; slot < depth; slot++) {
            send(slot, bytes);
        }
        for (uint64_t left = requests - depth; true;) {
            const bool is_first = links_[1].under_way.empty() ||
                                  (!links_[0].under_way.empty() &&
                                   links_[0].under_way.front() < links_[1].under_way.front());
            const size_t path = is_first ? 0 : 1;
            if (links_[path].under_way.empty()) {
                return now_ns_ - began_ns;
            }
            const auto [time_ns, slot] = links_[path].under_way.front();
            links_[path].under_way.pop_front();
            now_ns_ = time_ns;
            loads_.answered(slot, path, now_ns_);
            loads_.left(slot, path);
            if (left > 0) {
                send(slot, bytes);
                left--;
            }
        }
    }

    // All that both links can take.
    void carry_for(uint64_t duration_ns, uint64_t bytes) {
        for (const uint64_t end_ns = now_ns_ + duration_ns; now_ns_ < end_ns;) {
            carry(4 * kSlots, bytes, kSlots);
        }
    }

    SessionMachine machine_{2};
    PathLoads loads_ = [] { return MUST(PathLoads::create(kSlots)); }();
    Link links_[2]{{1, 0}, {1, 0}};
    uint64_t now_ns_ = 1000 * kMsNs;
    size_t most_under_way_ = 0;  // on the second link
    uint32_t candidates_ = kBoth;
};

TEST_F(PathLoadsTest, EqualLinksCarryTheSame) {
    set_links({100'000, 50'000}, {100'000, 50'000});
    const uint64_t duration_ns = carry(2000, 65536, 8);
    EXPECT_NEAR(static_cast<double>(links_[0].carried_bytes), 1000.0 * 65536, 50.0 * 65536);
    // What one of them would take 1.31 s for.
    EXPECT_LT(duration_ns, 700 * kMsNs);
}

TEST_F(PathLoadsTest, LinksOfDifferentRatesCarryTheirShares) {
    set_links({400'000, 50'000}, {100'000, 50'000});
    const uint64_t duration_ns = carry(4000, 65536, 16);
    // All of both: 524 ms.
    EXPECT_LT(duration_ns, 560 * kMsNs);
    EXPECT_NEAR(static_cast<double>(links_[0].carried_bytes), 0.8 * 4000 * 65536,
                0.05 * 4000 * 65536);
}

// A far slower link that was not used for some seconds is tried again with little, not with all that is free before its answer.
TEST_F(PathLoadsTest, ALinkOfUnknownRateIsTriedWithLittle) {
    set_links({125'000, 50'000}, {1'250, 50'000});
    carry(2000, 65536,
          64);  // a second: the rate of both is known, and the slow one is not used any more
    const uint64_t before = links_[1].carried_bytes;
    most_under_way_ = 0;
    carry(20'000, 65536, 64);  // ten seconds, of which each two bring a try
    EXPECT_GT(links_[1].carried_bytes, before);
    EXPECT_LT(links_[1].carried_bytes - before, 40U * 65536);
    EXPECT_LE(most_under_way_, 1U);
}

// An equal one that comes back gets its share soon, also where each request is small or the link is long.
TEST_F(PathLoadsTest, ALinkThatComesBackGetsItsShare) {
    struct Load {
        uint64_t delay_ns;
        uint64_t bytes;
    };
    for (const Load load : {Load{50'000, 4096}, Load{5 * kMsNs, 4096}, Load{20 * kMsNs, 65536}}) {
        set_links({100'000, load.delay_ns}, {100'000, load.delay_ns});
        candidates_ = 1;
        carry_for(3000 * kMsNs, load.bytes);
        candidates_ = kBoth;
        carry_for(2000 * kMsNs, load.bytes);
        const uint64_t before[] = {links_[0].carried_bytes, links_[1].carried_bytes};
        carry_for(1000 * kMsNs, load.bytes);
        EXPECT_GT(links_[1].carried_bytes - before[1], (links_[0].carried_bytes - before[0]) / 2)
            << load.delay_ns << ", " << load.bytes;
    }
}

// The slower one's answers would come later than what waits behind others on the faster one.
TEST_F(PathLoadsTest, FewRequestsStayOnTheFasterLink) {
    set_links({1'000'000, 20'000}, {20'000, 20'000});
    carry(2000, 65536, 2);
    EXPECT_GT(links_[0].carried_bytes, 1900U * 65536);
}

TEST_F(PathLoadsTest, ADistantLinkTakesNothingWhileTheNearOneIsSooner) {
    set_links({1'000'000, 20'000}, {1'000'000, 5 * kMsNs});
    carry(4000, 4096, 16);
    EXPECT_GT(links_[0].carried_bytes, 3900U * 4096);
}

TEST_F(PathLoadsTest, ALinkThatBecomesSlowerLosesItsShareWithinSeconds) {
    set_links({100'000, 50'000}, {100'000, 50'000});
    carry(10'000, 65536, 8);
    links_[1].bytes_per_ms = 10'000;
    carry(10'000, 65536, 8);
    const uint64_t before[] = {links_[0].carried_bytes, links_[1].carried_bytes};
    carry(10'000, 65536, 8);
    EXPECT_GT(links_[0].carried_bytes - before[0], 8 * (links_[1].carried_bytes - before[1]));
}

TEST_F(PathLoadsTest, WhatHasLeftALinkIsNoLoadOfIt) {
    set_links({100'000, 50'000}, {100'000, 50'000});
    loads_.sent(0, 0, 65536, now_ns_);
    EXPECT_EQ(loads_.best(kBoth, 65536, machine_, now_ns_), 1U);
    EXPECT_EQ(loads_.best(1, 65536, machine_, now_ns_), 0U) << "the only candidate";
    loads_.left(0, 0);
    EXPECT_EQ(loads_.pending_bytes(0), 0U);
    EXPECT_EQ(loads_.rate_bytes_per_ms(0, now_ns_), 0U);
}

// What a flush or an atomic takes is no rate.
TEST_F(PathLoadsTest, FewBytesSayNothing) {
    set_links({100'000, 50'000}, {100'000, 50'000});
    loads_.sent(0, 1, 16, now_ns_);
    loads_.answered(0, 1, now_ns_ + 500 * kMsNs);
    loads_.left(0, 1);
    EXPECT_EQ(loads_.rate_bytes_per_ms(1, now_ns_ + 500 * kMsNs), 0U);
}

// One that once was slow would never be chosen again, and so never known better.
TEST_F(PathLoadsTest, ARateIsForgottenWhenThePathIsNotUsed) {
    set_links({100'000, 50'000}, {100'000, 50'000});
    loads_.sent(0, 1, 65536, now_ns_);
    now_ns_ += 500 * kMsNs;
    loads_.answered(0, 1, now_ns_);
    loads_.left(0, 1);
    EXPECT_EQ(loads_.rate_bytes_per_ms(1, now_ns_), 131U);
    EXPECT_EQ(loads_.best(kBoth, 65536, machine_, now_ns_), 0U);
    now_ns_ += 2000 * kMsNs;
    EXPECT_EQ(loads_.rate_bytes_per_ms(1, now_ns_), 0U);
}

}  // namespace
}  // namespace tiffin::rdma_blk
