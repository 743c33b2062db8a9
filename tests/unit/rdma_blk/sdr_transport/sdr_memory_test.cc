// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory over datagrams, with the real server: all operations, what they cost, and what becomes of them on a
// network that loses packets.
#include "tests/unit/rdma_blk/sdr_transport/sdr_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

class SdrMemoryTest : public SdrFixture {
  protected:
    void SetUp() override {
        SdrFixture::SetUp();
        start();
    }
};

TEST_F(SdrMemoryTest, ReadsWhatWasWritten) {
    ClientFixture client;
    open_client(client);
    for (const size_t size :
         {size_t{1}, size_t{64}, size_t{4096}, size_t{16384}, size_t{65536}, size_t{1} << 20}) {
        const Bytes written = random_bytes(size, static_cast<unsigned>(size));
        ASSERT_EQ(client.write(12345, written.data(), size), Outcome::executed);
        EXPECT_EQ(std::memcmp(memory() + 12345, written.data(), size), 0);
        Bytes read(size);
        ASSERT_EQ(client.read(12345, read.data(), size), Outcome::executed);
        EXPECT_EQ(read, written);
    }
    EXPECT_EQ(client.flush(), Outcome::executed);
    EXPECT_GT(server_->counters().sdr_datagrams_received.load(), 12U);
    EXPECT_EQ(server_->counters().sdr_paths.load(), 1U);
}

TEST_F(SdrMemoryTest, RequestsDoNotTakeTheStream) {
    ClientFixture client;
    open_client(client);
    const uint64_t before = server_->counters().receive_calls.load();
    Bytes bytes(4096);
    constexpr int kCount = 200;
    for (int i = 0; i < kCount; i++) {
        ASSERT_EQ(client.read(0, bytes.data(), bytes.size()), Outcome::executed);
    }
    // Probes may come, for each second that this took.
    EXPECT_LT(server_->counters().receive_calls.load() - before, uint64_t{kCount} / 2);
    EXPECT_EQ(client.memory->statistics().round_trips, uint64_t{kCount});
}

TEST_F(SdrMemoryTest, AtomicsReturnWhatWasThere) {
    ClientFixture client;
    open_client(client);
    EXPECT_EQ(client.add(64, 5), 0U);
    EXPECT_EQ(client.add(64, 7), 5U);
    Operation swap;
    swap.kind = OperationKind::compare_swap;
    swap.offset_bytes = 64;
    swap.compare = 12;
    swap.operand = 99;
    client.run(swap);
    EXPECT_EQ(swap.outcome, Outcome::executed);
    EXPECT_EQ(swap.old_value, 12U);
}

TEST_F(SdrMemoryTest, ScattersAndGathers) {
    ClientFixture client;
    open_client(client);
    const Bytes written = random_bytes(100000, 3);
    Bytes read(written.size());
    std::vector<vfs::IoVector> out;
    std::vector<vfs::IoVector> in;
    for (size_t i = 0; i < 200; i++) {
        out.push_back({const_cast<unsigned char*>(written.data()) + i * 500, 500});
        in.push_back({read.data() + i * 500, 500});
    }
    Operation operation;
    operation.kind = OperationKind::write;
    operation.offset_bytes = 77;
    operation.buffers = out.data();
    operation.buffer_count = out.size();
    client.run(operation);
    ASSERT_EQ(operation.outcome, Outcome::executed);
    operation.reset();
    operation.kind = OperationKind::read;
    operation.buffers = in.data();
    client.run(operation);
    ASSERT_EQ(operation.outcome, Outcome::executed);
    EXPECT_EQ(read, written);
}

// By either end: but for the answer into the caller's buffer, and the first packets of the first message.
TEST_F(SdrMemoryTest, LargeRequestsAreNotCopied) {
    sdr_.scheme = SdrScheme::selective_repeat_nack;
    ClientFixture client;
    open_client(client);
    constexpr size_t kBytes = size_t{1} << 20;
    constexpr unsigned kCount = 16;
    Bytes bytes(kBytes);
    for (unsigned i = 0; i < kCount; i++) {
        bytes[i] = 1;
        ASSERT_EQ(client.write(i * 77, bytes.data(), kBytes), Outcome::executed);
        EXPECT_EQ(std::memcmp(memory() + i * 77, bytes.data(), kBytes), 0);
    }
    EXPECT_LT(client.memory->statistics().copied_bytes, 4096U);  // small answers
    EXPECT_LT(server_->counters().sdr_bytes_copied.load(), kCount * kBytes / 4);
    for (unsigned i = 0; i < kCount; i++) {
        ASSERT_EQ(client.read(i, bytes.data(), kBytes), Outcome::executed);
        EXPECT_EQ(std::memcmp(memory() + i, bytes.data(), kBytes), 0);
    }
    EXPECT_GE(client.memory->statistics().copied_bytes, kCount * kBytes);
    EXPECT_LT(client.memory->statistics().copied_bytes, kCount * kBytes / 4 * 5);
}

TEST_F(SdrMemoryTest, ABatchKeepsItsOrder) {
    ClientFixture client;
    open_client(client);
    Bytes data(65536, 1);
    Bytes record(512, 2);
    Io first(OperationKind::write, 0, data.data(), data.size());
    Io second(OperationKind::write, 131072, record.data(), record.size());
    second.operation.after_earlier = true;
    Operation flush;
    flush.kind = OperationKind::flush;
    flush.after_earlier = true;
    first.operation.next = &second.operation;
    second.operation.next = &flush;
    client.memory->submit(first.operation);
    client.memory->wait(flush);
    client.memory->wait(second.operation);
    client.memory->wait(first.operation);
    EXPECT_EQ(first.outcome(), Outcome::executed);
    EXPECT_EQ(second.outcome(), Outcome::executed);
    EXPECT_EQ(flush.outcome, Outcome::executed);
    EXPECT_EQ(memory()[131072], 2);
}

TEST_F(SdrMemoryTest, RefusesWhatTheVolumeDoesNotHave) {
    ClientFixture client;
    open_client(client);
    Bytes bytes(4096);
    EXPECT_EQ(client.read(kVolumeBytes, bytes.data(), bytes.size()), Outcome::not_executed);
    EXPECT_EQ(client.error, Error::eio);
    EXPECT_EQ(client.read(0, bytes.data(), bytes.size()), Outcome::executed);
}

// More operations than slots, from several threads, some that are waited for and some with a completion.
TEST_F(SdrMemoryTest, ManyThreadsShareThePath) {
    ClientFixture client;
    open_client(client);
    constexpr int kThreads = 4;
    constexpr int kRounds = 150;
    std::vector<std::thread> threads;
    std::atomic<int> failures{0};
    for (int number = 0; number < kThreads; number++) {
        threads.emplace_back([&, number] {
            const size_t size = size_t{4096} << (number * 2);
            const uint64_t place = static_cast<uint64_t>(number) << 20;
            Bytes written = random_bytes(size, static_cast<unsigned>(number));
            Bytes read(size);
            for (int round = 0; round < kRounds; round++) {
                written[static_cast<size_t>(round)] = static_cast<unsigned char>(round);
                Io out(OperationKind::write, place, written.data(), size);
                client.run(out.operation);
                std::atomic<int> done{0};
                Io in(OperationKind::read, place, read.data(), size);
                if (round % 2 != 0) {
                    in.operation.owner = &done;
                    in.operation.complete = [](Operation& operation) {
                        static_cast<std::atomic<int>*>(operation.owner)->store(1);
                    };
                    client.memory->submit(in.operation);
                    while (done.load() == 0) {
                        std::this_thread::yield();
                    }
                } else {
                    client.run(in.operation);
                }
                failures += out.outcome() != Outcome::executed ||
                                    in.outcome() != Outcome::executed || read != written
                                ? 1
                                : 0;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failures.load(), 0);
}

// A network that loses packets in both directions.
class SdrLossyTest : public SdrFixture {
  protected:
    void start_losing(uint32_t drop_ppm) {
        sdr_.drop_ppm = drop_ppm;
        configuration_.sdr_drop_ppm = drop_ppm;
        start();
    }
};

// A message that is lost keeps later ones waiting for their numbers while their memory is free: requests wait in their
// queue then, and answers in their requests, and neither is lost or costs the connection.
TEST_F(SdrLossyTest, WithManyOperationsOnTheirWayNoneIsForgotten) {
    start_losing(10'000);
    ClientFixture client;
    client.options.slot_count = 32;
    open_client(client);
    constexpr unsigned kThreads = 8;
    constexpr uint64_t kRounds = 400;
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < kThreads; number++) {
        threads.emplace_back([&, number] {
            for (uint64_t round = 0; round < kRounds; round++) {
                failures += client.add(uint64_t{number} * 64, 1) != round ? 1 : 0;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failures.load(), 0);
    const Statistics statistics = client.memory->statistics();
    EXPECT_EQ(statistics.reconnections, 0U);
    EXPECT_GT(statistics.datagrams_dropped, 0U);
}

// Each scheme, for requests and for answers.
class SdrLossTest : public SdrLossyTest, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Schemes, SdrLossTest,
                         ::testing::Values("auto", "sr", "nack", "xor", "mds", "xor:8:4",
                                           "mds:20:16", "mds:64:3"));

TEST_P(SdrLossTest, WhatIsLostComesAgain) {
    ASSERT_TRUE(parse_sdr_scheme(GetParam(), sdr_));
    start_losing(30'000);
    ClientFixture client;
    open_client(client);
    const bool is_coded = wire::is_erasure_code(sdr_.scheme);
    // Until something was lost, and both ends have restored it where a code does.
    const auto has_seen_it = [&] {
        const Statistics statistics = client.memory->statistics();
        return statistics.datagrams_dropped > 0 &&
               (!is_coded || (statistics.blocks_decoded > 0 &&
                              server_->counters().sdr_blocks_decoded.load() > 0));
    };
    for (unsigned round = 0; round < 20 || (!has_seen_it() && round < 1000); round++) {
        const size_t size = round % 4 == 0 ? size_t{1} << 20 : size_t{5000};
        const Bytes written = random_bytes(size, round);
        ASSERT_EQ(client.write(round * 64, written.data(), size), Outcome::executed);
        Bytes read(size);
        ASSERT_EQ(client.read(round * 64, read.data(), size), Outcome::executed);
        ASSERT_EQ(read, written);
        EXPECT_EQ(client.add(kVolumeBytes - 8, 1), round);
    }
    const Statistics statistics = client.memory->statistics();
    EXPECT_EQ(statistics.reconnections, 0U);
    EXPECT_GT(statistics.datagrams_dropped, 0U);
    EXPECT_TRUE(has_seen_it());
    EXPECT_TRUE(is_coded || sdr_.scheme == SdrScheme::automatic || statistics.blocks_decoded == 0);
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
