// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "rdma_blk/sdr/udp/datagram.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/tunables.h"
#include "rdma_blk/sdr/udp/congestion.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr unsigned char kKey[kTagKeyBytes] = {1, 2, 3};

std::vector<unsigned char> sealed(DatagramSealer& sealer, const std::vector<unsigned char>& body) {
    const DatagramHeader header =
        sealer.seal(PacketKind::data, host::crc32c(0, body.data(), body.size()));
    std::vector<unsigned char> bytes(sizeof(header) + body.size());
    std::memcpy(bytes.data(), &header, sizeof(header));
    std::memcpy(bytes.data() + sizeof(header), body.data(), body.size());
    return bytes;
}

ByteSpan span(const std::vector<unsigned char>& bytes) {
    return ByteSpan(bytes.data(), bytes.size());
}

TEST(Datagram, EveryChangedBitIsNoticed) {
    DatagramSealer sealer(kKey, 7, 1);
    DatagramOpener opener(kKey, 7, 1);
    const std::vector<unsigned char> good = sealed(sealer, {1, 2, 3, 4, 5});
    for (size_t bit = 0; bit < good.size() * 8; bit++) {
        std::vector<unsigned char> changed = good;
        changed[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
        EXPECT_FALSE(opener.open(span(changed)).ok()) << bit;
    }
    for (size_t size = 0; size < good.size(); size++) {
        EXPECT_FALSE(opener.open(ByteSpan(good.data(), size)).ok()) << size;
    }
    auto opened = opener.open(span(good));
    ASSERT_TRUE(opened.ok());
    EXPECT_EQ(opened->body.size(), 5U);
    EXPECT_EQ(opener.open(span(good)).error(), Error::eexist);
}

TEST(Datagram, OtherKeysConnectionsAndChannelsAreStrangers) {
    const unsigned char other_key[kTagKeyBytes] = {1, 2, 4};
    DatagramSealer sealer(kKey, 7, 1);
    const std::vector<unsigned char> good = sealed(sealer, {1});
    DatagramOpener other(other_key, 7, 1);
    DatagramOpener connection(kKey, 8, 1);
    DatagramOpener channel(kKey, 7, 2);
    EXPECT_EQ(other.open(span(good)).error(), Error::eacces);
    EXPECT_EQ(connection.open(span(good)).error(), Error::eproto);
    EXPECT_EQ(channel.open(span(good)).error(), Error::eproto);
}

// Beside a set that remembers everything.
TEST(ReplayWindow, LetsEachNumberInOnce) {
    std::mt19937_64 random(1);
    ReplayWindow window;
    std::set<uint64_t> seen;
    uint64_t head = 0;
    for (int round = 0; round < 300'000; round++) {
        uint64_t number = head + random() % 8;
        if (random() % 4 == 0) {
            number = head - std::min<uint64_t>(head, random() % 9000);
        } else if (random() % 1000 == 0) {
            number = head + random() % 20000;
        }
        const bool may_be_new = window.may_be_new(number);
        EXPECT_FALSE(may_be_new && seen.count(number) > 0) << number;
        if (number + ReplayWindow::kPackets - 64 >= head && seen.count(number) == 0) {
            EXPECT_TRUE(may_be_new) << number;
        }
        if (may_be_new) {
            window.add(number);
            seen.insert(number);
            head = std::max(head, number + 1);
        }
    }
    EXPECT_EQ(window.received(), seen.size());
}

// A path of a rate and a delay, with a queue: one round trip after the other.
class Path {
  public:
    Path(double bytes_per_ns, uint64_t delay_ns) : rate_(bytes_per_ns), delay_ns_(delay_ns) {}
    void run(Congestion& congestion, int rounds, double loss) {
        std::mt19937_64 random(1);
        for (int round = 0; round < rounds; round++) {
            const uint64_t packets = congestion.room_bytes(now_ns_) / 1000;
            const uint64_t first = next_;
            for (uint64_t packet = 0; packet < packets; packet++) {
                congestion.on_sent(now_ns_, next_++, 1000);
            }
            const auto drain_ns =
                static_cast<uint64_t>(static_cast<double>(packets) * 1000 / rate_);
            uint64_t last_come = 0;
            bool any = false;
            for (uint64_t number = first; number < next_; number++) {
                if (static_cast<double>(random() % 1000) >= loss * 1000) {
                    received_++;
                    last_come = number;
                    any = true;
                }
            }
            // What waits: the window's bytes beyond what the path holds.
            now_ns_ += std::max(delay_ns_, drain_ns);
            queue_ns_ = drain_ns > delay_ns_ ? drain_ns - delay_ns_ : 0;
            if (any) {
                congestion.on_feedback(now_ns_, last_come, received_, delay_ns_ + queue_ns_);
            }
        }
    }
    uint64_t queue_ns() const { return queue_ns_; }

  private:
    double rate_;
    uint64_t delay_ns_;
    uint64_t now_ns_ = 1'000'000;
    uint64_t next_ = 0;
    uint64_t received_ = 0;
    uint64_t queue_ns_ = 0;
};

TEST(Congestion, FillsThePathAndNotItsQueues) {
    for (const double loss : {0.0, 0.01, 0.1}) {
        Congestion congestion(1000, 1 << 30);
        Path path(1.25, 20'000'000);  // 10 Gbit/s, 20 ms: 25 MB fit
        path.run(congestion, 400, loss);
        EXPECT_GT(congestion.window_bytes(), 20'000'000U) << loss;
        EXPECT_LT(path.queue_ns(), 10'000'000U) << loss;
    }
}

// A path without a queue, packet by packet: feedback comes for each a round trip later, and whenever the window has room
// it is used.
class LongPath {
  public:
    void run(Congestion& congestion, uint64_t round_trip_ns, uint64_t duration_ns) {
        constexpr uint64_t kStepNs = 1'000'000;
        for (const uint64_t end_ns = now_ns_ + duration_ns; now_ns_ < end_ns; now_ns_ += kStepNs) {
            const uint64_t before = answered_;
            while (answered_ < sent_at_.size() && sent_at_[answered_] + round_trip_ns <= now_ns_) {
                answered_++;
            }
            if (answered_ > before) {
                congestion.on_feedback(now_ns_, answered_ - 1, answered_, round_trip_ns);
            }
            for (uint64_t room = congestion.room_bytes(now_ns_) / 1000; room > 0; room--) {
                congestion.on_sent(now_ns_, sent_at_.size(), 1000);
                sent_at_.push_back(now_ns_);
            }
        }
    }

  private:
    uint64_t now_ns_ = 1'000'000;
    uint64_t answered_ = 0;
    std::vector<uint64_t> sent_at_;
};

TEST(Congestion, MeasuresPathsThatAreLongerThanItsTimeout) {
    for (const uint64_t round_trip_ns : {50'000'000U, 200'000'000U, 600'000'000U}) {
        Congestion congestion(1000, 1 << 20);
        LongPath path;
        path.run(congestion, round_trip_ns, 30 * round_trip_ns);
        EXPECT_EQ(congestion.round_trip_ns(), round_trip_ns);
        EXPECT_EQ(congestion.window_bytes(), 1U << 20) << round_trip_ns;
    }
}

// A path that has become longer than the timeout that its round trips gave.
TEST(Congestion, MeasuresAPathThatHasBecomeLonger) {
    Congestion congestion(1000, 1 << 20);
    LongPath path;
    path.run(congestion, 1'000'000, 100'000'000);
    EXPECT_EQ(congestion.round_trip_ns(), 1'000'000U);
    path.run(congestion, 300'000'000, 20'000'000'000);
    EXPECT_GT(congestion.round_trip_ns(), 290'000'000U);
}

TEST(Congestion, AWindowThatIsNotUsedDoesNotGrow) {
    Congestion congestion(1000, 1 << 30);
    uint64_t now_ns = 1000;
    for (uint64_t number = 0; number < 200; number += 2) {  // requests and responses
        congestion.on_sent(now_ns, number, 1000);
        congestion.on_sent(now_ns, number + 1, 1000);
        now_ns += 1'000'000;
        congestion.on_feedback(now_ns, number + 1, number + 2, 1'000'000);
    }
    EXPECT_EQ(congestion.window_bytes(), kInitialWindowPackets * 1000);
}

TEST(Congestion, StaysWithinItsBounds) {
    Congestion congestion(1000, 100'000);
    Path path(1.25, 20'000'000);
    path.run(congestion, 50, 0);
    EXPECT_EQ(congestion.window_bytes(), 100'000U);
    path.run(congestion, 50, 0.5);
    EXPECT_GE(congestion.window_bytes(), kMinWindowPackets * 1000);
    EXPECT_LT(congestion.window_bytes(), 20'000U);
}

// A pause during the search for the smallest round trip begins it anew, also within a round: a longer round trip after
// it is not taken for a queue.
TEST(Congestion, APauseForgetsTheRoundTripsOfItsRound) {
    constexpr uint64_t kMs = 1'000'000;
    Congestion congestion(1000, 1 << 20);
    uint64_t next = 0;
    const auto fill = [&](uint64_t now_ns) {
        while (congestion.room_bytes(now_ns) >= 1000) {
            congestion.on_sent(now_ns, next++, 1000);
        }
    };
    fill(0);
    congestion.on_feedback(kMs, next - 1, next - 1, kMs);  // one is lost
    fill(kMs);
    // Half of the window, late: the doubling ends, and the search begins. The rest fills its round, but does not end it.
    congestion.on_feedback(11 * kMs, next - 33, next - 34, 10 * kMs);
    congestion.on_feedback(11 * kMs, next - 1, next - 2, 2 * kMs);
    const uint64_t before = congestion.window_bytes();
    fill(10'000 * kMs);
    congestion.on_feedback(10'005 * kMs, next - 1, next - 2, 5 * kMs);
    EXPECT_GT(congestion.window_bytes(), before);
}

TEST(Congestion, SilenceFreesTheWindow) {
    Congestion congestion(1000, 1 << 20);
    uint64_t number = 0;
    while (congestion.room_bytes(0) >= 1000) {
        congestion.on_sent(0, number++, 1000);
    }
    EXPECT_EQ(number, kInitialWindowPackets);
    ASSERT_NE(congestion.timeout_at_ns(), ~uint64_t{0});
    EXPECT_EQ(congestion.room_bytes(congestion.timeout_at_ns() - 1), 0U);
    EXPECT_EQ(congestion.room_bytes(congestion.timeout_at_ns()), kInitialWindowPackets * 500);
    congestion.on_feedback(1'000'000'000, 5, 6, 1000);           // late: of what was given up
    congestion.on_feedback(1'000'000'000, number + 5, 6, 1000);  // of what was never sent
    EXPECT_EQ(congestion.window_bytes(), kInitialWindowPackets * 500);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
