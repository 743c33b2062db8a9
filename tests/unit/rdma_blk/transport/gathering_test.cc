// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Operations that wait for those that follow them (Operation::more_follows), and those that one thread leaves to
// another one's sending: that they are sent together, and never forgotten, whatever happens meanwhile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "tests/unit/rdma_blk/transport/asynchronous.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

constexpr size_t kDepth = 32;

class GatheringTest : public ::testing::Test {
  protected:
    void open(uint16_t slot_count = kDepth) {
        server.set_slot_count(slot_count);
        client.options.slot_count = slot_count;
        client.open(server.port());
    }
    static uint64_t in_ms(uint64_t milliseconds) {
        return host::monotonic_ns() + milliseconds * 1'000'000;
    }

    // A write that would like to be kept.
    void submit_kept(ClientFixture& to, Asynchronous& write) {
        write.set(OperationKind::write, 0, bytes, 64);
        write.io.operation.more_follows = true;
        to.memory->submit(write.io.operation);
    }

    unsigned char bytes[4096] = {1, 2, 3};
    MemoryServer server;
    ClientFixture client;
};

// A call for each of them would be more than all that is allowed here.
TEST_F(GatheringTest, WhatIsGatheredIsSentTogether) {
    open();
    constexpr uint64_t kRounds = 20;
    uint64_t calls = 0;
    for (uint64_t round = 0; round < kRounds; round++) {
        std::vector<Io> ios(kDepth);
        for (size_t i = 0; i < kDepth; i++) {
            ios[i].set(OperationKind::write, i * 64, bytes, 64);
        }
        server.freeze();  // nothing is received meanwhile
        const uint64_t before = client.memory->statistics().system_calls;
        for (Io& io : ios) {
            io.operation.more_follows = &io != &ios.back();
            client.memory->submit(io.operation);
        }
        calls += client.memory->statistics().system_calls - before;
        server.thaw();
        for (Io& io : ios) {
            client.memory->wait(io.operation);
            EXPECT_EQ(io.outcome(), Outcome::executed);
        }
    }
    EXPECT_EQ(server.counts().writes, kRounds * kDepth);
    EXPECT_GE(calls, kRounds);
    // One for each round; but where this thread stands still for long, another one sends what is there.
    EXPECT_LT(calls, kRounds * kDepth / 4);
}

TEST_F(GatheringTest, WhatIsKeptIsSentByTheThread) {
    open();
    for (int i = 0; i < 20; i++) {
        Asynchronous write;
        submit_kept(client, write);
        wait_until([&] { return write.is_done(); });
        EXPECT_EQ(write.io.outcome(), Outcome::executed);
        // Nobody waits for this one either, and nothing is called.
        Io read(OperationKind::read, 0, bytes, 64);
        read.operation.more_follows = true;
        client.memory->submit(read.operation);
        wait_until([&] { return server.counts().reads == static_cast<uint64_t>(i) + 1; });
        client.memory->wait(read.operation);
    }
}

TEST_F(GatheringTest, WhatIsKeptIsSentByWhoeverAsksForSomething) {
    open();
    Io ios[3];
    for (Io& io : ios) {
        io.set(OperationKind::write, 0, bytes, 64);
        io.operation.more_follows = true;
    }
    client.memory->submit(ios[0].operation);
    client.memory->wait(ios[0].operation);
    client.memory->submit(ios[1].operation);
    while (ios[1].operation.finished == 0) {
        client.memory->progress();
    }
    client.memory->submit(ios[2].operation);
    client.memory->send_gathered();
    client.memory->wait(ios[2].operation);
    for (const Io& io : ios) {
        EXPECT_EQ(io.outcome(), Outcome::executed);
    }
}

TEST_F(GatheringTest, WhatFollowsIsOrderedBehindWhatIsKept) {
    open();
    for (uint64_t round = 1; round <= 50; round++) {
        uint64_t seen = 0;
        Asynchronous write;
        write.set(OperationKind::write, 0, &round, sizeof(round));
        write.io.operation.more_follows = true;
        Io read(OperationKind::read, 0, &seen, sizeof(seen));
        read.operation.after_earlier = true;
        client.memory->submit(write.io.operation);
        client.memory->submit(read.operation);
        client.memory->wait(read.operation);
        EXPECT_EQ(seen, round);
        wait_until([&] { return write.is_done(); });
    }
}

TEST_F(GatheringTest, WhatIsKeptIsPending) {
    server.set_slot_count(8);
    auto opened = TcpMemory::open({"127.0.0.1", server.port(), TransportChoice::tcp},
                                  client.options, nullptr, client.holder, client.problem);
    ASSERT_TRUE(opened.ok()) << client.problem;
    TcpMemory& memory = **opened;
    server.freeze();
    Io write(OperationKind::write, 0, bytes, 64);
    write.operation.more_follows = true;
    memory.submit(write.operation);
    EXPECT_TRUE(memory.has_pending());
    server.thaw();
    memory.wait(write.operation);
    EXPECT_FALSE(memory.has_pending());
    memory.close();
}

TEST_F(GatheringTest, AMistakeDoesNotHoldUpWhatIsKept) {
    open();
    Asynchronous write;
    write.set(OperationKind::write, 0, bytes, 64);
    write.io.operation.more_follows = true;
    Asynchronous wrong;
    wrong.set(OperationKind::write, wire::kMaxSpaceBytes, bytes, 64);
    client.memory->submit(write.io.operation);
    client.memory->submit(
        wrong.io.operation);  // the last one: nothing else says that there is no more
    EXPECT_EQ(wrong.completions, 1);
    EXPECT_EQ(wrong.io.operation.error, Error::einval);
    wait_until([&] { return write.is_done(); });
    EXPECT_EQ(write.io.outcome(), Outcome::executed);
}

// ---- When things fail -----------------------------------------------------------------------------------

TEST_F(GatheringTest, DeadlinesHoldForWhatWouldBeKept) {
    open();
    server.freeze();
    server.cut_connections();
    std::vector<Asynchronous> writes(4);
    for (Asynchronous& write : writes) {
        write.io.operation.deadline_ns = in_ms(50);
        submit_kept(client, write);
    }
    for (Asynchronous& write : writes) {
        wait_until([&] { return write.is_done(); });
        EXPECT_NE(write.io.outcome(), Outcome::executed);
        EXPECT_EQ(write.io.operation.error, Error::etimedout);
    }
    server.thaw();
    EXPECT_EQ(client.read(0, bytes, 64), Outcome::executed);
    for (const Asynchronous& write : writes) {
        EXPECT_EQ(write.completions, 1);
    }
}

// Kept until its deadline has passed, it would be sent late, and end the connection. Another thread that has the lock at
// that moment sends more than one with a call, so one round that shows it is enough: of what is kept, none would.
TEST_F(GatheringTest, WhatHasADeadlineIsNotKept) {
    open();
    constexpr int kRounds = 200;
    uint64_t most_calls = 0;
    for (int round = 0; round < kRounds && most_calls < kDepth; round++) {
        std::vector<Io> ios(kDepth);
        server.freeze();
        const uint64_t before = client.memory->statistics().system_calls;
        for (size_t i = 0; i < kDepth; i++) {
            ios[i].set(OperationKind::write, i * 64, bytes, 64);
            ios[i].operation.more_follows = true;
            ios[i].operation.deadline_ns = in_ms(100'000);
            client.memory->submit(ios[i].operation);
        }
        most_calls = std::max(most_calls, client.memory->statistics().system_calls - before);
        server.thaw();
        for (Io& io : ios) {
            client.memory->wait(io.operation);
            EXPECT_EQ(io.outcome(), Outcome::executed);
        }
    }
    EXPECT_GE(most_calls, kDepth);
}

TEST_F(GatheringTest, ClosingCompletesWhatIsKept) {
    for (int i = 0; i < 30; i++) {
        MemoryServer other;
        ClientFixture writer;
        writer.open(other.port());
        std::vector<Asynchronous> writes(5);
        for (Asynchronous& write : writes) {
            submit_kept(writer, write);
        }
        writer.close();
        for (const Asynchronous& write : writes) {
            EXPECT_EQ(write.completions, 1);
        }
    }
}

TEST_F(GatheringTest, AFencedSessionEndsWhatIsKept) {
    open();
    EXPECT_EQ(client.write(0, bytes, 64), Outcome::executed);
    server.fence_all(true);
    wait_until([&] { return client.memory->connection().state == ConnectionState::fenced; });
    std::vector<Asynchronous> writes(5);
    for (Asynchronous& write : writes) {
        submit_kept(client, write);
    }
    for (Asynchronous& write : writes) {
        wait_until([&] { return write.is_done(); });
        EXPECT_EQ(write.io.outcome(), Outcome::not_executed);
        EXPECT_EQ(write.io.operation.error, Error::estale);
        EXPECT_EQ(write.completions, 1);
    }
    EXPECT_EQ(server.counts().writes, 1U);
}

// ---- What is unflushed ----------------------------------------------------------------------------------

// Keeps whoever calls it until it is told to go on.
struct Blocked {
    host::Semaphore is_called;
    host::Semaphore goes_on;

    static void complete(Operation& operation) {
        auto& self = *static_cast<Blocked*>(operation.owner);
        self.is_called.post();
        self.goes_on.wait();
    }
};

// A write that was answered and is being handed back is one change, not two: the flush behind it covers no more.
TEST_F(GatheringTest, AnAnsweredWriteIsCountedOnce) {
    for (const bool writes_again : {false, true}) {
        MemoryServer other;
        ClientFixture writer;
        writer.open(other.port());
        Blocked blocked;
        Io write(OperationKind::write, 0, bytes, 64);
        write.operation.owner = &blocked;
        write.operation.complete = Blocked::complete;
        writer.memory->submit(write.operation);
        blocked.is_called.wait();
        Operation flush;
        flush.kind = OperationKind::flush;
        flush.after_earlier = true;
        writer.run(flush);
        EXPECT_EQ(flush.outcome, Outcome::executed);
        if (writes_again) {
            EXPECT_EQ(writer.write(64, bytes, 64), Outcome::executed);
        }
        blocked.goes_on.post();
        other.restart(false);
        EXPECT_EQ(!writes_again, writer.read(0, bytes, 64) == Outcome::executed);
        EXPECT_EQ(writer.memory->connection().state,
                  writes_again ? ConnectionState::memory_lost : ConnectionState::ready);
    }
}

// What is kept has not been executed when a flush that is not ordered behind it is sent along with it.
TEST_F(GatheringTest, AFlushDoesNotCoverWhatIsSentWithIt) {
    for (const bool is_ordered : {true, false}) {
        MemoryServer other;
        ClientFixture writer;
        writer.open(other.port());
        Asynchronous write;
        write.set(OperationKind::write, 0, bytes, 64);
        write.io.operation.more_follows = true;
        Operation flush;
        flush.kind = OperationKind::flush;
        flush.after_earlier = is_ordered;
        other.freeze();
        writer.memory->submit(write.io.operation);
        writer.memory->submit(flush);
        other.thaw();
        writer.memory->wait(flush);
        wait_until([&] { return write.is_done(); });
        EXPECT_EQ(flush.outcome, Outcome::executed);
        other.restart(false);
        EXPECT_EQ(is_ordered, writer.read(0, bytes, 64) == Outcome::executed);
        EXPECT_EQ(writer.memory->connection().state,
                  is_ordered ? ConnectionState::ready : ConnectionState::memory_lost);
    }
}

// ---- Many at once ---------------------------------------------------------------------------------------

// Threads refill queues, wait for single operations and flush, while the connection breaks again and again.
void run_many(bool has_cuts) {
    constexpr size_t kOperations = 12;
    ManyThreads many;
    ClientFixture& client = many.client;
    std::atomic<uint64_t>& wrong = many.wrong;
    many.run(has_cuts, [&](std::mt19937& random, uint64_t base) {
        unsigned char out[kOperations][512];
        unsigned char in[kOperations][512];
        for (uint64_t round = 0; round < many.rounds; round++) {
            std::vector<Asynchronous> writes(kOperations);
            for (size_t i = 0; i < kOperations; i++) {
                std::memset(out[i], static_cast<int>(random() & 0xff), sizeof(out[i]));
                writes[i].set(OperationKind::write, base + i * 512, out[i], sizeof(out[i]));
                writes[i].io.operation.more_follows = random() % 4 != 0;
                client.memory->submit(writes[i].io.operation);
            }
            std::vector<Io> reads(kOperations);
            for (size_t i = 0; i < kOperations; i++) {
                reads[i].set(OperationKind::read, base + i * 512, in[i], sizeof(in[i]));
                reads[i].operation.after_earlier = true;
                reads[i].operation.more_follows = random() % 4 != 0;
                client.memory->submit(reads[i].operation);
            }
            for (size_t i = 0; i < kOperations; i++) {
                client.memory->wait(reads[i].operation);
                wrong += reads[i].outcome() != Outcome::executed;
                wrong += std::memcmp(in[i], out[i], sizeof(in[i])) != 0;
                wait_until([&] { return writes[i].is_done(); });
                wrong += writes[i].io.outcome() != Outcome::executed;
                wrong += writes[i].completions != 1;
            }
            client.add(0, 1);
        }
    });
    const uint64_t additions = ManyThreads::kThreads * many.rounds;
    EXPECT_EQ(client.add(0, 0), additions);
    const uint64_t writes = additions * kOperations;
    EXPECT_EQ(many.server.counts().writes, writes);
    const Statistics statistics = client.memory->statistics();
    EXPECT_EQ(statistics.operations[static_cast<size_t>(OperationKind::write)], writes);
    EXPECT_EQ(statistics.outcomes[static_cast<size_t>(Outcome::executed)],
              2 * writes + additions + 1);
}

TEST(GatheringByManyTest, EachCompletesOnce) { run_many(false); }

TEST(GatheringByManyTest, EachCompletesOnceAcrossCuts) { run_many(true); }

}  // namespace
}  // namespace tiffin::rdma_blk::test
