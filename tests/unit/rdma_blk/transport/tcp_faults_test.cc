// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The tcp client when things fail: connections cut anywhere, servers that stand still, forget, fence or end.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "tests/support/test_size.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

using tiffin::test::test_size;

uint64_t in_ms(uint64_t milliseconds) { return host::monotonic_ns() + milliseconds * 1'000'000; }

// Ends when the condition holds; a test that waits for ever is stopped by its time limit.
template <typename Condition>
void wait_until(Condition condition) {
    while (!condition()) {
        usleep(1000);
    }
}

class TcpFaultsTest : public ::testing::Test {
  protected:
    void open() { client.open(server.port()); }
    void expect_end(ConnectionState state) {
        EXPECT_EQ(client.memory->connection().state, state);
        EXPECT_EQ(client.recorder.last(), state);
    }

    unsigned char bytes[4096] = {1, 2, 3};
    MemoryServer server;
    ClientFixture client;
};

// ---- Cuts -----------------------------------------------------------------------------------------------

// Five operations at once, some in order; returns once all have completed.
void run_workload(ClientFixture& client, uint64_t round) {
    uint64_t value = round;
    uint64_t seen = 0;
    Io write(OperationKind::write, 128, &value, sizeof(value));
    Io read(OperationKind::read, 128, &seen, sizeof(seen));
    read.operation.after_earlier = true;
    Operation add;
    add.kind = OperationKind::fetch_add;
    add.offset_bytes = 64;
    add.operand = 1;
    Operation swap;
    swap.kind = OperationKind::compare_swap;
    swap.offset_bytes = 72;
    swap.compare = round;
    swap.operand = round + 1;
    Operation flush;
    flush.kind = OperationKind::flush;
    flush.after_earlier = true;
    write.operation.next = &add;
    add.next = &read.operation;
    read.operation.next = &swap;
    swap.next = &flush;
    client.memory->submit(write.operation);
    for (Operation* operation : {&write.operation, &add, &read.operation, &swap, &flush}) {
        client.memory->wait(*operation);
        EXPECT_EQ(operation->outcome, Outcome::executed) << errno_value(operation->error);
    }
    EXPECT_EQ(seen, round);
    EXPECT_EQ(add.old_value, round);
    EXPECT_EQ(swap.old_value, round);
}

class TcpCutTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(InClearAndSealed, TcpCutTest, ::testing::Bool());

TEST_P(TcpCutTest, ACutAtEveryByteExecutesEverythingExactlyOnce) {
    MemoryServer server;
    FaultyLink link(server.port());
    ClientFixture client(GetParam());
    client.open(link.port());
    uint64_t round = 0;
    const uint64_t to_server = link.bytes_to_server();
    const uint64_t to_client = link.bytes_to_client();
    run_workload(client, round++);
    const uint64_t up = link.bytes_to_server() - to_server;
    const uint64_t down = link.bytes_to_client() - to_client;
    ASSERT_GT(up, 400U);
    ASSERT_GT(down, 250U);
    const uint64_t step = test_size(1, 7);
    uint64_t cuts = 0;
    for (uint64_t at = 0; at < up; at += step, cuts++) {
        link.cut_to_server_after(static_cast<int64_t>(at));
        run_workload(client, round++);
    }
    for (uint64_t at = 0; at < down; at += step, cuts++) {
        link.cut_to_client_after(static_cast<int64_t>(at));
        run_workload(client, round++);
    }
    const auto counts = server.counts();
    EXPECT_EQ(counts.writes, round);
    EXPECT_EQ(counts.atomics, 2 * round);
    EXPECT_EQ(counts.flushes, round);
    EXPECT_GE(counts.reads, round);
    EXPECT_EQ(counts.sessions_opened, 1U);
    // A cut at byte 0 may come when nothing is on its way, before or after a workload.
    EXPECT_GE(link.cuts() + 2, cuts);
    EXPECT_GE(client.memory->statistics().reconnections + 2, cuts);
    EXPECT_GT(client.memory->statistics().replayed_operations, cuts / 2);
}

TEST_P(TcpCutTest, RandomCutsUnderManyThreads) {
    MemoryServer server;
    FaultyLink link(server.port());
    ClientFixture client(GetParam());
    client.open(link.port());
    constexpr uint64_t kThreads = 4;
    const uint64_t rounds = test_size(150, 30);
    std::atomic<uint64_t> wrong{0};
    std::atomic<uint64_t> writes{0};
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; t++) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t + 1));
            std::vector<unsigned char> out(200000);
            std::vector<unsigned char> in(out.size());
            for (uint64_t i = 0; i < rounds; i++) {
                const size_t size = 1 + random() % (i % 8 == 0 ? out.size() : 4096);
                std::memset(out.data(), static_cast<int>(random() & 0xff), size);
                const uint64_t place = (t + 1) << 18;
                wrong += client.write(place, out.data(), size) != Outcome::executed;
                wrong += client.read(place, in.data(), size) != Outcome::executed;
                wrong += std::memcmp(in.data(), out.data(), size) != 0;
                writes++;
                client.add(0, 1);
                wrong += client.flush() != Outcome::executed;
            }
        });
    }
    RandomCuts cuts(link, 200'000, 2000);
    for (auto& thread : threads) {
        thread.join();
    }
    cuts.stop();
    EXPECT_EQ(wrong, 0U);
    EXPECT_EQ(client.add(0, 0), kThreads * rounds);
    EXPECT_EQ(server.counts().atomics, kThreads * rounds + 1);
    EXPECT_EQ(server.counts().writes, writes);
    EXPECT_GT(link.cuts(), 0U);
}

// ---- Time -----------------------------------------------------------------------------------------------

// As a server does that has no place for a handshake at this moment.
TEST(TcpOpening, IsTriedAgainWhenTheConnectionIsClosedAtOnce) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
    ASSERT_EQ(listen(listener, 8), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length), 0);
    std::atomic<int> accepted{0};
    std::thread closing([&] {
        int connection = 0;
        while ((connection = accept(listener, nullptr, nullptr)) >= 0) {
            accepted++;
            ::close(connection);
        }
    });
    ClientFixture client;
    EXPECT_EQ(client.try_open(ntohs(address.sin_port)).error(), Error::eio);
    EXPECT_NE(client.problem.find("no place for another one"), std::string::npos) << client.problem;
    shutdown(listener, SHUT_RDWR);
    closing.join();
    ::close(listener);
    EXPECT_EQ(accepted.load(), 6);
}

TEST_F(TcpFaultsTest, ADeadlineAbortsAndTheOthersGoOn) {
    open();
    server.freeze();
    Io late(OperationKind::write, 0, bytes, 64);
    late.operation.deadline_ns = in_ms(30);
    Io patient(OperationKind::write, 4096, bytes, 64);
    client.memory->submit(late.operation);
    client.memory->submit(patient.operation);
    client.memory->wait(late.operation);
    EXPECT_EQ(late.outcome(), Outcome::unknown);
    EXPECT_EQ(late.operation.error, Error::etimedout);
    EXPECT_EQ(patient.outcome(), Outcome::pending);
    EXPECT_EQ(client.memory->statistics().aborts, 1U);
    server.thaw();
    client.memory->wait(patient.operation);
    EXPECT_EQ(patient.outcome(), Outcome::executed);
    EXPECT_EQ(client.memory->connection().incarnation, 2U);
}

TEST_F(TcpFaultsTest, WhatWasNotSentByItsDeadlineHadNoEffect) {
    open();
    server.freeze();
    std::vector<Io> ios(9);
    for (size_t i = 0; i < ios.size(); i++) {
        ios[i].set(OperationKind::write, i * 64, bytes, 64);
        ios[i].operation.deadline_ns = i == 8 ? in_ms(30) : 0;
        client.memory->submit(ios[i].operation);
    }
    client.memory->wait(ios[8].operation);
    EXPECT_EQ(ios[8].outcome(), Outcome::not_executed);
    EXPECT_EQ(ios[8].operation.error, Error::etimedout);
    EXPECT_EQ(client.memory->statistics().aborts, 0U);
    server.thaw();
    for (size_t i = 0; i < 8; i++) {
        client.memory->wait(ios[i].operation);
        EXPECT_EQ(ios[i].outcome(), Outcome::executed);
    }
    EXPECT_EQ(server.counts().writes, 8U);
    Io past(OperationKind::write, 0, bytes, 64);
    past.operation.deadline_ns = 1;
    client.run(past.operation);
    EXPECT_EQ(past.outcome(), Outcome::not_executed);
    EXPECT_EQ(past.operation.error, Error::etimedout);
}

TEST_F(TcpFaultsTest, DeadlinesPassDuringReconnection) {
    open();
    server.freeze();
    server.cut_connections();
    Io late(OperationKind::read, 0, bytes, 64);
    late.operation.deadline_ns = in_ms(60);
    client.run(late.operation);
    EXPECT_NE(late.outcome(), Outcome::executed);
    EXPECT_EQ(late.operation.error, Error::etimedout);
    server.thaw();
    EXPECT_EQ(client.read(0, bytes, 64), Outcome::executed);
}

TEST_F(TcpFaultsTest, SilenceEndsAConnectionAndAnotherOneGoesOn) {
    server.set_probe_interval_ms(50);
    FaultyLink link(server.port());
    client.open(link.port());
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
    link.stall(true);
    Io io(OperationKind::write, 64, bytes, 64);
    client.memory->submit(io.operation);
    wait_until([&] { return client.memory->connection().state == ConnectionState::reconnecting; });
    EXPECT_EQ(io.operation.finished, 0U);
    link.stall(false);
    client.memory->wait(io.operation);
    EXPECT_EQ(io.outcome(), Outcome::executed);
    EXPECT_EQ(server.counts().writes, 2U);
}

// Its TCP acknowledges all the same. That it has acknowledged the probe is no reason to send another one.
TEST_F(TcpFaultsTest, AStoppedServerIsGivenUpAfterOneProbe) {
    server.set_probe_interval_ms(400);
    FaultyLink link(server.port());
    client.open(link.port());
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
    server.freeze();
    const uint64_t before = link.bytes_to_server();
    uint64_t passed = 0;
    Io io(OperationKind::read, 0, bytes, 64);
    client.memory->submit(io.operation);
    // What passes after that is the attempt to come back.
    wait_until([&] {
        const uint64_t bytes_now = link.bytes_to_server();
        const bool is_over = client.memory->connection().state == ConnectionState::reconnecting;
        passed = is_over ? passed : bytes_now - before;
        return is_over;
    });
    constexpr uint64_t kRequestBytes = sizeof(wire::MessageHeader) + sizeof(wire::Request);
    constexpr uint64_t kProbeBytes =
        sizeof(wire::MessageHeader) + wire::sealed_bytes(sizeof(wire::Probe));
    EXPECT_EQ(passed, kRequestBytes + kProbeBytes);
    server.thaw();
    client.memory->wait(io.operation);
    EXPECT_EQ(io.outcome(), Outcome::executed);
}

TEST_F(TcpFaultsTest, AnIdleSessionProbes) {
    server.set_probe_interval_ms(20);
    open();
    wait_until([&] { return server.counts().probes >= 3; });
    EXPECT_EQ(client.memory->connection().state, ConnectionState::ready);
    EXPECT_EQ(client.memory->statistics().reconnections, 0U);
}

TEST_F(TcpFaultsTest, AnIdleSessionFindsOutThatItsConnectionHasGone) {
    open();
    server.cut_connections();
    wait_until([&] { return client.memory->statistics().reconnections == 1; });
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
}

TEST_F(TcpFaultsTest, WhoCannotComeBackInTimeIsClosed) {
    client.options.reconnect_timeout_ms = 150;
    open();
    server.refuse_openings(wire::RefusalReason::stopping, 1 << 30);
    server.freeze();
    Io sent(OperationKind::write, 0, bytes, 64);
    client.memory->submit(sent.operation);
    server.cut_connections();
    server.thaw();
    client.memory->wait(sent.operation);
    EXPECT_EQ(sent.outcome(), Outcome::unknown);
    EXPECT_EQ(sent.operation.error, Error::enodev);
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::not_executed);
    EXPECT_EQ(client.error, Error::enodev);
    expect_end(ConnectionState::closed);
}

// ... but a server that is there and has its disk to wait for is no silent one, however long that takes.
TEST_F(TcpFaultsTest, WhoIsKeptWaitingComesBackLater) {
    client.options.reconnect_timeout_ms = 1000;
    open();
    server.keep_waiting(2);
    server.cut_connections();
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
    EXPECT_EQ(server.counts().sessions_resumed, 1U);
    EXPECT_EQ(client.memory->connection().incarnation, 4U);
}

TEST_F(TcpFaultsTest, RefusedResumptionsAreTriedAgain) {
    open();
    server.refuse_openings(wire::RefusalReason::no_room, 2);
    server.cut_connections();
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
    EXPECT_EQ(server.counts().sessions_resumed, 1U);
    EXPECT_EQ(client.memory->statistics().reconnections, 1U);
    // Each attempt has a number of its own.
    EXPECT_EQ(client.memory->connection().incarnation, 4U);
}

TEST_F(TcpFaultsTest, DamagedDataAreReadAgain) {
    open();
    EXPECT_EQ(client.write(0, bytes, sizeof(bytes)), Outcome::executed);
    server.damage_reads(2);
    unsigned char seen[sizeof(bytes)] = {};
    EXPECT_EQ(client.read(0, seen, sizeof(seen)), Outcome::executed);
    EXPECT_EQ(0, std::memcmp(seen, bytes, sizeof(seen)));
    EXPECT_EQ(client.memory->statistics().reconnections, 2U);
}

// The opening passes, and whatever is read never does.
TEST_F(TcpFaultsTest, ASessionThatGetsNowhereIsGivenUp) {
    client.options.reconnect_timeout_ms = 300;
    open();
    EXPECT_EQ(client.write(0, bytes, sizeof(bytes)), Outcome::executed);
    server.damage_reads(1 << 30);
    unsigned char seen[sizeof(bytes)] = {};
    EXPECT_NE(client.read(0, seen, sizeof(seen)), Outcome::executed);
    EXPECT_EQ(client.error, Error::enodev);
    EXPECT_GE(client.memory->statistics().reconnections, 2U);
    expect_end(ConnectionState::closed);
}

// ... but a break now and then, however many, is nothing of that kind.
TEST_F(TcpFaultsTest, BreaksBetweenWhichSomethingIsDoneAreNotCountedTogether) {
    client.options.reconnect_timeout_ms = 300;
    open();
    const uint64_t begin_ns = host::monotonic_ns();
    while (host::monotonic_ns() - begin_ns < 1'000'000'000) {
        server.damage_reads(1);
        unsigned char seen[64];
        ASSERT_EQ(client.read(0, seen, sizeof(seen)), Outcome::executed);
    }
    EXPECT_EQ(client.memory->connection().state, ConnectionState::ready);
}

// ---- Servers that forget ----------------------------------------------------------------------------------

TEST_F(TcpFaultsTest, LostContentThatWasNotFlushedIsNeverPassedOver) {
    open();
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
    EXPECT_EQ(client.flush(), Outcome::executed);
    EXPECT_EQ(client.write(64, bytes, 64), Outcome::executed);
    server.restart(false);
    // Whether it was sent before the end was seen is a matter of chance.
    EXPECT_NE(client.read(0, bytes, 64), Outcome::executed);
    EXPECT_EQ(client.error, Error::estale);
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::not_executed);
    EXPECT_EQ(client.error, Error::estale);
    expect_end(ConnectionState::memory_lost);
}

TEST_F(TcpFaultsTest, AFlushedSessionStartsOver) {
    open();
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
    EXPECT_EQ(client.flush(), Outcome::executed);
    server.freeze();
    Io write(OperationKind::write, 64, bytes, 64);
    Operation add;
    add.kind = OperationKind::fetch_add;
    add.offset_bytes = 128;
    add.operand = 1;
    client.memory->submit(write.operation);
    client.memory->submit(add);
    server.restart(false);
    server.thaw();
    client.memory->wait(write.operation);
    client.memory->wait(add);
    EXPECT_EQ(write.outcome(), Outcome::executed);
    EXPECT_EQ(add.outcome, Outcome::unknown);
    EXPECT_EQ(client.add(128, 1), 0U);
    const ConnectionInfo info = client.memory->connection();
    EXPECT_EQ(info.state, ConnectionState::ready);
    EXPECT_EQ(info.incarnation, 1U);
    EXPECT_EQ(info.content_incarnation, 2U);
    EXPECT_EQ(server.counts().sessions_opened, 2U);
}

TEST_F(TcpFaultsTest, AServerThatLostFlushedContentToo) {
    open();
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
    EXPECT_EQ(client.flush(), Outcome::executed);
    server.restart(true);
    // Whether it was sent before the end was seen is a matter of chance.
    EXPECT_NE(client.read(0, bytes, 64), Outcome::executed);
    EXPECT_EQ(client.error, Error::estale);
    expect_end(ConnectionState::memory_lost);
}

// A flush counts for what it is ordered behind, and not for what runs beside it.
TEST_F(TcpFaultsTest, AFlushInABatchCountsWhenItIsOrdered) {
    for (const bool is_ordered : {true, false}) {
        MemoryServer other;
        ClientFixture writer;
        writer.open(other.port());
        Io write(OperationKind::write, 0, bytes, 64);
        Operation flush;
        flush.kind = OperationKind::flush;
        flush.after_earlier = is_ordered;
        write.operation.next = &flush;
        writer.memory->submit(write.operation);
        writer.memory->wait(flush);
        writer.memory->wait(write.operation);
        EXPECT_EQ(flush.outcome, Outcome::executed);
        other.restart(false);
        EXPECT_EQ(is_ordered, writer.read(0, bytes, 64) == Outcome::executed);
        EXPECT_EQ(writer.memory->connection().state,
                  is_ordered ? ConnectionState::ready : ConnectionState::memory_lost);
    }
}

// A flush of ranges says nothing of what lies elsewhere; its owner does, when all have been flushed.
TEST_F(TcpFaultsTest, AFlushOfRangesCountsWhenItsOwnerSaysSo) {
    for (const bool says_so : {true, false}) {
        MemoryServer other;
        ClientFixture writer;
        writer.open(other.port());
        EXPECT_EQ(writer.write(0, bytes, 64), Outcome::executed);
        const uint64_t mark = writer.memory->change_mark();
        const ByteRange range{0, 64};
        Operation flush;
        flush.kind = OperationKind::flush;
        flush.ranges = &range;
        flush.range_count = 1;
        writer.memory->submit(flush);
        writer.memory->wait(flush);
        EXPECT_EQ(flush.outcome, Outcome::executed);
        if (says_so) {
            writer.memory->changes_flushed(mark);
        }
        other.restart(false);
        EXPECT_EQ(says_so, writer.read(0, bytes, 64) == Outcome::executed);
        EXPECT_EQ(writer.memory->connection().state,
                  says_so ? ConnectionState::ready : ConnectionState::memory_lost);
    }
}

// ---- Fencing and the end ----------------------------------------------------------------------------------

TEST_F(TcpFaultsTest, WhoIsFencedIsTold) {
    for (const bool tells : {true, false}) {
        MemoryServer other;
        ClientFixture writer;
        writer.open(other.port());
        EXPECT_EQ(writer.write(0, bytes, 64), Outcome::executed);
        other.freeze();
        Io sent(OperationKind::write, 64, bytes, 64);
        writer.memory->submit(sent.operation);
        other.fence_all(tells);
        other.thaw();
        writer.memory->wait(sent.operation);
        EXPECT_NE(sent.outcome(), Outcome::executed);
        EXPECT_EQ(sent.operation.error, Error::estale);
        wait_until([&] { return writer.memory->connection().state == ConnectionState::fenced; });
        EXPECT_EQ(writer.write(0, bytes, 64), Outcome::not_executed);
        EXPECT_EQ(writer.error, Error::estale);
        EXPECT_EQ(other.counts().writes, 1U);
    }
}

// The server has forgotten the session, and makes it wait for a reader. A further epoch may be that of somebody who has written.
TEST_F(TcpFaultsTest, AWriterThatHasWaitedTakesNoFurtherEpoch) {
    for (const uint64_t epochs : {0, 1}) {
        MemoryServer other;
        ClientFixture writer;
        writer.open(other.port());
        const uint64_t before = writer.memory->connection().epoch;
        EXPECT_EQ(writer.write(0, bytes, 64), Outcome::executed);
        EXPECT_EQ(writer.flush(), Outcome::executed);
        other.refuse_openings(wire::RefusalReason::held, 3, epochs);
        other.restart(false);
        const auto wanted = epochs != 0 ? ConnectionState::fenced : ConnectionState::ready;
        wait_until([&] {
            const auto now = writer.memory->connection();
            return now.state == wanted && (now.epoch != before || epochs != 0);
        });
        EXPECT_EQ(writer.memory->connection().epoch, before + (epochs != 0 ? 0 : 1));
        if (epochs == 0) {
            EXPECT_EQ(writer.write(0, bytes, 64), Outcome::executed);
        }
    }
}

TEST_F(TcpFaultsTest, AForcedTakeoverFencesTheHolderForGood) {
    open();
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
    ClientFixture second;
    second.options.client_uuid[0] = 2;
    second.options.force = true;
    second.open(server.port());
    EXPECT_EQ(second.memory->connection().epoch, 2U);
    EXPECT_NE(client.write(0, bytes, 64), Outcome::executed);
    EXPECT_EQ(client.error, Error::estale);
    EXPECT_EQ(server.counts().writes, 1U);
    expect_end(ConnectionState::fenced);
    EXPECT_EQ(second.write(0, bytes, 64), Outcome::executed);
}

// The answer to the request for the lease is cut off at every byte.
TEST_F(TcpFaultsTest, AReaderBecomesTheWriterAcrossACut) {
    FaultyLink link(server.port());
    constexpr int64_t kReplyBytes = 16 + sizeof(wire::LeaseReply) + wire::kSealTagBytes;
    for (int64_t at = 0; at < kReplyBytes; at += 7) {
        ClientFixture reader;
        reader.options.mode = OpenOptions::Mode::read;
        reader.open(link.port());
        link.cut_to_client_after(at);
        ASSERT_TRUE(reader.memory->start_writing(false, reader.holder).ok());
        EXPECT_EQ(reader.write(0, bytes, 64), Outcome::executed);
        EXPECT_EQ(reader.memory->connection().incarnation, 2U);
    }
}

TEST_F(TcpFaultsTest, ClosingGivesEverythingBack) {
    server.set_probe_interval_ms(50);
    open();
    server.freeze();
    std::vector<Io> ios(12);
    for (size_t i = 0; i < ios.size(); i++) {
        ios[i].set(OperationKind::write, i * 64, bytes, 64);
        client.memory->submit(ios[i].operation);
    }
    client.close();
    size_t unknown = 0;
    for (const auto& io : ios) {
        EXPECT_EQ(io.operation.finished, 1U);
        EXPECT_EQ(io.operation.error, Error::enodev);
        EXPECT_NE(io.outcome(), Outcome::executed);
        unknown += io.outcome() == Outcome::unknown ? 1 : 0;
    }
    EXPECT_EQ(unknown, 8U);
    expect_end(ConnectionState::closed);
    server.thaw();
}

TEST_F(TcpFaultsTest, ClosingGivesTheLeaseBackAndWaitsForAnswers) {
    open();
    std::vector<Io> ios(12);
    for (size_t i = 0; i < ios.size(); i++) {
        ios[i].set(OperationKind::write, i * 64, bytes, 64);
        client.memory->submit(ios[i].operation);
    }
    client.close();
    for (const auto& io : ios) {
        EXPECT_EQ(io.operation.finished, 1U);
    }
    EXPECT_EQ(server.counts().sessions_closed, 1U);
}

TEST_F(TcpFaultsTest, ClosingWhileNobodyAnswers) {
    open();
    server.refuse_openings(wire::RefusalReason::stopping, 1 << 30);
    server.cut_connections();
    Io io(OperationKind::write, 0, bytes, 64);
    client.memory->submit(io.operation);
    wait_until([&] { return client.memory->connection().state == ConnectionState::reconnecting; });
    client.close();
    EXPECT_EQ(io.operation.finished, 1U);
    EXPECT_EQ(io.operation.error, Error::enodev);
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
