// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A client's path by itself, over an emulated link.
#include "rdma_blk/transport/sdr/sdr_path.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/simulation/emulator/udp_emulator.h"

namespace tiffin::rdma_blk::test {
namespace {

constexpr unsigned char kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};

sockaddr_in6 loopback() {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    std::memcpy(&address.sin6_addr, kLoopback, sizeof(kLoopback));
    return address;
}

class SdrPathTest : public ::testing::Test {
  protected:
    void SetUp() override { put_link(0); }
    void put_link(double loss_back) {
        simulation::EmulatorOptions options;
        options.forward.bits_per_second = simulation::kUnlimitedBitsPerSecond;
        options.backward.bits_per_second = simulation::kUnlimitedBitsPerSecond;
        options.backward.loss.good_rate = loss_back;
        options.near_address = loopback();
        options.far_address = loopback();
        options.longest_datagram_bytes = kWidestBytes;
        auto made = simulation::UdpEmulator::create(options);
        ASSERT_TRUE(made.ok());
        emulator_ = made.release_value();
    }

    // The packets that the path wants.
    uint32_t offer() {
        unsigned char parameters[wire::kMaxPathParametersBytes] = {};
        const auto size = path_.offer(loopback(), loopback(), keys_,
                                      MutableByteSpan(parameters, sizeof(parameters)));
        EXPECT_TRUE(size.ok());
        std::memcpy(&offered_, parameters, sizeof(offered_));
        return offered_.packet_bytes;
    }
    // What a server does.
    void join() {
        MessagePathOptions options;
        options.local = loopback();
        options.packet_bytes = offered_.packet_bytes;
        auto made = MessagePath::create(options);
        ASSERT_TRUE(made.ok());
        sent_by_earlier_ += server_ == nullptr ? 0 : server_->statistics().datagrams_sent;
        server_ = made.release_value();
        const wire::DatagramPathEnd common = MessagePath::common(server_->end(), offered_);
        ASSERT_TRUE(
            server_->start(MessagePath::common(offered_, common), emulator_->far_address(0)).ok());
        sockaddr_in6 server = loopback();
        server.sin6_port = htons(common.port);
        emulator_->set_far_peer(0, server);
        wire::DatagramPathEnd told = common;
        told.port = ntohs(emulator_->near_address(0).sin6_port);
        ASSERT_TRUE(
            path_.joined(ByteSpan(reinterpret_cast<const unsigned char*>(&told), sizeof(told)))
                .ok());
    }
    // Both ends live through so many seconds, for which nobody waits.
    void pass(int seconds) {
        constexpr int kTurns = 20;  // in each second
        for (int i = 0; i < seconds * kTurns; i++) {
            now_ns_ += 1'000'000'000 / kTurns;
            path_.receive(now_ns_);
            RequestPath::Answer answer;
            EXPECT_TRUE(path_.next_answer(answer).ok());
            path_.transmit(now_ns_);
            server_->take(now_ns_);
            server_->transmit(now_ns_);
            wait_for_emulator();
        }
    }
    // Everything that was sent has been passed on or dropped.
    void wait_for_emulator() {
        Statistics client;
        path_.add_statistics(client);
        const uint64_t sent =
            client.datagrams_sent + server_->statistics().datagrams_sent + sent_by_earlier_;
        const auto is_done = [&] {
            const simulation::EmulatorCounters now = emulator_->counters();
            return now.received >= sent &&
                   now.forwarded + now.lost + now.too_long + now.failed >= now.received;
        };
        for (int i = 0; i < 600'000 && !is_done(); i++) {
            usleep(100);
        }
        ASSERT_TRUE(is_done());
    }

    static constexpr uint32_t kWidestBytes = 1472;  // datagrams of an ordinary Ethernet
    TrafficKeys keys_{};
    std::unique_ptr<simulation::UdpEmulator> emulator_;
    SdrPath path_{SdrOptions{}};
    std::unique_ptr<MessagePath> server_;
    uint64_t sent_by_earlier_ = 0;  // servers' ends
    wire::DatagramPathEnd offered_{};
    uint64_t now_ns_ = host::monotonic_ns();
};

TEST_F(SdrPathTest, AnotherConnectionFitsThroughAPathThatWasTooNarrow) {
    EXPECT_GT(offer(), kWidestBytes);
    join();
    pass(9);
    path_.stop();
    const uint32_t first = offer();
    EXPECT_LT(first, kWidestBytes);
    EXPECT_GT(first, 1000U);
    // This one knows better what fits.
    join();
    pass(40);
    path_.stop();
    const uint32_t second = offer();
    EXPECT_GT(second, first);
    EXPECT_LT(second, kWidestBytes);
    path_.stop();
}

// It does not wait until it would give up: by then smaller packets are known to pass.
TEST_F(SdrPathTest, APathThatSwallowsItsPacketsFailsOnceItIsKnownToBeTooNarrow) {
    EXPECT_GT(offer(), kWidestBytes);
    join();
    pass(1);
    ASSERT_FALSE(path_.has_failed());
    std::vector<unsigned char> data(256 << 10);
    const vfs::IoVector buffer{data.data(), data.size()};
    wire::Request request{};
    request.operation = static_cast<uint8_t>(OperationKind::write);
    path_.send(request, {}, &buffer, 1);
    int seconds = 0;
    while (!path_.has_failed() && seconds < 60) {
        pass(1);
        seconds++;
    }
    EXPECT_LT(seconds, 10);
    path_.stop();
    EXPECT_LT(offer(), kWidestBytes);
}

TEST_F(SdrPathTest, APathOnWhichNothingComesBackFailsWithoutHavingBeenUp) {
    put_link(1);
    offer();
    join();
    pass(30);
    EXPECT_TRUE(path_.has_failed());
    EXPECT_FALSE(path_.is_up());
    EXPECT_GT(emulator_->counters().lost, 0U);
    path_.stop();
    EXPECT_FALSE(path_.has_failed());
    // The next connection may have another one.
    put_link(0);
    offer();
    EXPECT_FALSE(path_.has_failed());
    path_.stop();
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
