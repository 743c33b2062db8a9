// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The network, with an endpoint that does nothing but send numbered packets and write down what arrives.
#include "rdma_blk/sdr/simulated/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace tiffin::rdma_blk::sdr {
namespace {

constexpr uint32_t kPacketBytes = 1000;

struct Seen {
    uint64_t at_ns;
    uint32_t first_packet;
    uint32_t packet_count;
    uint64_t payload_bytes;
    uint8_t flags;
};

class Recorder : public Endpoint {
  public:
    // To be sent, as one run; the last packet is `short_by` bytes shorter.
    void post(uint32_t packets, uint32_t short_by = 0, bool with_bytes = false) {
        packets_ = packets;
        sent_ = 0;
        bytes_ = uint64_t{packets} * kPacketBytes - short_by;
        payload_.clear();
        for (uint64_t i = 0; with_bytes && i < bytes_; ++i) {
            payload_.push_back(static_cast<unsigned char>(i * 7 + i / 256));
        }
    }
    void post_control(const char* text) { control_ = text; }
    void set_timer(uint64_t at_ns) { timer_ns_ = at_ns; }

    void on_data(uint64_t now_ns, const DataRun& run) override {
        seen.push_back({now_ns, run.first_packet, run.packet_count, run.payload_bytes, run.flags});
        if (run.payload != nullptr) {
            const size_t offset = size_t{run.first_packet} * kPacketBytes;
            received.resize(std::max(received.size(), offset + run.payload_bytes));
            std::memcpy(received.data() + offset, run.payload, run.payload_bytes);
        }
    }
    void on_control(uint64_t now_ns, ByteSpan message) override {
        controls.emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
        control_times.push_back(now_ns);
    }
    bool next_transmit(uint64_t now_ns, uint32_t max_packets, Transmit& out) override {
        (void)now_ns;
        if (!control_.empty()) {
            out.is_control = true;
            out.control_bytes = control_.size();
            std::memcpy(out.control, control_.data(), control_.size());
            control_.clear();
            return true;
        }
        if (sent_ == packets_) {
            return false;
        }
        const uint32_t count = std::min(max_packets, packets_ - sent_);
        const uint64_t offset = uint64_t{sent_} * kPacketBytes;
        out.is_control = false;
        out.run = {};
        out.run.first_packet = sent_;
        out.run.packet_count = count;
        out.run.flags = data_flag::acknowledge_now;
        out.run.payload = payload_.empty() ? nullptr : payload_.data() + offset;
        out.run.payload_bytes = std::min(uint64_t{count} * kPacketBytes, bytes_ - offset);
        sent_ += count;
        return true;
    }
    uint64_t next_timer_ns() const override { return timer_ns_; }
    void on_timer(uint64_t now_ns) override {
        timers.push_back(now_ns);
        timer_ns_ = kNoTimer;
    }

    std::vector<Seen> seen;
    std::vector<unsigned char> received;
    const std::vector<unsigned char>& payload() const { return payload_; }
    std::vector<std::string> controls;
    std::vector<uint64_t> control_times;
    std::vector<uint64_t> timers;

  private:
    uint32_t packets_ = 0;
    uint32_t sent_ = 0;
    uint64_t bytes_ = 0;
    std::vector<unsigned char> payload_;
    std::string control_;
    uint64_t timer_ns_ = kNoTimer;
};

// A nanosecond for a byte, and a millisecond of delay.
simulation::LinkOptions slow_link() {
    simulation::LinkOptions options;
    options.bits_per_second = 8e9;
    options.delay_ns = 1'000'000;
    return options;
}

class NetworkTest : public testing::Test {
  protected:
    void connect(const NetworkOptions& options, const simulation::LinkOptions& there) {
        network_ = std::make_unique<Network>(options);
        sender_ = network_->add(from_);
        receiver_ = network_->add(to_);
        there_ = network_->add_link(there, 1);
        network_->connect(sender_, receiver_, there_, network_->add_link(slow_link(), 2));
    }
    void run() {
        network_->kick(sender_);
        network_->kick(receiver_);
        while (network_->step()) {
            ASSERT_LT(network_->steps(), 100'000U);
        }
    }

    Recorder from_;
    Recorder to_;
    std::unique_ptr<Network> network_;
    Network::Node sender_ = 0;
    Network::Node receiver_ = 0;
    Network::LinkNumber there_ = 0;
};

TEST_F(NetworkTest, RunsArriveWhenTheirLastPacketDoes) {
    connect({.packet_bytes = kPacketBytes, .max_run_packets = 4}, slow_link());
    from_.post(10, 300);
    run();
    ASSERT_EQ(to_.seen.size(), 3U);
    EXPECT_EQ(to_.seen[0].at_ns, 1'004'000U);
    EXPECT_EQ(to_.seen[1].at_ns, 1'008'000U);
    EXPECT_EQ(to_.seen[2].at_ns, 1'010'000U);
    EXPECT_EQ(to_.seen[2].first_packet, 8U);
    EXPECT_EQ(to_.seen[2].payload_bytes, 1700U);
    EXPECT_EQ(network_->now_ns(), 1'010'000U);
}

TEST_F(NetworkTest, HeadersTakeTime) {
    connect({.packet_bytes = kPacketBytes, .header_bytes = 64, .max_run_packets = 4}, slow_link());
    from_.post(4);
    run();
    ASSERT_EQ(to_.seen.size(), 1U);
    EXPECT_EQ(to_.seen[0].at_ns, 1'000'000U + 4 * 1064);
}

TEST_F(NetworkTest, LossSplitsRunsAndKeepsTheFlagsForTheLastPacket) {
    simulation::LinkOptions lossy = slow_link();
    lossy.loss.good_rate = 0.2;
    connect({.packet_bytes = kPacketBytes, .max_run_packets = 100}, lossy);
    from_.post(100);
    run();
    const uint64_t lost = network_->link(there_).counters().lost_packets;
    EXPECT_GT(lost, 5U);
    uint64_t arrived = 0;
    uint32_t next = 0;
    for (const Seen& piece : to_.seen) {
        EXPECT_GE(piece.first_packet, next);
        next = piece.first_packet + piece.packet_count;
        EXPECT_EQ(piece.at_ns, 1'000'000U + next * 1000U);
        EXPECT_EQ(piece.flags, next == 100 ? data_flag::acknowledge_now : 0);
        arrived += piece.packet_count;
    }
    EXPECT_EQ(arrived + lost, 100U);
}

TEST_F(NetworkTest, BytesArriveInTheirPlaces) {
    simulation::LinkOptions rough = slow_link();
    rough.duplicate_rate = 0.1;
    rough.hold_rate = 0.2;
    rough.held_ns = 100'000;
    connect({.packet_bytes = kPacketBytes, .max_run_packets = 16}, rough);
    from_.post(100, 1, true);
    run();
    EXPECT_EQ(to_.received, from_.payload());
    EXPECT_GT(to_.seen.size(), 20U);
}

TEST_F(NetworkTest, ControlMessagesTravelBothWays) {
    connect({.packet_bytes = kPacketBytes}, slow_link());
    from_.post_control("there");
    to_.post_control("back");
    run();
    EXPECT_EQ(to_.controls, std::vector<std::string>{"there"});
    EXPECT_EQ(from_.controls, std::vector<std::string>{"back"});
    EXPECT_EQ(to_.control_times, std::vector<uint64_t>{1'000'005});
}

TEST_F(NetworkTest, TimersAreCalledInTime) {
    connect({.packet_bytes = kPacketBytes}, slow_link());
    from_.set_timer(5000);
    network_->kick(sender_);
    from_.set_timer(3000);  // earlier: the event for 5000 is old
    network_->kick(sender_);
    to_.set_timer(2000);
    network_->kick(receiver_);
    to_.set_timer(9000);  // later: not called before
    while (network_->step()) {
    }
    EXPECT_EQ(from_.timers, std::vector<uint64_t>{3000});
    EXPECT_EQ(to_.timers, std::vector<uint64_t>{9000});
}

TEST_F(NetworkTest, ATimerThatWantsToSendWaitsForTheLink) {
    // Its timer stays in the past until what it posted has been taken, as a delayed acknowledgement's does.
    class Impatient final : public Recorder {
      public:
        bool next_transmit(uint64_t now_ns, uint32_t max_packets, Transmit& out) override {
            const bool sends = Recorder::next_transmit(now_ns, max_packets, out);
            if (sends && out.is_control) {
                set_timer(kNoTimer);
            }
            return sends;
        }
        void on_timer(uint64_t) override {}
    };
    Impatient sender;
    Network network({.packet_bytes = kPacketBytes, .max_run_packets = 8});
    const Network::Node from = network.add(sender);
    const Network::Node to = network.add(to_);
    network.connect(from, to, network.add_link(slow_link(), 1), network.add_link(slow_link(), 2));
    sender.post(8);
    network.kick(from);  // the link is busy for 8000 ns
    sender.post_control("due");
    sender.set_timer(100);
    network.kick(from);
    while (network.step()) {
        ASSERT_LT(network.steps(), 100U);
    }
    EXPECT_EQ(to_.controls, std::vector<std::string>{"due"});
}

TEST_F(NetworkTest, TimeCanBeAdvanced) {
    connect({.packet_bytes = kPacketBytes, .max_run_packets = 1}, slow_link());
    from_.post(3);
    network_->kick(sender_);
    network_->advance(1'002'000);
    EXPECT_EQ(to_.seen.size(), 2U);
    EXPECT_EQ(network_->now_ns(), 1'002'000U);
    network_->advance(2'000'000);
    EXPECT_EQ(to_.seen.size(), 3U);
    EXPECT_EQ(network_->now_ns(), 2'000'000U);
    EXPECT_EQ(network_->next_event_ns(), kNoTimer);
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
