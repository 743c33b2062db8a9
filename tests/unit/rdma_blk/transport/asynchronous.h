// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Operations that nobody waits for, and many threads that have some.
#pragma once

#include <unistd.h>

#include <atomic>
#include <optional>
#include <random>

#include "tests/support/test_size.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {

template <typename Condition>
void wait_until(Condition condition) {
    while (!condition()) {
        usleep(200);
    }
}

// Operations with a function of completion; each must be called once.
struct Asynchronous {
    Io io;
    std::atomic<int> completions{0};

    void set(OperationKind kind, uint64_t offset_bytes, void* data, size_t size_bytes) {
        io.set(kind, offset_bytes, data, size_bytes);
        io.operation.owner = this;
        io.operation.complete = [](Operation& operation) {
            static_cast<Asynchronous*>(operation.owner)->completions++;
        };
    }
    bool is_done() const { return completions.load() != 0; }
};

// Threads that use one session, each with random numbers and a part of the data of its own.
struct ManyThreads {
    static constexpr size_t kThreads = 4;

    ManyThreads() {
        server.set_slot_count(16);
        client.options.slot_count = 16;
        link.emplace(server.port());
        client.open(link->port());
    }
    // body(random, begin of its part): with `has_cuts` while the connection breaks again and again.
    template <typename Body>
    void run(bool has_cuts, Body body) {
        std::vector<std::thread> threads;
        for (size_t t = 0; t < kThreads; t++) {
            threads.emplace_back([body, t] {
                std::mt19937 random(static_cast<unsigned>(t + 1));
                body(random, (t + 1) << 18);
            });
        }
        std::optional<RandomCuts> cuts;
        if (has_cuts) {
            cuts.emplace(*link, 100'000, 3000);
        }
        for (auto& thread : threads) {
            thread.join();
        }
        cuts.reset();
        EXPECT_EQ(wrong, 0U);
        EXPECT_EQ(has_cuts, link->cuts() > 0);
    }

    const uint64_t rounds = tiffin::test::test_size(300, 40);  // for each thread
    std::atomic<uint64_t> wrong{0};
    MemoryServer server;
    std::optional<FaultyLink> link;
    ClientFixture client;
};

}  // namespace tiffin::rdma_blk::test
