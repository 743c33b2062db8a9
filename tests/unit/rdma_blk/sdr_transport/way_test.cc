// SPDX-License-Identifier: MIT OR GPL-2.0-only
// transport=auto between two ways that both work: requests take the one that measures better, and nothing that happens
// to the other one harms them.
#include <thread>

#include "rdma_blk/transport/sdr/sdr_path.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "tests/unit/rdma_blk/sdr_transport/sdr_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

constexpr uint32_t kWindow = 8;
constexpr uint32_t kTrial = 6 * kWindow;

class WayTest : public SdrFixture {
  protected:
    void SetUp() override {
        SdrFixture::SetUp();
        configuration_.probe_interval_ms = 100;  // idle streams are found cut ten of them later
        start();
        link_ = std::make_unique<FaultyLink>(server_->port());
    }
    // The first look at the stream begins a trial.
    void open_measured(ClientFixture& client) {
        std::memcpy(client.options.key, key_.bytes, sizeof(client.options.key));
        StreamExtension extension;
        extension.transport_reason = "as ever";
        extension.make_requests = [this](size_t) { return std::make_shared<SdrPath>(sdr_); };
        extension.measured = WayChoice::Options{0, 0, kWindow};
        const RemoteAddress address{"127.0.0.1", link_->port()};
        auto opened = TcpMemory::open(address, client.options, &client.recorder, client.holder,
                                      client.problem, nullptr, extension);
        ASSERT_TRUE(opened.ok()) << client.problem;
        client.memory = opened.release_value();
    }
    void write_and_read(ClientFixture& client, int round) {
        const Bytes written = random_bytes(3000, static_cast<unsigned>(round));
        Bytes read(written.size());
        const uint64_t offset = static_cast<uint64_t>(round % 100) * 4096;
        ASSERT_EQ(client.write(offset, written.data(), written.size()), Outcome::executed);
        ASSERT_EQ(client.read(offset, read.data(), read.size()), Outcome::executed);
        ASSERT_EQ(read, written);
    }
    // Until a trial has ended, for at most a minute.
    void use_until_judged(ClientFixture& client) {
        const auto reason = [&] {
            return std::string(client.memory->connection().transport_reason);
        };
        const uint64_t deadline = host::monotonic_ns() + 60'000'000'000;
        for (int round = 0; reason() == "as ever" && host::monotonic_ns() < deadline; round++) {
            write_and_read(client, round);
        }
        ASSERT_NE(reason(), "as ever");
    }

    std::unique_ptr<FaultyLink> link_;
};

TEST_F(WayTest, ASlowStreamIsLeft) {
    link_->delay_us(20'000);
    ClientFixture client;
    open_measured(client);
    EXPECT_STREQ(client.memory->connection().transport_name, "tcp");
    use_until_judged(client);
    EXPECT_STREQ(client.memory->connection().transport_name, "sdr");
    EXPECT_STREQ(client.memory->connection().transport_reason, "faster than tcp in a trial");
    const uint64_t on_stream = link_->bytes_to_server();
    for (int round = 0; round < 50; round++) {
        write_and_read(client, round);
    }
    EXPECT_LT(link_->bytes_to_server() - on_stream, 10 * 3000U);  // probes
    EXPECT_EQ(client.memory->statistics().reconnections, 0U);
}

TEST_F(WayTest, DatagramsThatAreLostAreLeft) {
    sdr_.drop_ppm = 400'000;
    ClientFixture client;
    open_measured(client);
    use_until_judged(client);
    EXPECT_STREQ(client.memory->connection().transport_name, "tcp");
    EXPECT_STREQ(client.memory->connection().transport_reason, "faster than sdr in a trial");
    const uint64_t on_stream = link_->bytes_to_server();
    for (int round = 0; round < 50; round++) {
        write_and_read(client, round);
    }
    EXPECT_GT(link_->bytes_to_server() - on_stream, 50 * 3000U);
    EXPECT_EQ(client.memory->statistics().reconnections, 0U);
}

// Several requests at once, on both ways, and each is executed once.
TEST_F(WayTest, ThreadsShareATrial) {
    link_->delay_us(20'000);
    ClientFixture client;
    open_measured(client);
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 4; thread++) {
        threads.emplace_back([&client, thread] {
            for (int i = 0; i < static_cast<int>(kTrial); i++) {
                client.add(64 + 8 * thread, 1);
                Bytes bytes(2000, static_cast<unsigned char>(i));
                EXPECT_EQ(client.write(4096 * (thread + 1), bytes.data(), bytes.size()),
                          Outcome::executed);
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    use_until_judged(client);
    for (unsigned thread = 0; thread < 4; thread++) {
        EXPECT_EQ(client.add(64 + 8 * thread, 0), kTrial);
    }
    EXPECT_EQ(client.memory->statistics().reconnections, 0U);
}

// The chosen way goes on being it on the next connection, and the session goes on.
TEST_F(WayTest, AChoiceOutlivesItsConnection) {
    link_->delay_us(20'000);
    ClientFixture client;
    open_measured(client);
    use_until_judged(client);
    ASSERT_STREQ(client.memory->connection().transport_name, "sdr");
    link_->cut_to_server_after(1);
    const uint64_t deadline = host::monotonic_ns() + 60'000'000'000;
    while (client.memory->statistics().reconnections == 0 && host::monotonic_ns() < deadline) {
        write_and_read(client, 1);
    }
    while (std::strcmp(client.memory->connection().transport_name, "sdr") != 0 &&
           host::monotonic_ns() < deadline) {
        write_and_read(client, 2);
    }
    EXPECT_STREQ(client.memory->connection().transport_name, "sdr");
}

// No server that offers datagrams: everything stays as it is.
TEST_F(WayTest, AServerWithoutDatagramsIsNoTrouble) {
    link_.reset();
    server_.reset();
    configuration_.max_sdr_sessions = 0;
    start();
    link_ = std::make_unique<FaultyLink>(server_->port());
    ClientFixture client;
    open_measured(client);
    for (int round = 0; round < 20; round++) {
        write_and_read(client, round);
    }
    EXPECT_STREQ(client.memory->connection().transport_name, "tcp");
    EXPECT_EQ(client.memory->statistics().reconnections, 0U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
