// SPDX-License-Identifier: MIT OR GPL-2.0-only
// RemoteMemory::help(): who waits for operations with a function of completion receives for all, and what he leaves, or
// cannot do, is done by others.
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "tests/support/test_size.h"
#include "tests/unit/rdma_blk/transport/asynchronous.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

using tiffin::test::test_size;

// A thread that has operations under way, and what their completions change. It outlives them.
struct Owner {
    std::atomic<uint32_t> completions{0};
    std::atomic<bool> sleeps{false};  // whoever makes it false posts
    host::Semaphore wake;

    void note_completion() {
        completions++;
        if (sleeps.exchange(false)) {
            wake.post();
        }
    }
    // As users do it: helps, or sleeps until the next completion.
    void wait_until(ClientFixture& client, uint32_t wanted) {
        for (uint32_t seen = completions; seen < wanted; seen = completions) {
            if (client.memory->help(completions, seen)) {
                continue;
            }
            sleeps = true;
            if (completions == seen || !sleeps.exchange(false)) {
                wake.wait();
            }
        }
    }
};

struct Counted {
    Io io;
    Owner* owner = nullptr;
    std::atomic<std::thread::id> completed_by{};
    std::atomic<int> completions{0};

    void submit(ClientFixture& to, OperationKind kind, uint64_t offset_bytes, void* data,
                size_t size_bytes, Owner& waits) {
        io.set(kind, offset_bytes, data, size_bytes);
        owner = &waits;
        io.operation.owner = this;
        io.operation.complete = [](Operation& operation) {
            auto* self = static_cast<Counted*>(operation.owner);
            Owner& told = *self->owner;
            self->completed_by = std::this_thread::get_id();
            self->completions++;
            told.note_completion();  // the last of it: then this may be gone
        };
        to.memory->submit(io.operation);
    }
};

class HelpingTest : public ::testing::Test {
  protected:
    void open() { client.open(server.port()); }
    void submit(Counted& operation) {
        operation.submit(client, OperationKind::write, 0, bytes, sizeof(bytes), owner);
    }
    void help_until(uint32_t wanted) { owner.wait_until(client, wanted); }

    unsigned char bytes[512] = {1, 2, 3};
    Owner owner;
    MemoryServer server;
    ClientFixture client;
};

TEST_F(HelpingTest, OperationsCompleteInTheThreadThatHelps) {
    open();
    constexpr uint32_t kRounds = 200;
    uint32_t by_this_thread = 0;
    for (uint32_t round = 1; round <= kRounds; round++) {
        Counted write;
        submit(write);
        help_until(round);
        EXPECT_EQ(write.completions, 1);
        EXPECT_EQ(write.io.outcome(), Outcome::executed);
        by_this_thread += write.completed_by.load() == std::this_thread::get_id() ? 1 : 0;
    }
    // The session's thread may have had some: the first, and those before which this one was kept from running.
    EXPECT_GT(by_this_thread, 0U);
}

TEST_F(HelpingTest, WhatHasChangedAlreadyIsNotWaitedFor) {
    open();
    owner.completions = 1;
    EXPECT_TRUE(client.memory->help(owner.completions, 0));
}

TEST_F(HelpingTest, WhereNothingIsUnderWayNobodyHelps) {
    open();
    EXPECT_FALSE(client.memory->help(owner.completions, 0));
}

// It must not keep to itself what it may keep for others (Operation::more_follows).
TEST_F(HelpingTest, WhatIsKeptIsSent) {
    open();
    for (uint32_t round = 1; round <= 20; round++) {
        Counted write;
        write.io.operation.more_follows = true;
        submit(write);
        help_until(round);
        EXPECT_EQ(write.io.outcome(), Outcome::executed);
    }
}

// One of them helps, the others are told to sleep; whichever it is, all of them go on.
TEST_F(HelpingTest, SeveralHelp) {
    open();
    for (int round = 0; round < 10; round++) {
        server.freeze();
        Owner owners[3];
        Counted writes[3];
        std::vector<std::thread> threads;
        for (int i = 0; i < 3; i++) {
            threads.emplace_back([&, i] {
                writes[i].submit(client, OperationKind::write, 0, bytes, sizeof(bytes), owners[i]);
                owners[i].wait_until(client, 1);
            });
        }
        usleep(5000);
        server.thaw();
        for (std::thread& thread : threads) {
            thread.join();
        }
        for (const Counted& write : writes) {
            EXPECT_EQ(write.io.outcome(), Outcome::executed);
        }
    }
}

// He waits for nothing that has still to come, while another one completes what he waits for.
TEST_F(HelpingTest, WhoHasNothingLeftToComeDoesNotReceive) {
    open();
    for (uint32_t round = 1; round <= 20; round++) {
        Io flush;
        flush.operation.kind = OperationKind::flush;
        std::thread worker([&] {
            client.run(flush.operation);
            owner.note_completion();
        });
        help_until(round);
        worker.join();
        EXPECT_EQ(flush.outcome(), Outcome::executed);
    }
}

TEST_F(HelpingTest, WhatIsLeftIsFoundByTheThread) {
    open();
    for (uint32_t round = 0; round < 20; round++) {
        Counted first;
        Counted second;
        submit(first);
        help_until(2 * round + 1);
        submit(second);  // and nobody helps, nor waits
        while (owner.completions < 2 * round + 2) {
            usleep(200);
        }
        EXPECT_EQ(second.io.outcome(), Outcome::executed);
        EXPECT_NE(second.completed_by.load(), std::this_thread::get_id());
    }
}

// The others sleep meanwhile, and one of them goes on when it leaves.
TEST_F(HelpingTest, WaitersAreServedToo) {
    open();
    const uint64_t rounds = test_size(2000, 200);
    std::thread waiter([&] {
        for (uint64_t i = 0; i < rounds; i++) {
            client.add(4096, 1);
        }
    });
    for (uint32_t i = 1; i <= rounds; i++) {
        Counted write;
        submit(write);
        help_until(i);
        EXPECT_EQ(write.io.outcome(), Outcome::executed);
    }
    waiter.join();
    EXPECT_EQ(client.add(4096, 0), rounds);
}

TEST_F(HelpingTest, AConnectionThatBreaksIsADelay) {
    open();
    server.freeze();
    Counted write;
    submit(write);
    std::thread breaker([&] {
        usleep(20'000);
        server.cut_connections();
        server.thaw();
    });
    help_until(1);
    breaker.join();
    EXPECT_EQ(write.io.outcome(), Outcome::executed);
}

TEST_F(HelpingTest, NothingIsHelpedAfterTheEnd) {
    open();
    server.fence_all(true);
    while (client.memory->connection().state != ConnectionState::fenced) {
        usleep(200);
    }
    Counted write;
    submit(write);
    help_until(1);
    EXPECT_NE(write.io.outcome(), Outcome::executed);
    EXPECT_FALSE(client.memory->help(owner.completions, 1));
}

// ---- Many threads, each with several operations ------------------------------------------------------------

void run_many(bool has_cuts) {
    constexpr uint32_t kOperations = 8;
    ManyThreads many;
    ClientFixture& client = many.client;
    std::atomic<uint64_t>& wrong = many.wrong;
    many.run(has_cuts, [&](std::mt19937& random, uint64_t base) {
        unsigned char bytes[kOperations][512];
        Owner owner;
        for (uint32_t round = 1; round <= many.rounds; round++) {
            std::vector<Counted> writes(kOperations);
            for (uint32_t i = 0; i < kOperations; i++) {
                std::memset(bytes[i], static_cast<int>(random() & 0xff), sizeof(bytes[i]));
                writes[i].io.operation.more_follows = random() % 2 != 0;
                writes[i].submit(client, OperationKind::write, base + i * 512, bytes[i],
                                 sizeof(bytes[i]), owner);
            }
            owner.wait_until(client, round * kOperations);
            for (const Counted& write : writes) {
                wrong += write.io.outcome() != Outcome::executed || write.completions != 1;
            }
            unsigned char back[512];
            const uint32_t place = random() % kOperations;
            wrong += client.read(base + place * 512, back, sizeof(back)) != Outcome::executed;
            wrong += std::memcmp(back, bytes[place], sizeof(back)) != 0;
        }
    });
    EXPECT_EQ(many.server.counts().writes, ManyThreads::kThreads * many.rounds * kOperations);
}

TEST(HelpingByManyTest, EachCompletesOnce) { run_many(false); }

TEST(HelpingByManyTest, EachCompletesOnceAcrossCuts) { run_many(true); }

}  // namespace
}  // namespace tiffin::rdma_blk::test
