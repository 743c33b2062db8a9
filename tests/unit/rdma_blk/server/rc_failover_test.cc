// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A client of rc with two links to a server of this process: streams that fall silent, and queue pairs of a network that is
// made up, whose packets are lost, arrive late, or are executed without an answer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "rdma_blk/transport/open.h"
#include "tests/support/fake_network.h"
#include "tests/support/faulty_link.h"
#include "tests/support/test_size.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using test::FakeNetwork;
using test::Io;

class RcFailoverTest : public ServerFixture {
  protected:
    static constexpr size_t kThreads = 3;
    static constexpr size_t kWords = 64;  // of each thread, kStride apart
    static constexpr size_t kStride = 512;
    static constexpr uint64_t kCounters = 3 << 20;  // where they begin, one for each thread

    virtual uint8_t highest_version() const { return wire::kHighestVersion; }
    // Of clients and the server together, when nothing is being made.
    virtual size_t queue_pair_count() const { return 4; }
    void SetUp() override {
        ServerFixture::SetUp();
        configuration_.highest_version = highest_version();
        configuration_.probe_interval_ms = 200;
        configuration_.slots = 64;
        start();
        for (auto& link : links_) {
            link = std::make_unique<test::FaultyLink>(server_->port());
        }
        open_client();
    }
    void open_client() {
        client_ = std::make_unique<test::ClientFixture>();
        std::memcpy(client_->options.key, key_.bytes, sizeof(client_->options.key));
        client_->options.slot_count = 64;
        RemoteAddress address{"127.0.0.1", links_[0]->port(), TransportChoice::rc};
        address.more_links = {{"127.0.0.1", links_[1]->port()}};
        auto opened = open_remote_memory(address, client_->options, &client_->recorder,
                                         client_->holder, client_->problem);
        ASSERT_TRUE(opened.ok()) << client_->problem;
        client_->memory = opened.release_value();
        wait_until_both_are_ready();
    }
    // Nothing is remembered of how links behaved, and the memory is empty again, as a Load expects it.
    void open_another_client() {
        client_->close();
        client_.reset();
        wait_for([&] { return network_.queue_pair_count() == 0; });
        std::memset(memory(), 0, kCounters + kThreads * 64);
        open_client();
    }
    void TearDown() override {
        client_.reset();
        for (auto& link : links_) {
            link.reset();
        }
        ServerFixture::TearDown();
    }
    template <typename Condition>
    static void wait_for(Condition condition) {
        bool is_met = condition();  // once: it need not stay so
        for (int i = 0; i < 30'000 && !is_met; i++) {
            usleep(1000);
            is_met = condition();
        }
        ASSERT_TRUE(is_met);
    }
    Statistics statistics() const { return client_->memory->statistics(); }
    // The link of the queue pair that is used; 2: there is none just now.
    size_t used_link() const {
        const Statistics now = statistics();
        size_t link = 0;
        while (link < 2 && std::string(now.paths[link].transport) != "rc") {
            link++;
        }
        return link;
    }
    bool are_links_up() const {
        const Statistics now = statistics();
        const auto is_up = [&](size_t link) {
            const std::string state = now.paths[link].state;
            return state == "active" || state == "ready";
        };
        return is_up(0) && is_up(1) && used_link() != 2;
    }
    void wait_until_both_are_ready() {
        wait_for(
            [&] { return are_links_up() && network_.queue_pair_count() == queue_pair_count(); });
    }
    // On a machine that is busy the first link may look silent for a moment.
    void wait_for_first_link() {
        wait_for([&] { return used_link() == 0 && are_links_up(); });
    }
    // Both ways of a link: its stream, and the queue pair beside it.
    void silence(size_t link, bool loses_answers_only) {
        links_[link]->stall(true);
        network_.silence_writer(loses_answers_only);
    }
    void mend() {
        for (auto& link : links_) {
            link->stall(false);
        }
        network_.hold(false);  // what was on its way arrives now
    }

    // Threads that write, read what they have written, and count, until the end.
    class Load {
      public:
        explicit Load(RcFailoverTest& test) {
            for (size_t index = 0; index < kThreads; index++) {
                threads_.emplace_back([this, &test, index] { run(test, index); });
            }
        }
        ~Load() { stop(); }
        Load(const Load&) = delete;
        Load& operator=(const Load&) = delete;
        void stop() {
            is_done_.store(true);
            for (std::thread& thread : threads_) {
                thread.join();
            }
            threads_.clear();
        }
        uint64_t rounds() const { return rounds_.load(); }
        void work_on() const {
            const uint64_t before = rounds();
            wait_for([&] { return rounds() > before + 20; });
        }
        uint64_t wrong() const { return wrong_.load(); }

      private:
        void expect(bool is_right) { wrong_ += is_right ? 0 : 1; }
        void run(RcFailoverTest& test, size_t index) {
            test::ClientFixture& client = *test.client_;
            const uint64_t begin = index * kWords * kStride;
            uint64_t words[kWords] = {};
            uint64_t sum = 0;
            while (!is_done_.load()) {
                // A batch, in an order; the same word twice shows whether that is kept.
                Io ios[8];
                for (size_t i = 0; i < 8; i++) {
                    const size_t word = (sum * 7 + i / 2) % kWords;
                    values_[index][i] = words[word] = ++count_[index];
                    ios[i].set(OperationKind::write, begin + word * kStride, &values_[index][i],
                               sizeof(uint64_t));
                    ios[i].operation.after_earlier = i % 2 != 0;
                    ios[i].operation.next = i + 1 < 8 ? &ios[i + 1].operation : nullptr;
                }
                client.memory->submit(ios[0].operation);
                for (Io& io : ios) {
                    client.memory->wait(io.operation);
                    expect(io.operation.outcome == Outcome::executed);
                }
                for (size_t i = 0; i < 2; i++) {
                    const size_t word = (sum * 7 + i) % kWords;
                    uint64_t found = 0;
                    expect(client.read(begin + word * kStride, &found, sizeof(found)) ==
                           Outcome::executed);
                    expect(found == words[word]);
                }
                expect(client.add(kCounters + index * 64, 1) == sum++);
                rounds_++;
            }
            for (size_t word = 0; word < kWords; word++) {
                const unsigned char* place = test.memory() + begin + word * kStride;
                expect(std::memcmp(place, &words[word], sizeof(uint64_t)) == 0);
            }
        }

        std::atomic<bool> is_done_{false};
        std::atomic<uint64_t> rounds_{0};
        std::atomic<uint64_t> wrong_{0};
        uint64_t values_[kThreads][8] = {};
        uint64_t count_[kThreads] = {};
        std::vector<std::thread> threads_;
    };

    FakeNetwork network_;
    std::unique_ptr<test::FaultyLink> links_[2];
    std::unique_ptr<test::ClientFixture> client_;
};

// As with a firewall that begins to drop RoCE, or a card that has lost its addresses.
TEST_F(RcFailoverTest, ALinkWhoseStreamIsWellIsGivenUpWhenItsRdmaIsNot) {
    wait_for_first_link();
    const uint64_t failures = statistics().paths[0].failures;
    network_.is_filtered = true;
    network_.silence_writer(false);
    uint64_t value = 7;
    Io io(OperationKind::write, 0, &value, sizeof(value));
    client_->memory->submit(io.operation);
    std::thread waiter([&] { client_->memory->wait(io.operation); });
    wait_for([&] { return statistics().paths[0].failures > failures; });
    network_.is_filtered = false;
    network_.hold(false);
    waiter.join();
    EXPECT_EQ(io.operation.outcome, Outcome::executed);
    EXPECT_EQ(std::memcmp(memory(), &value, sizeof(value)), 0);
    EXPECT_EQ(statistics().reconnections, 0U);
}

TEST_F(RcFailoverTest, AQueuePairIsReadyBesideEachLink) {
    EXPECT_NE(used_link(), 2U);
    EXPECT_STREQ(client_->memory->connection().transport_name, "rc");
    uint64_t value = 7;
    EXPECT_EQ(client_->write(0, &value, sizeof(value)), Outcome::executed);
    EXPECT_EQ(std::memcmp(memory(), &value, sizeof(value)), 0);
    EXPECT_EQ(volume().counters().requests[2].load(), 0U) << "no write came as a request";
}

TEST_F(RcFailoverTest, NothingIsBuiltWhenALinkFails) {
    // Unless the other link has looked silent, too, as on a machine that is busy.
    const auto doubts = [&] {
        const Statistics now = statistics();
        return now.paths[1].suspicions + now.paths[1].failures + now.reconnections;
    };
    bool is_judged = false;
    for (int attempt = 0; attempt < 20 && !is_judged && !HasFailure(); attempt++) {
        if (attempt > 0) {
            open_another_client();
        }
        wait_for_first_link();
        uint64_t value = 7;
        ASSERT_EQ(client_->write(0, &value, sizeof(value)), Outcome::executed);
        const uint64_t doubts_before = doubts();
        const uint64_t bindings = network_.counts().bindings;
        const uint64_t joined = volume().counters().paths_joined.load();
        network_.stalls_registration = true;  // whatever is built now is not there in time
        silence(0, false);
        value = 8;
        EXPECT_EQ(client_->write(0, &value, sizeof(value)), Outcome::executed);
        EXPECT_EQ(std::memcmp(memory(), &value, sizeof(value)), 0);
        const size_t used = used_link();
        const uint64_t bindings_after = network_.counts().bindings;
        const uint64_t joined_after = volume().counters().paths_joined.load();
        is_judged = doubts() == doubts_before;
        if (is_judged) {
            EXPECT_EQ(used, 1U);
            EXPECT_EQ(bindings_after, bindings);
            EXPECT_EQ(joined_after, joined);
        }
        network_.stalls_registration = false;
        mend();
    }
    EXPECT_TRUE(is_judged) << "the other link has looked silent each time";
}

TEST_F(RcFailoverTest, SilentLinksTakeNothingWithThem) {
    const ConnectionInfo before = client_->memory->connection();
    // Each takes more than a second: the stream stalls behind a socket that acknowledges.
    const uint64_t cuts = tiffin::test::test_size(10, 4);
    Load load(*this);
    for (uint64_t cut = 0; cut < cuts; cut++) {
        load.work_on();
        const size_t link = used_link();
        silence(link % 2, cut % 2 != 0);
        load.work_on();
        mend();
        wait_until_both_are_ready();
    }
    load.stop();
    EXPECT_EQ(load.wrong(), 0U);
    EXPECT_EQ(client_->memory->connection().incarnation, before.incarnation);
    EXPECT_EQ(client_->memory->connection().session_id, before.session_id);
    EXPECT_GE(statistics().failovers, cuts / 2);
}

// A device gives up while its link lives.
TEST_F(RcFailoverTest, ABrokenQueuePairIsReplacedOnItsLink) {
    Load load(*this);
    for (uint64_t cut = 0; cut < tiffin::test::test_size(40, 6); cut++) {
        const uint64_t rounds = load.rounds();
        network_.break_after(cut, cut % 2 != 0);
        wait_for([&] { return load.rounds() > rounds + 20; });
    }
    load.stop();
    EXPECT_EQ(load.wrong(), 0U);
    wait_until_both_are_ready();
}

// The connection is cut, not silent: both ends know at once.
TEST_F(RcFailoverTest, ConnectionsThatBreakTakeNothingWithThem) {
    Load load(*this);
    for (uint64_t cut = 0; cut < tiffin::test::test_size(20, 4); cut++) {
        const size_t link = used_link() % 2;
        const uint64_t cuts = links_[link]->cuts();
        links_[link]->cut_to_client_after(1);
        wait_for([&] { return links_[link]->cuts() > cuts; });
        load.work_on();
        wait_until_both_are_ready();
    }
    load.stop();
    EXPECT_EQ(load.wrong(), 0U);
    EXPECT_EQ(statistics().reconnections, 0U);
}

TEST_F(RcFailoverTest, GoingBackToTheFirstLinkRepeatsNothing) {
    const auto doubts = [](const Statistics& now) {
        return now.paths[0].suspicions + now.paths[1].suspicions + now.paths[0].failures +
               now.paths[1].failures;
    };
    // And no link has looked silent meanwhile, as on a machine that is busy.
    bool has_gone_back = false;
    for (int attempt = 0; attempt < 20 && !has_gone_back && !HasFailure(); attempt++) {
        if (attempt > 0) {
            open_another_client();  // a link that often looks silent is not gone back to for long
        }
        wait_for_first_link();
        Load load(*this);
        load.work_on();
        silence(0, false);
        wait_for([&] { return used_link() == 1; });
        load.work_on();
        const Statistics moved = statistics();
        mend();
        wait_for([&] { return used_link() == 0; });
        load.work_on();
        const Statistics back = statistics();
        load.stop();
        EXPECT_EQ(load.wrong(), 0U);
        has_gone_back = doubts(back) == doubts(moved);
        if (has_gone_back) {
            EXPECT_EQ(back.resent_operations, moved.resent_operations);
            EXPECT_EQ(back.recovered_operations, moved.recovered_operations);
        }
    }
    EXPECT_TRUE(has_gone_back);
}

// A write that is on its way when its link fails must not land once its place holds something newer.
TEST_F(RcFailoverTest, ALatePacketChangesNothing) {
    wait_for_first_link();
    uint64_t old_value = 1;
    ASSERT_EQ(client_->write(0, &old_value, sizeof(old_value)), Outcome::executed);
    silence(0, false);
    Io late(OperationKind::write, 0, &old_value, sizeof(old_value));
    client_->memory->submit(late.operation);
    client_->memory->wait(late.operation);
    EXPECT_EQ(late.operation.outcome, Outcome::executed);
    uint64_t new_value = 2;
    ASSERT_EQ(client_->write(0, &new_value, sizeof(new_value)), Outcome::executed);
    mend();
    EXPECT_EQ(std::memcmp(memory(), &new_value, sizeof(new_value)), 0);
}

// The client's device does not end the queue pair of a link that fails, and the answer to a read comes after all, when another
// read is under way: not where that one's data are.
TEST_F(RcFailoverTest, ALateAnswerReachesNoOtherRead) {
    constexpr size_t kBytes = 4096;
    wait_for_first_link();
    std::memset(memory(), 'a', kBytes);
    std::memset(memory() + kBytes, 'b', kBytes);
    uint64_t value = 1;
    ASSERT_EQ(client_->write(kCounters, &value, sizeof(value)), Outcome::executed);
    network_.delays_answers = true;
    network_.ends_no_client = true;
    silence(0, true);
    std::string content(kBytes, 0);
    Io first(OperationKind::read, 0, content.data(), kBytes);
    client_->memory->submit(first.operation);
    client_->memory->wait(first.operation);
    ASSERT_EQ(first.operation.outcome, Outcome::executed);
    EXPECT_EQ(content, std::string(kBytes, 'a'));
    network_.stalls_polls = true;
    Io second(OperationKind::read, kBytes, content.data(), kBytes);
    const uint64_t reads = network_.counts().reads;
    client_->memory->submit(second.operation);
    wait_for([&] { return network_.counts().reads > reads; });
    EXPECT_EQ(network_.deliver_answers(), 1U);
    network_.stalls_polls = false;
    client_->memory->wait(second.operation);
    EXPECT_EQ(second.operation.outcome, Outcome::executed);
    EXPECT_EQ(content, std::string(kBytes, 'b'));
    network_.ends_no_client = false;
    mend();
}

// Until the server has ended it, what was posted there may still be executed.
TEST_F(RcFailoverTest, NothingIsRepeatedWhileTheServerCannotEndTheFailedPath) {
    wait_for_first_link();
    uint64_t value = 1;
    ASSERT_EQ(client_->write(0, &value, sizeof(value)), Outcome::executed);
    silence(0, false);
    network_.ends_no_pair = true;
    value = 2;
    Io late(OperationKind::write, 0, &value, sizeof(value));
    client_->memory->submit(late.operation);
    usleep(400'000);
    EXPECT_EQ(late.operation.finished.load(), 0U);
    network_.ends_no_pair = false;
    mend();
    client_->memory->wait(late.operation);
    EXPECT_EQ(late.operation.outcome, Outcome::executed);
    EXPECT_EQ(std::memcmp(memory(), &value, sizeof(value)), 0);
}

TEST_F(RcFailoverTest, ALinkIsTakenAwayAndAdded) {
    Load load(*this);
    RemoteMemory& memory = *client_->memory;
    for (uint64_t round = 0; round < tiffin::test::test_size(6, 2); round++) {
        for (const uint16_t port : {links_[0]->port(), links_[1]->port()}) {
            ASSERT_TRUE(memory.remove_link("127.0.0.1", port).ok());
            load.work_on();
            ASSERT_TRUE(memory.add_link("127.0.0.1", port).ok());
            wait_until_both_are_ready();
        }
    }
    load.stop();
    EXPECT_EQ(load.wrong(), 0U);
}

// It keeps one queue pair for a session.
class RcFailoverOfEarlierServersTest : public RcFailoverTest {
  protected:
    uint8_t highest_version() const override { return wire::kSeveralQueuePairsVersion - 1; }
    size_t queue_pair_count() const override { return 2; }
};

TEST_F(RcFailoverOfEarlierServersTest, SilentLinksTakeNothingWithThem) {
    Load load(*this);
    for (uint64_t cut = 0; cut < tiffin::test::test_size(4, 2); cut++) {
        load.work_on();
        silence(used_link() % 2, cut % 2 != 0);
        load.work_on();
        mend();
        wait_until_both_are_ready();
    }
    load.stop();
    EXPECT_EQ(load.wrong(), 0U);
    EXPECT_EQ(statistics().reconnections, 0U);
}

TEST_F(RcFailoverTest, TheLeaseTheEndAndAServerThatStartsAgain) {
    const uint16_t port = server_->port();
    Load load(*this);
    configuration_.listen = {{"127.0.0.1", port}};
    restart();
    load.work_on();
    wait_until_both_are_ready();
    load.stop();
    EXPECT_EQ(load.wrong(), 0U);
    client_->close();
    wait_for([&] { return network_.queue_pair_count() == 0 && network_.window_count() == 0; });
}

}  // namespace
}  // namespace tiffin::rdma_blk
