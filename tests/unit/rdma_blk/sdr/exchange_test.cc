// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Requests and answers, one after the other, on a network that loses some of both: what a transport does. Whatever is
// lost comes again soon; no connection fails, and none stands still until it would.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "rdma_blk/sdr/reliable_connection.h"
#include "tests/support/test_size.h"
#include "tests/unit/rdma_blk/sdr/bytes.h"
#include "tests/unit/rdma_blk/sdr/unruly_network.h"

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr size_t kReceives = 8;
constexpr size_t kMaxBytes = 70'000;
constexpr uint64_t kSecondNs = 1'000'000'000;

// One end: always has receives posted, and answers every message by the next one.
class End {
  public:
    End(Context& context, const QueuePairAttributes& queue, const ReliabilityAttributes& attributes)
        : context_(context),
          connection_(reliable_connection_create(context, queue, attributes).release_value()) {
        memory_.resize(kReceives, std::vector<unsigned char>(kMaxBytes));
        for (std::vector<unsigned char>& memory : memory_) {
            receives_.push_back(
                context_.mr_reg(MutableByteSpan(memory.data(), memory.size())).release_value());
        }
    }
    ReliableConnection& connection() { return *connection_; }

    void post_receives(uint64_t now_ns) {
        while (posted_ < received_ + kReceives) {
            const auto number = connection_->recv_post(now_ns, receives_[posted_ % kReceives]);
            if (!number.ok()) {
                return;
            }
            posted_++;
        }
    }
    bool send(uint64_t now_ns, size_t size, SchemeChoice scheme) {
        if (sent_ != sends_completed_) {
            return false;
        }
        content_ = some_bytes(size, sent_ + 1);
        memory_sent_ =
            context_.mr_reg(MutableByteSpan(content_.data(), content_.size())).release_value();
        if (!connection_->send_post(now_ns, memory_sent_, 0, scheme).ok()) {
            return false;
        }
        sent_++;
        return true;
    }
    void take() {
        Completion completion;
        while (connection_->next_completion(completion)) {
            ASSERT_TRUE(completion.ok);
            completion.is_send ? sends_completed_++ : received_++;
        }
    }
    uint64_t received() const { return received_; }
    uint64_t sent() const { return sent_; }

  private:
    Context& context_;
    std::unique_ptr<ReliableConnection> connection_;
    std::vector<std::vector<unsigned char>> memory_;
    std::vector<RegisteredMemory> receives_;
    std::vector<unsigned char> content_;
    RegisteredMemory memory_sent_;
    uint64_t posted_ = 0;
    uint64_t received_ = 0;
    uint64_t sent_ = 0;
    uint64_t sends_completed_ = 0;
};

void exchange(uint64_t seed) {
    std::mt19937_64 random(seed);
    const std::unique_ptr<Context> context = context_create().release_value();
    QueuePairAttributes queue;
    queue.packet_bytes = 1400;
    queue.packets_per_chunk_log2 = 0;
    queue.max_messages = 16;
    queue.max_message_bytes = kMaxBytes;
    queue.bytes_in_flight = 16 * kMaxBytes;
    ReliabilityAttributes attributes;
    attributes.hold_us = random() % 3 == 0 ? 0 : static_cast<uint32_t>(1 + random() % 900);
    attributes.initial_round_trip_us = 1000;
    attributes.give_up_ns = 30 * kSecondNs;
    attributes.automatic = random() % 2 == 0;
    End left(*context, queue, attributes);
    End right(*context, queue, attributes);
    ASSERT_TRUE(left.connection().connect(right.connection().info_get()).ok());
    ASSERT_TRUE(right.connection().connect(left.connection().info_get()).ok());
    NetworkOptions options;
    const double losses[] = {0.003, 0.03, 0.2};
    options.loss = losses[random() % 3];
    options.delay_ns = uint64_t{20'000} << (random() % 8);
    options.jitter_ns = random() % 2 == 0 ? 0 : options.delay_ns;
    options.repeat = random() % 4 == 0 ? 0.05 : 0;
    options.window_packets = random() % 2 == 0 ? 0 : 8;
    UnrulyNetwork network(options, queue.packet_bytes, random(), left.connection(),
                          right.connection());
    constexpr uint64_t kRounds = 60;
    uint64_t last_ns = network.now_ns();
    uint64_t longest_ns = 0;
    const auto act = [&] {
        const uint64_t now_ns = network.now_ns();
        left.take();
        right.take();
        left.post_receives(now_ns);
        right.post_receives(now_ns);
        const SchemeChoice scheme{
            random() % 2 == 0 ? SchemeKind::selective_repeat : SchemeKind::selective_repeat_nack, 0,
            0};
        const size_t size = random() % 4 == 0 ? 1 + random() % kMaxBytes : 1 + random() % 200;
        if (left.received() == left.sent() && left.sent() < kRounds) {
            if (left.send(now_ns, size, scheme)) {
                longest_ns = std::max(longest_ns, now_ns - last_ns);
                last_ns = now_ns;
            }
        }
        if (right.received() > right.sent()) {
            right.send(now_ns, size, scheme);
        }
    };
    const bool done = network.run(network.now_ns() + 3000 * kSecondNs, act,
                                  [&] { return left.received() == kRounds; });
    EXPECT_TRUE(done);
    EXPECT_FALSE(left.connection().has_failed() || right.connection().has_failed());
    EXPECT_LT(longest_ns, 20 * kSecondNs);
}

TEST(Exchange, NeitherFailsNorStandsStill) {
    const char* only = std::getenv("TIFFIN_SEED");
    const uint64_t first = only == nullptr ? 1 : std::strtoull(only, nullptr, 10);
    const uint64_t last = only == nullptr ? test::test_size(150, 15, 6) : first;
    for (uint64_t seed = first; seed <= last; seed++) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        exchange(seed);
        if (testing::Test::HasFailure()) {
            return;
        }
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
