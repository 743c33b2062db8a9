// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Remote memory over datagrams, and over queue pairs, when something fails: servers that end and come back, takeovers, no
// path.
#include <atomic>
#include <thread>

#include "tests/unit/rdma_blk/sdr_transport/sdr_fixture.h"

namespace tiffin::rdma_blk::test {
namespace {

struct Way {
    SdrCarrier carrier;
    bool encrypts;
};

class SdrFaultsTest : public SdrFixture, public ::testing::WithParamInterface<Way> {
  protected:
    // A client that asks for what is tested.
    struct Client : ClientFixture {
        Client() : ClientFixture(GetParam().encrypts) {}
    };

    void SetUp() override {
        SdrFixture::SetUp();
        if (GetParam().carrier == SdrCarrier::uc) {
            use_queue_pairs();
            // Late ones come after the messages that they are of, and after their generations.
            network_->unreliable_loss_ppm = 5000;
            network_->unreliable_delay_ppm = 5000;
        }
    }
    // Comes back at the same address.
    void start_here() {
        start();
        configuration_.listen = {{"127.0.0.1", server_->port()}};
    }
};

INSTANTIATE_TEST_SUITE_P(Carriers, SdrFaultsTest,
                         ::testing::Values(Way{SdrCarrier::udp, false}, Way{SdrCarrier::udp, true},
                                           Way{SdrCarrier::uc, false}, Way{SdrCarrier::uc, true}),
                         [](const auto& way) {
                             return std::string(way.param.carrier == SdrCarrier::uc ? "uc"
                                                                                    : "udp") +
                                    (way.param.encrypts ? "_encrypted" : "");
                         });

// Until the condition holds; a minute is long for all that is waited for here.
template <typename Condition>
bool comes_true(Condition condition) {
    for (int i = 0; i < 6000 && !condition(); i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return condition();
}

TEST_P(SdrFaultsTest, EachIsExecutedOnceWhileServersEnd) {
    start_here();
    Client client;
    open_client(client);
    constexpr unsigned kThreads = 3;
    constexpr int kRestarts = 3;
    std::atomic<bool> stops{false};
    std::atomic<uint64_t> counts[kThreads] = {};
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < kThreads; number++) {
        threads.emplace_back([&, number] {
            Bytes page(8192, static_cast<unsigned char>(number));
            while (!stops) {
                // Each answer is the one before plus one, or something was executed twice, or not at all.
                EXPECT_EQ(client.add(uint64_t{number} * 64, 1), counts[number].load());
                counts[number]++;
                Io io(OperationKind::write, 65536 + uint64_t{number} * 16384, page.data(),
                      page.size());
                client.run(io.operation);
                EXPECT_EQ(io.outcome(), Outcome::executed);
            }
        });
    }
    const auto have_all_moved = [&](uint64_t by) {
        uint64_t before[kThreads];
        for (unsigned number = 0; number < kThreads; number++) {
            before[number] = counts[number].load();
        }
        return comes_true([&] {
            for (unsigned number = 0; number < kThreads; number++) {
                if (counts[number].load() < before[number] + by) {
                    return false;
                }
            }
            return true;
        });
    };
    for (int i = 0; i < kRestarts; i++) {
        EXPECT_TRUE(have_all_moved(5));
        restart();
        // The path comes back by itself.
        EXPECT_TRUE(have_all_moved(2));
        EXPECT_TRUE(comes_true([&] {
            return std::string(client.memory->connection().transport_name) == transport_name();
        }));
    }
    stops = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (unsigned number = 0; number < kThreads; number++) {
        uint64_t value = 0;
        std::memcpy(&value, memory() + size_t{number} * 64, sizeof(value));
        EXPECT_EQ(value, counts[number].load());
    }
    EXPECT_GE(client.memory->statistics().reconnections, uint64_t{kRestarts});
}

// Nothing of the old writer lands once the new one has the lease, though it writes as fast as it can.
TEST_P(SdrFaultsTest, ATakeoverEndsWhatIsUnderWay) {
    start_here();
    for (unsigned char round = 0; round < 3; round++) {
        Client old;
        open_client(old, static_cast<unsigned char>(10 + 2 * round));
        constexpr size_t kThreads = 2;
        constexpr size_t kPart = 1 << 20;
        std::atomic<uint64_t> written{0};
        std::vector<std::thread> threads;
        for (size_t number = 0; number < kThreads; number++) {
            threads.emplace_back([&, number] {
                Bytes bytes(number == 0 ? 4096 : kPart);
                Outcome outcome = Outcome::executed;
                for (unsigned value = 0; outcome == Outcome::executed; value++) {
                    std::memset(bytes.data(), static_cast<int>(value % 256), bytes.size());
                    Io io(OperationKind::write, number * kPart, bytes.data(), bytes.size());
                    old.run(io.operation);
                    outcome = io.outcome();
                    written += outcome == Outcome::executed ? 1 : 0;
                }
            });
        }
        EXPECT_TRUE(comes_true([&] { return written.load() > 20; }));
        Client fresh;
        fresh.options.force = true;
        open_client(fresh, static_cast<unsigned char>(11 + 2 * round));
        const Bytes content(memory(), memory() + kThreads * kPart);
        for (std::thread& thread : threads) {
            thread.join();
        }
        EXPECT_TRUE(comes_true([&] { return old.recorder.last() == ConnectionState::fenced; }));
        EXPECT_EQ(std::memcmp(memory(), content.data(), content.size()), 0);
        EXPECT_EQ(fresh.write(0, content.data(), 4096), Outcome::executed);
        fresh.close();
    }
}

TEST_P(SdrFaultsTest, AServerOffersNoMoreThanItMay) {
    configuration_.max_sdr_sessions = 1;
    start();
    Client first;
    open_client(first);
    Client second;
    second.options.mode = OpenOptions::Mode::read;
    const auto refused = try_open(second, 2);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error(), Error::eopnotsupp);
    EXPECT_EQ(second.problem.rfind("the server does not offer sdr", 0), 0U) << second.problem;
    first.close();
    EXPECT_TRUE(comes_true([&] { return server_->counters().sdr_paths.load() == 0; }));
    Client third;
    open_client(third, 3);
    EXPECT_EQ(third.add(0, 1), 0U);
}

// A path that does not come back leaves everything to the stream.
TEST_P(SdrFaultsTest, WithoutAPathAllGoesOverTcp) {
    start_here();
    Client client;
    open_client(client);
    EXPECT_EQ(client.add(0, 1), 0U);
    configuration_.max_sdr_sessions = 0;
    restart();
    EXPECT_EQ(client.add(0, 1), 1U);
    EXPECT_STREQ(client.memory->connection().transport_name, "tcp");
    EXPECT_EQ(client.add(0, 1), 2U);
}

TEST_P(SdrFaultsTest, AReaderBecomesTheWriter) {
    start();
    Client client;
    client.options.mode = OpenOptions::Mode::read;
    open_client(client);
    const Bytes bytes(100, 7);
    EXPECT_EQ(client.write(0, bytes.data(), bytes.size()), Outcome::not_executed);
    Holder holder;
    ASSERT_TRUE(client.memory->start_writing(false, holder).ok());
    EXPECT_EQ(client.write(0, bytes.data(), bytes.size()), Outcome::executed);
    EXPECT_STREQ(client.memory->connection().transport_name, transport_name());
}

// More waits for an earlier one than a path takes in advance: the earlier one still comes.
TEST_P(SdrFaultsTest, WhatWaitsForTheFirstDoesNotKeepItOut) {
    configuration_.sdr_landing_slots = 2;
    start();
    sdr_.drop_ppm = 100'000;
    Client client;
    client.options.slot_count = 16;
    open_client(client);
    constexpr size_t kCount = 12;
    constexpr size_t kBytes = 300'000;
    Bytes bytes(kBytes, 9);
    for (int round = 0; round < 3; round++) {
        std::vector<std::unique_ptr<Io>> all;
        for (size_t i = 0; i < kCount; i++) {
            all.push_back(
                std::make_unique<Io>(OperationKind::write, i * kBytes, bytes.data(), kBytes));
            all.back()->operation.after_earlier = i > 0;
            if (i > 0) {
                all[i - 1]->operation.next = &all.back()->operation;
            }
        }
        client.memory->submit(all.front()->operation);
        for (const auto& io : all) {
            client.memory->wait(io->operation);
            EXPECT_EQ(io->outcome(), Outcome::executed);
        }
    }
    EXPECT_EQ(client.memory->statistics().reconnections, 0U);
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
