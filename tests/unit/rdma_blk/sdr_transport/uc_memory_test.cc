// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory over UC queue pairs of devices that are made up, with the real server.
#include <unistd.h>

#include <string>

#include "tests/unit/rdma_blk/sdr_transport/sdr_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

class UcMemoryTest : public SdrFixture {
  protected:
    void SetUp() override {
        SdrFixture::SetUp();
        use_queue_pairs();
    }
    void expect_refusal(const char* problem) {
        ClientFixture client;
        const auto refused = try_open(client);
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error(), Error::eopnotsupp);
        EXPECT_NE(client.problem.find(problem), std::string::npos) << client.problem;
    }
};

TEST_F(UcMemoryTest, ReadsWhatWasWritten) {
    start();
    ClientFixture client;
    open_client(client);
    const uint64_t stream_calls = server_->counters().receive_calls.load();
    for (const size_t size : {size_t{1}, size_t{4096}, size_t{65537}, size_t{1} << 20}) {
        const Bytes written = random_bytes(size, static_cast<unsigned>(size));
        ASSERT_EQ(client.write(12345, written.data(), size), Outcome::executed);
        EXPECT_EQ(std::memcmp(memory() + 12345, written.data(), size), 0);
        Bytes read(size);
        ASSERT_EQ(client.read(12345, read.data(), size), Outcome::executed);
        EXPECT_EQ(read, written);
    }
    for (uint64_t i = 0; i < 200; i++) {
        EXPECT_EQ(client.add(64, 1) - client.add(64, 0), ~uint64_t{0});
    }
    EXPECT_EQ(client.flush(), Outcome::executed);
    EXPECT_GT(server_->counters().sdr_uc_packets_received.load(), 400U);
    EXPECT_GT(server_->counters().sdr_uc_packets_sent.load(), 400U);
    EXPECT_GT(client.memory->statistics().datagrams_received, 400U);
    EXPECT_EQ(client.memory->statistics().datagrams_refused, 0U);
    // Probes may come, for each second that this took.
    EXPECT_LT(server_->counters().receive_calls.load() - stream_calls, 200U);
    EXPECT_EQ(server_->counters().sdr_paths.load(), 1U);
}

TEST_F(UcMemoryTest, WhatCannotBeIsRefusedAtTheOpening) {
    start();
    network_->is_present = false;
    expect_refusal("this machine has no RDMA device");
    network_->is_present = true;
    network_->has_windows = false;
    expect_refusal("sdr over uc");
    network_->has_windows = true;
    network_->max_registration_bytes = 1 << 20;
    expect_refusal("sdr over uc");
    network_->max_registration_bytes = ~uint64_t{0};
    ClientFixture client;
    open_client(client);
    EXPECT_EQ(client.add(0, 1), 0U);
}

// Devices that fail end the path; the next one is of other queue pairs, and each operation is executed once.
TEST_F(UcMemoryTest, ANewPathTakesThePlaceOfOneWhoseDeviceFailed) {
    start();
    ClientFixture client;
    open_client(client);
    const auto is_up = [&] {
        return std::string(client.memory->connection().transport_name) == transport_name();
    };
    for (uint64_t round = 0; round < 3; round++) {
        EXPECT_EQ(client.add(0, 1), 2 * round);
        for (int i = 0; i < 6000 && !is_up(); i++) {
            usleep(10'000);
        }
        ASSERT_TRUE(is_up());
        network_->break_pairs();
        EXPECT_EQ(client.add(0, 1), 2 * round + 1);
    }
    EXPECT_GE(client.memory->statistics().reconnections, 3U);
    client.close();
    server_.reset();
    EXPECT_EQ(network_->window_count(), 0U);
    EXPECT_EQ(network_->queue_pair_count(), 0U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
