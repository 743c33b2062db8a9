// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory over datagrams that pass an emulated link between the client and the real server.
#include <thread>

#include "rdma_blk/sdr/simulated/emulated_path.h"
#include "rdma_blk/transport/sdr/sdr_path.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "tests/unit/rdma_blk/sdr_transport/sdr_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

class EmulatedLinkTest : public SdrFixture {
  protected:
    void SetUp() override {
        SdrFixture::SetUp();
        start();
        configuration_.listen = {{"127.0.0.1", server_->port()}};  // restart() comes back there
    }
    void put_link(double loss, uint64_t delay_ns, double loss_back,
                  double bits_per_second = simulation::kUnlimitedBitsPerSecond) {
        simulation::EmulatorOptions options;
        options.forward.bits_per_second = bits_per_second;
        options.forward.delay_ns = delay_ns;
        options.forward.loss.good_rate = loss;
        options.backward = options.forward;
        options.backward.loss.good_rate = loss_back;
        auto made = sdr::EmulatedPath::create(options);
        ASSERT_TRUE(made.ok());
        link_ = made.release_value();
        sdr_.detour = link_.get();
    }
    void write_and_read(ClientFixture& client, unsigned seed) {
        const Bytes written = random_bytes(1 << 20, seed);
        ASSERT_EQ(client.write(seed * 64, written.data(), written.size()), Outcome::executed);
        EXPECT_EQ(std::memcmp(memory() + seed * 64, written.data(), written.size()), 0);
        Bytes read(written.size());
        ASSERT_EQ(client.read(seed * 64, read.data(), read.size()), Outcome::executed);
        EXPECT_EQ(read, written);
    }
    bool goes_over_sdr(const ClientFixture& client) {
        const auto is_there = [&] {
            return std::string(client.memory->connection().transport_name) == "sdr";
        };
        for (int i = 0; i < 6000 && !is_there(); i++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        return is_there();
    }

    std::unique_ptr<sdr::EmulatedPath> link_;
};

TEST_F(EmulatedLinkTest, AllBytesAreRightAndLossesAreCounted) {
    put_link(0.05, 1'000'000, 0.05);
    ClientFixture client;
    open_client(client);
    for (unsigned round = 0; round < 4; round++) {
        write_and_read(client, round);
        EXPECT_EQ(client.add(kVolumeBytes - 8, 1), round);
    }
    const Statistics statistics = client.memory->statistics();
    const simulation::EmulatorCounters counters = link_->emulator().counters();
    EXPECT_GT(counters.lost, 0U);
    EXPECT_GT(counters.forwarded, server_->counters().sdr_datagrams_received.load());
    EXPECT_GT(statistics.chunks_lost + statistics.chunks_repeated, 0U);
    EXPECT_EQ(statistics.reconnections, 0U);
    // It is 2 ms, but a thread may lose its processor between two looks at the clock.
    EXPECT_GT(statistics.round_trip_us, 0U);
    client.close();  // before the link
}

TEST_F(EmulatedLinkTest, TheRateOfTheLinkIsFound) {
    put_link(0, 1'000'000, 0, 4e8);
    ClientFixture client;
    client.options.slot_count = 32;
    open_client(client);
    const auto is_known = [&] { return client.memory->statistics().path_rate_bytes_per_s > 0; };
    EXPECT_FALSE(is_known());
    constexpr unsigned kThreads = 6;
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < kThreads; number++) {
        threads.emplace_back([&, number] {
            const Bytes written = random_bytes(1 << 20, number);
            for (int round = 0; round < 300 && !is_known(); round++) {
                EXPECT_EQ(client.write(number * 64, written.data(), written.size()),
                          Outcome::executed);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_TRUE(is_known());
    client.close();  // before the link
}

TEST_F(EmulatedLinkTest, TheNextConnectionPassesItToo) {
    put_link(0, 0, 0);
    ClientFixture client;
    open_client(client);
    write_and_read(client, 1);
    restart();
    EXPECT_EQ(client.add(kVolumeBytes - 8, 1), 0U);  // not before there is a connection again
    ASSERT_TRUE(goes_over_sdr(client));
    const uint64_t before = link_->emulator().counters().forwarded;
    write_and_read(client, 2);
    // 1 MiB to and fro, in datagrams of less than 64 KiB.
    EXPECT_GT(link_->emulator().counters().forwarded, before + 32);
    EXPECT_GE(client.memory->statistics().reconnections, 1U);
    client.close();
}

// The server hears of the client, which never hears of it: nothing waits for the path.
TEST_F(EmulatedLinkTest, WhenNothingComesBackAllGoesOverTheStream) {
    put_link(0, 0, 1);
    ClientFixture client;
    std::memcpy(client.options.key, key_.bytes, sizeof(client.options.key));
    const RemoteAddress address{"127.0.0.1", server_->port(), TransportChoice::sdr};
    StreamExtension extension;
    extension.make_requests = [this](size_t) { return std::make_shared<SdrPath>(sdr_); };
    auto opened = TcpMemory::open(address, client.options, &client.recorder, client.holder,
                                  client.problem, nullptr, extension);
    ASSERT_TRUE(opened.ok()) << client.problem;
    client.memory = opened.release_value();
    const auto is_heard = [&] { return server_->counters().sdr_datagrams_received.load() > 0; };
    for (uint64_t round = 0; round < 3 || (!is_heard() && round < 60'000); round++) {
        EXPECT_EQ(client.add(kVolumeBytes - 8, 1), round);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    write_and_read(client, 1);
    EXPECT_TRUE(is_heard());
    EXPECT_STREQ(client.memory->connection().transport_name, "tcp");
    EXPECT_EQ(client.memory->statistics().datagrams_received, 0U);
    EXPECT_EQ(client.memory->statistics().reconnections, 0U);
    client.close();
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
