// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The tcp client while nothing fails: all operations, batches, limits, threads, and what they cost.
#include <gtest/gtest.h>

#include <random>

#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

using Bytes = std::vector<unsigned char>;

Bytes random_bytes(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    Bytes bytes(count);
    for (auto& byte : bytes) {
        byte = static_cast<unsigned char>(random());
    }
    return bytes;
}

class TcpMemoryTest : public ::testing::TestWithParam<bool> {
  protected:
    TcpMemoryTest() : client(GetParam()) {}
    void SetUp() override { client.open(server.port()); }

    MemoryServer server;
    ClientFixture client;
};

INSTANTIATE_TEST_SUITE_P(InClearAndSealed, TcpMemoryTest, ::testing::Bool());

TEST_P(TcpMemoryTest, KnowsWhatItHasOpened) {
    EXPECT_EQ(client.memory->geometry().data_bytes, MemoryServer::kDataBytes);
    EXPECT_EQ(client.memory->geometry().write_unit_bytes, 64U);
    EXPECT_EQ(client.memory->limits().transfer_bytes, wire::kMaxTransferBytes);
    EXPECT_EQ(client.memory->limits().operations_in_flight, 8U);
    const ConnectionInfo info = client.memory->connection();
    EXPECT_EQ(info.state, ConnectionState::ready);
    EXPECT_STREQ(info.transport_name, "tcp");
    EXPECT_EQ(info.epoch, 1U);
    EXPECT_EQ(info.incarnation, 1U);
    EXPECT_EQ(client.recorder.last(), ConnectionState::ready);
}

TEST_P(TcpMemoryTest, ReadsWhatWasWritten) {
    for (const size_t size :
         {size_t{1}, size_t{64}, size_t{4096}, size_t{65536}, size_t{1} << 20}) {
        const Bytes written = random_bytes(size, static_cast<unsigned>(size));
        ASSERT_EQ(client.write(12345, written.data(), size), Outcome::executed);
        Bytes read(size);
        ASSERT_EQ(client.read(12345, read.data(), size), Outcome::executed);
        EXPECT_EQ(read, written);
    }
    EXPECT_EQ(client.flush(), Outcome::executed);
    EXPECT_EQ(server.counts().flushes, 1U);
}

TEST_P(TcpMemoryTest, AtomicsReturnWhatWasThere) {
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
    swap.reset();
    client.run(swap);
    EXPECT_EQ(swap.old_value, 99U);
    swap.reset();
    swap.space = AddressSpace::control;
    client.run(swap);
    EXPECT_EQ(swap.old_value, 0U);
}

TEST_P(TcpMemoryTest, ScattersAndGathers) {
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

TEST_P(TcpMemoryTest, ABatchWithOrderTakesOneRoundTripAndOneSend) {
    Bytes data(4096, 1);
    Bytes journal(512, 2);
    const Statistics before = client.memory->statistics();
    Io first(OperationKind::write, 0, data.data(), data.size());
    Io second(OperationKind::write, 8192, journal.data(), journal.size());
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
    EXPECT_EQ(client.memory->statistics().round_trips - before.round_trips, 1U);
    // Each operation that waits for the answer of another one is a round trip of its own.
    client.write(0, data.data(), 64);
    client.write(0, data.data(), 64);
    EXPECT_EQ(client.memory->statistics().round_trips - before.round_trips, 3U);
}

TEST_P(TcpMemoryTest, WhatFollowsARefusalIsRefused) {
    Bytes data(64, 1);
    Io beyond(OperationKind::write, MemoryServer::kDataBytes, data.data(), data.size());
    Io follower(OperationKind::write, 0, data.data(), data.size());
    Io other(OperationKind::write, 64, data.data(), data.size());
    follower.operation.after_earlier = true;
    beyond.operation.next = &follower.operation;
    follower.operation.next = &other.operation;
    client.memory->submit(beyond.operation);
    client.memory->wait(other.operation);
    client.memory->wait(follower.operation);
    client.memory->wait(beyond.operation);
    EXPECT_EQ(beyond.outcome(), Outcome::not_executed);
    EXPECT_EQ(beyond.operation.error, Error::eio);
    EXPECT_EQ(follower.outcome(), Outcome::not_executed);
    EXPECT_EQ(follower.operation.error, Error::ecanceled);
    EXPECT_EQ(other.outcome(), Outcome::executed);
    EXPECT_EQ(server.counts().writes, 1U);
}

TEST_P(TcpMemoryTest, WhatExceedsTheLimitsNeverLeaves) {
    Bytes data((1 << 20) + 1);
    EXPECT_EQ(client.read(0, data.data(), data.size()), Outcome::not_executed);
    EXPECT_EQ(client.error, Error::einval);
    Operation odd;
    odd.kind = OperationKind::fetch_add;
    odd.offset_bytes = 4;
    Io follower(OperationKind::write, 0, data.data(), 64);
    follower.operation.after_earlier = true;
    odd.next = &follower.operation;
    client.memory->submit(odd);
    client.memory->wait(odd);
    client.memory->wait(follower.operation);
    EXPECT_EQ(odd.error, Error::einval);
    EXPECT_EQ(follower.operation.error, Error::ecanceled);
    std::vector<ByteRange> ranges(wire::kMaxFlushRanges + 1);
    Operation flush;
    flush.kind = OperationKind::flush;
    flush.ranges = ranges.data();
    flush.range_count = ranges.size();
    client.run(flush);
    EXPECT_EQ(flush.error, Error::einval);
    std::vector<vfs::IoVector> pieces(client.memory->limits().buffer_count + 1,
                                      vfs::IoVector{data.data(), 1});
    Operation read;
    read.buffers = pieces.data();
    read.buffer_count = pieces.size();
    client.run(read);
    EXPECT_EQ(read.error, Error::einval);
    const auto counts = server.counts();
    EXPECT_EQ(counts.reads + counts.writes + counts.atomics + counts.flushes, 0U);
    EXPECT_EQ(client.memory->connection().state, ConnectionState::ready);
}

TEST_P(TcpMemoryTest, MoreThanTheSlotsCanWait) {
    constexpr size_t kCount = 300;
    std::vector<Io> ios(kCount);
    Bytes data = random_bytes(kCount * 512, 9);
    for (size_t i = 0; i < kCount; i++) {
        ios[i].set(OperationKind::write, i * 512, data.data() + i * 512, 512);
        ios[i].operation.next = i + 1 < kCount ? &ios[i + 1].operation : nullptr;
    }
    client.memory->submit(ios[0].operation);
    for (auto& io : ios) {
        client.memory->wait(io.operation);
        EXPECT_EQ(io.outcome(), Outcome::executed);
    }
    EXPECT_EQ(0, std::memcmp(server.data().data(), data.data(), data.size()));
    EXPECT_EQ(server.counts().writes, kCount);
}

// The goal "a read costs what a ping-pong costs" as counts.
TEST_P(TcpMemoryTest, ASynchronousReadIsOneSendAndOneReceive) {
    Bytes data(4096);
    client.read(0, data.data(), data.size());
    const Statistics before = client.memory->statistics();
    constexpr uint64_t kReads = 200;
    for (uint64_t i = 0; i < kReads; i++) {
        client.read(0, data.data(), data.size());
    }
    const Statistics after = client.memory->statistics();
    EXPECT_EQ(after.round_trips - before.round_trips, kReads);
    // An answer may come in two parts, and the session's thread looks around now and then.
    EXPECT_GE(after.system_calls - before.system_calls, 2 * kReads);
    EXPECT_LE(after.system_calls - before.system_calls, 3 * kReads);
    RecordProperty("system_calls_per_100_reads",
                   static_cast<int>((after.system_calls - before.system_calls) / 2));
}

struct Countdown {
    std::atomic<uint32_t> completed{0};
    host::Semaphore done;
    static void complete(Operation& operation) {
        auto* self = static_cast<Countdown*>(operation.owner);
        self->completed++;
        self->done.post();
    }
};

TEST_P(TcpMemoryTest, CompletionFunctionsAreCalledWithoutAnybodyWaiting) {
    Countdown countdown;
    std::vector<Io> ios(50);
    Bytes data(64, 4);
    for (size_t i = 0; i < ios.size(); i++) {
        ios[i].set(OperationKind::write, i * 64, data.data(), data.size());
        ios[i].operation.complete = Countdown::complete;
        ios[i].operation.owner = &countdown;
        client.memory->submit(ios[i].operation);
        if (i % 10 == 0) {  // a synchronous one in between takes the lead
            client.write(0, data.data(), data.size());
        }
    }
    for (size_t i = 0; i < ios.size(); i++) {
        countdown.done.wait();
    }
    EXPECT_EQ(countdown.completed, ios.size());
}

TEST_P(TcpMemoryTest, ProgressIsMadeByWhoAsksForIt) {
    Bytes data(64, 4);
    Io io(OperationKind::write, 0, data.data(), data.size());
    client.memory->submit(io.operation);
    while (io.operation.finished == 0) {
        client.memory->progress();
    }
    EXPECT_EQ(io.outcome(), Outcome::executed);
}

TEST_P(TcpMemoryTest, ManyThreadsShareOneConnection) {
    constexpr int kThreads = 6;
    constexpr uint64_t kRounds = 200;
    std::vector<std::thread> threads;
    std::atomic<uint64_t> wrong{0};
    for (int t = 0; t < kThreads; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            const uint64_t base = static_cast<uint64_t>(t) << 19;
            for (uint64_t i = 0; i < kRounds; i++) {
                const size_t size = 1 + random() % (i % 20 == 0 ? 300000 : 5000);
                const Bytes out = random_bytes(size, static_cast<unsigned>(random()));
                Bytes in(size);
                wrong += client.write(base + 8, out.data(), size) != Outcome::executed;
                wrong += client.read(base + 8, in.data(), size) != Outcome::executed;
                wrong += in != out;
                client.add(4 << 19, 1);
            }
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0U);
    EXPECT_EQ(client.add(4 << 19, 0), kThreads * kRounds);
    const Statistics statistics = client.memory->statistics();
    EXPECT_EQ(statistics.outcomes[static_cast<size_t>(Outcome::executed)],
              3 * kThreads * kRounds + 1);
    EXPECT_EQ(statistics.reconnections, 0U);
}

// ---- Who may ------------------------------------------------------------------------------------------

TEST_P(TcpMemoryTest, AWrongKeyAndAnUnknownVolumeAreToldAlike) {
    ClientFixture stranger(GetParam());
    stranger.options.key[0] ^= 1;
    EXPECT_EQ(stranger.try_open(server.port()).error(), Error::eacces);
    const std::string problem = stranger.problem;
    EXPECT_NE(problem.find("wrong key, or no such volume"), std::string::npos);
    stranger.options.key[0] ^= 1;
    stranger.options.volume_name = "other";
    EXPECT_EQ(stranger.try_open(server.port()).error(), Error::eacces);
    EXPECT_EQ(stranger.problem, problem);
}

TEST_P(TcpMemoryTest, ASecondWriterIsToldWhoHasTheLease) {
    ClientFixture second(GetParam());
    second.options.client_uuid[0] = 2;
    EXPECT_EQ(second.try_open(server.port()).error(), Error::ebusy);
    EXPECT_STREQ(second.holder.text, "the test");
    EXPECT_NE(second.problem.find("in use by the test"), std::string::npos);
    // A reader may come, and become the writer when the lease is free.
    second.options.mode = OpenOptions::Mode::read;
    second.open(server.port());
    Bytes data(64, 1);
    EXPECT_EQ(second.write(0, data.data(), 64), Outcome::not_executed);
    EXPECT_EQ(second.error, Error::erofs);
    EXPECT_EQ(second.memory->start_writing(false, second.holder).error(), Error::ebusy);
    client.close();
    ASSERT_TRUE(second.memory->start_writing(false, second.holder).ok());
    EXPECT_EQ(second.memory->connection().epoch, 2U);
    EXPECT_EQ(second.write(0, data.data(), 64), Outcome::executed);
}

TEST_P(TcpMemoryTest, ANewSizeBecomesKnown) {
    server.resize(2 * MemoryServer::kDataBytes);
    Bytes data(64, 1);
    EXPECT_EQ(client.write(2 * MemoryServer::kDataBytes - 64, data.data(), 64), Outcome::executed);
    EXPECT_EQ(client.memory->geometry().data_bytes, 2 * MemoryServer::kDataBytes);
}

TEST_P(TcpMemoryTest, NobodyThereIsAnErrorWithAReason) {
    uint16_t port = 0;
    {
        MemoryServer gone;
        port = gone.port();
    }
    ClientFixture lonely(GetParam());
    EXPECT_FALSE(lonely.try_open(port).ok());
    EXPECT_FALSE(lonely.problem.empty());
}

TEST(TcpMemoryVersionTest, AServerOfTheFirstVersionIsUsedOverOneLink) {
    MemoryServer server;
    server.set_version(1);
    for (const bool has_two_links : {false, true}) {
        SCOPED_TRACE(has_two_links);
        ClientFixture client;
        RemoteAddress address{"127.0.0.1", server.port(), TransportChoice::tcp};
        if (has_two_links) {
            address.more_links = {{"localhost", server.port()}};
        }
        auto opened = open_remote_memory(address, client.options, &client.recorder, client.holder,
                                         client.problem);
        ASSERT_TRUE(opened.ok()) << client.problem;
        client.memory = opened.release_value();
        EXPECT_EQ(client.add(8, 5), 0U);
        EXPECT_EQ(client.add(8, 5), 5U);
        server.cut_connections();
        EXPECT_EQ(client.add(8, -uint64_t{10}), 10U);
        EXPECT_EQ(client.memory->statistics().reconnections, 1U);
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
