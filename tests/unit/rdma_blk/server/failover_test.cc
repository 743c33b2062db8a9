// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A client with two links to a server, both real: links that fall silent or break take nothing with them.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "fuse/host/log_sink.h"
#include "rdma_blk/sdr/simulated/emulated_path.h"
#include "rdma_blk/transport/sdr/sdr_path.h"
#include "rdma_blk/transport/tcp/tcp_memory.h"
#include "tests/support/faulty_link.h"
#include "tests/support/test_size.h"
#include "tests/unit/rdma_blk/server/deaf_path.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk {
namespace {

// What the two links are.
struct Links {
    const char* name;
    TransportChoice transports[2];
    TransportChoice of(size_t link) const { return transports[link]; }
    bool is_mixed() const { return of(0) != of(1); }
    bool has_sdr() const { return of(0) == TransportChoice::sdr || of(1) == TransportChoice::sdr; }
};
constexpr Links kTcp{"Tcp", {TransportChoice::tcp, TransportChoice::tcp}};
constexpr Links kSdr{"Sdr", {TransportChoice::sdr, TransportChoice::sdr}};
constexpr Links kSdrAndTcp{"SdrAndTcp", {TransportChoice::sdr, TransportChoice::tcp}};
constexpr Links kTcpAndSdr{"TcpAndSdr", {TransportChoice::tcp, TransportChoice::sdr}};

class FailoverTest : public ServerFixture, public ::testing::WithParamInterface<Links> {
  protected:
    static constexpr uint64_t kCounters = 8;

    virtual std::string backing() const { return ""; }
    virtual std::shared_ptr<RequestPath> make_path(const SdrOptions& options) {
        return std::make_shared<SdrPath>(options);
    }
    void SetUp() override {
        ServerFixture::SetUp();
        configuration_.sdr_port = 0;
        start(backing());
        for (auto& link : links_) {
            link = std::make_unique<test::FaultyLink>(server_->port());
        }
        for (auto& datagrams : datagrams_) {
            auto made = sdr::EmulatedPath::create(simulation::EmulatorOptions());
            ASSERT_TRUE(made.ok());
            datagrams = made.release_value();
        }
    }
    void TearDown() override {
        client_.reset();
        for (auto& link : links_) {
            link.reset();
        }
        ServerFixture::TearDown();
    }
    void make_client(bool encrypts = false) {
        client_ = std::make_unique<test::ClientFixture>(encrypts);
        std::memcpy(client_->options.key, key_.bytes, sizeof(client_->options.key));
    }
    void open_client(bool encrypts = false) {
        make_client(encrypts);
        client_->options.slot_count = 32;
        client_->options.busy_poll_us = busy_poll_us_;
        open_memory(links_[0]->port());
        wait_for_path(1, "ready");
        for (size_t path = 0; path < 2; path++) {
            wait_for_transport(path);
        }
    }
    // Each link has a way of its own for datagrams, which falls silent with it.
    void open_memory(uint16_t first_port, bool has_several = true,
                     std::optional<WayChoice::Options> measured = std::nullopt) {
        RemoteAddress address{"127.0.0.1", first_port, GetParam().of(0)};
        address.link_policy = link_policy_;
        if (has_several) {
            address.more_links = {{"127.0.0.1", links_[1]->port()}};
        }
        StreamExtension extension;
        extension.measured = measured;
        if (GetParam().has_sdr()) {
            extension.make_requests = [this](size_t link) -> std::shared_ptr<RequestPath> {
                SdrOptions options;
                options.detour = datagrams_[made_++ % std::size(datagrams_)].get();
                const TransportChoice transport = GetParam().of(link);
                return transport == TransportChoice::sdr ? make_path(options) : nullptr;
            };
        }
        made_ = 0;
        auto opened = TcpMemory::open(address, client_->options, &client_->recorder,
                                      client_->holder, client_->problem, nullptr, extension);
        ASSERT_TRUE(opened.ok()) << client_->problem;
        client_->memory = opened.release_value();
    }
    void stall(size_t path, bool stalls) {
        links_[path]->stall(stalls);
        datagrams_[path]->emulator().set_longest_datagram(stalls ? 0 : 65507);
    }
    // A link that is added is as the first one.
    void wait_for_transport(size_t path, bool is_added = false) {
        const TransportChoice transport = GetParam().of(is_added ? 0 : path);
        const std::string wanted = transport == TransportChoice::sdr ? "sdr" : "tcp";
        while (client_->memory->statistics().paths[path].transport != wanted) {
            usleep(1000);
        }
    }
    std::string state(size_t path) { return client_->memory->statistics().paths[path].state; }
    void wait_for_path(size_t path, const std::string& wanted) {
        // On a machine that is busy enough the other one looks silent, and this one is active already.
        while (state(path) != wanted && !(wanted == "ready" && state(path) == "active")) {
            usleep(1000);
        }
    }
    // So many additions to each of some counters, by as many threads; old values are in order when nothing else adds.
    void add_up(uint64_t additions) {
        std::vector<std::thread> threads;
        for (uint64_t counter = 0; counter < kCounters; counter++) {
            threads.emplace_back([this, counter, additions] {
                for (uint64_t i = 0; i < additions; i++) {
                    const uint64_t expected = expected_[counter]++;
                    if (client_->add(counter * 64, 1) != expected) {
                        wrong_++;
                    }
                }
            });
        }
        for (std::thread& thread : threads) {
            thread.join();
        }
    }
    // Adds up all the time, until stop().
    class Load {
      public:
        explicit Load(FailoverTest& test)
            : thread_([this, &test] {
                  while (!is_done_.load()) {
                      test.add_up(20);
                  }
              }) {}
        ~Load() { stop(); }
        Load(const Load&) = delete;
        Load& operator=(const Load&) = delete;
        void stop() {
            is_done_.store(true);
            if (thread_.joinable()) {
                thread_.join();
            }
        }

      private:
        std::atomic<bool> is_done_{false};
        std::thread thread_;
    };
    void expect_sums() {
        EXPECT_EQ(wrong_.load(), 0U);
        for (uint64_t counter = 0; counter < kCounters; counter++) {
            EXPECT_EQ(*reinterpret_cast<uint64_t*>(memory() + counter * 64), expected_[counter]);
        }
    }

    std::unique_ptr<test::FaultyLink> links_[2];
    std::unique_ptr<sdr::EmulatedPath> datagrams_[3];  // one more for a link that is added
    size_t made_ = 0;
    std::unique_ptr<test::ClientFixture> client_;
    uint32_t busy_poll_us_ = kDefaultBusyPollUs;
    LinkPolicy link_policy_ = LinkPolicy::standby;
    uint64_t expected_[kCounters] = {};
    std::atomic<uint64_t> wrong_{0};
};

// What breaks a stream at a place in it, or counts what it takes.
class FailoverOfStreamsTest : public FailoverTest {};
class FailoverOfDatagramsTest : public FailoverTest {};

std::string transport_of(const ::testing::TestParamInfo<Links>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Over, FailoverTest, ::testing::Values(kTcp, kSdr, kSdrAndTcp, kTcpAndSdr),
                         transport_of);
INSTANTIATE_TEST_SUITE_P(Over, FailoverOfStreamsTest, ::testing::Values(kTcp), transport_of);
INSTANTIATE_TEST_SUITE_P(Over, FailoverOfDatagramsTest, ::testing::Values(kSdr), transport_of);

TEST_P(FailoverTest, AStandbyIsThere) {
    open_client();
    add_up(100);
    expect_sums();
    const Statistics statistics = client_->memory->statistics();
    EXPECT_EQ(statistics.path_count, 2U);
    // A thread that gets no processor may make a link look silent.
    EXPECT_GT(statistics.paths[0].bytes_sent + statistics.paths[1].bytes_sent,
              kCounters * 100 * sizeof(wire::Request));
    EXPECT_EQ(statistics.reconnections, 0U);
    EXPECT_EQ(volume().counters().paths_joined.load(), 1U);
}

// The active link ends while the other one is only suspect: there is none that could carry the goodbye.
TEST_P(FailoverOfStreamsTest, ClosingWhileNoLinkIsReadyEnds) {
    open_client();
    uint64_t value = 1;
    stall(0, true);
    test::Io write(OperationKind::write, 0, &value, sizeof(value));
    client_->memory->submit(write.operation);
    wait_for_path(0, "suspect");
    client_->memory->wait(write.operation);
    EXPECT_EQ(write.operation.outcome, Outcome::executed);
    links_[1].reset();
    while (state(1) == "active") {
        usleep(1000);
    }
    client_->memory->close();
    stall(0, false);
}

TEST_P(FailoverTest, LinksComeAndGoWhileTheSessionWorks) {
    open_client();
    test::FaultyLink third(server_->port());
    Load load(*this);
    RemoteMemory& memory = *client_->memory;
    EXPECT_EQ(memory.add_link("127.0.0.1", links_[1]->port()).error(), Error::eexist);
    EXPECT_EQ(memory.remove_link("127.0.0.1", third.port()).error(), Error::enoent);
    const uint64_t rounds = tiffin::test::test_size(20, 3);
    for (uint64_t round = 0; round < rounds; round++) {
        for (const uint16_t port : {links_[0]->port(), links_[1]->port()}) {
            ASSERT_TRUE(memory.add_link("127.0.0.1", third.port()).ok());
            wait_for_path(2, "ready");
            ASSERT_TRUE(memory.remove_link("127.0.0.1", port).ok());
            ASSERT_TRUE(memory.add_link("127.0.0.1", port).ok());
            wait_for_path(port == links_[0]->port() ? 0 : 1, "ready");
            ASSERT_TRUE(memory.remove_link("127.0.0.1", third.port()).ok());
        }
    }
    load.stop();
    expect_sums();
    ASSERT_TRUE(memory.remove_link("127.0.0.1", links_[0]->port()).ok());
    EXPECT_EQ(memory.remove_link("127.0.0.1", links_[1]->port()).error(), Error::ebusy);
    add_up(10);
    expect_sums();
    const Statistics statistics = memory.statistics();
    EXPECT_STREQ(statistics.paths[0].state, "removed");
    EXPECT_EQ(statistics.reconnections, 0U);
    client_->close();
}

TEST_P(FailoverTest, ASessionOfOneLinkGetsMore) {
    make_client();
    open_memory(links_[0]->port(), false);
    Load load(*this);
    RemoteMemory& memory = *client_->memory;
    EXPECT_EQ(memory.add_link("127.0.0.1", links_[0]->port()).error(), Error::eexist);
    EXPECT_EQ(memory.remove_link("127.0.0.1", links_[1]->port()).error(), Error::enoent);
    EXPECT_EQ(memory.remove_link("127.0.0.1", links_[0]->port()).error(), Error::ebusy);
    EXPECT_EQ(memory.statistics().reconnections, 0U);
    ASSERT_TRUE(memory.add_link("127.0.0.1", links_[1]->port()).ok());
    for (size_t path = 0; path < 2; path++) {
        wait_for_path(path, "ready");
        wait_for_transport(path, true);
    }
    stall(0, true);
    while (state(1) != "active") {
        usleep(1000);
    }
    load.stop();
    add_up(20);
    expect_sums();
    EXPECT_EQ(memory.statistics().reconnections, 1U);
    client_->close();
}

// One to send and one to receive, as with one link. When nothing comes for some milliseconds all links are looked at.
TEST_P(FailoverOfStreamsTest, WhoSleepsNeedsNoFurtherSystemCalls) {
    busy_poll_us_ = 0;
    open_client();
    constexpr uint64_t kReads = 4000;
    unsigned char data[64];
    const uint64_t began_ns = host::monotonic_ns();
    const uint64_t before = client_->memory->statistics().system_calls;
    for (uint64_t i = 0; i < kReads; i++) {
        ASSERT_EQ(client_->read(0, data, sizeof(data)), Outcome::executed);
    }
    const uint64_t calls = client_->memory->statistics().system_calls - before;
    const uint64_t looks = (host::monotonic_ns() - began_ns) / 1'000'000;
    EXPECT_LE(calls, 2 * kReads + kReads / 10 + looks / 2) << looks;
}

// The server ends them all.
TEST_P(FailoverTest, TheEndOfASessionIsNoFailureOfItsLinks) {
    for (int round = 0; round < 20; round++) {
        open_client();
        add_up(1);
        uint64_t before[2];
        for (size_t path = 0; path < 2; path++) {
            before[path] = client_->memory->statistics().paths[path].failures;
        }
        client_->close();
        for (size_t path = 0; path < 2; path++) {
            EXPECT_EQ(client_->memory->statistics().paths[path].failures, before[path]);
        }
    }
}

TEST_P(FailoverTest, ASilentLinkIsLeftForTheOther) {
    for (const bool encrypts : {false, true}) {
        SCOPED_TRACE(encrypts);
        open_client(encrypts);
        add_up(20);
        stall(0, true);
        add_up(20);
        expect_sums();
        const Statistics statistics = client_->memory->statistics();
        EXPECT_GE(statistics.failovers, 1U);
        EXPECT_STREQ(statistics.paths[1].state, "active");
        EXPECT_EQ(statistics.reconnections, 0U);
        EXPECT_EQ(statistics.outcomes[static_cast<size_t>(Outcome::unknown)], 0U);
        client_->close();
        stall(0, false);
    }
}

// All links are silent for a while, as when the server's machine stands still: that is no fault of one of them.
TEST_P(FailoverTest, AServerThatStandsStillIsNoFailureOfALink) {
    open_client();
    add_up(10);
    stall(0, true);
    stall(1, true);
    std::thread worker([this] { add_up(10); });
    usleep(2'500'000);
    stall(0, false);
    stall(1, false);
    worker.join();
    expect_sums();
    const Statistics statistics = client_->memory->statistics();
    EXPECT_EQ(statistics.paths[0].failures + statistics.paths[1].failures, 0U);
    EXPECT_EQ(statistics.reconnections, 0U);
}

// ... and for ever: all links are given up in the end, though TCP acknowledges what they are probed with.
TEST_P(FailoverTest, AServerThatStandsStillForLongIsLeft) {
    open_client();
    add_up(10);
    stall(0, true);
    stall(1, true);
    std::thread worker([this] { add_up(10); });
    const auto failures = [this](size_t path) {
        return client_->memory->statistics().paths[path].failures;
    };
    while (failures(0) == 0 || failures(1) == 0) {
        usleep(10'000);
    }
    stall(0, false);
    stall(1, false);
    worker.join();
    expect_sums();
    EXPECT_GE(client_->memory->statistics().reconnections, 1U);
}

TEST_P(FailoverTest, ALinkThatIsWellAgainIsUsedAgain) {
    open_client();
    stall(0, true);
    add_up(10);
    EXPECT_EQ(state(1), "active");
    stall(0, false);
    wait_for_path(0, "active");
    add_up(10);
    expect_sums();
    EXPECT_EQ(client_->memory->statistics().reconnections, 0U);
}

TEST_P(FailoverOfStreamsTest, ALinkThatBreaksAgainAndAgain) {
    open_client();
    const uint64_t rounds = tiffin::test::test_size(100, 10);
    for (uint64_t round = 0; round < rounds; round++) {
        links_[state(0) == "active" ? 0 : 1]->cut_to_server_after(
            static_cast<int64_t>(round * 37 % 3000));
        add_up(10);
    }
    expect_sums();
    const Statistics statistics = client_->memory->statistics();
    EXPECT_GE(statistics.failovers, 1U);
    EXPECT_EQ(statistics.outcomes[static_cast<size_t>(Outcome::unknown)], 0U);
    EXPECT_GT(volume().counters().recoveries.load(), 0U);
}

TEST_P(FailoverOfStreamsTest, LargeWritesAndReadsWhileLinksBreak) {
    open_client();
    std::vector<unsigned char> data(1 << 20);
    std::vector<unsigned char> back(data.size());
    const uint64_t rounds = tiffin::test::test_size(60, 10);
    for (uint64_t round = 0; round < rounds; round++) {
        test::FaultyLink& link = *links_[state(0) == "active" ? 0 : 1];
        std::fill(data.begin(), data.end(), static_cast<unsigned char>(round));
        const auto bytes = static_cast<int64_t>(round * 7919 % data.size());
        round % 2 == 0 ? link.cut_to_server_after(bytes) : link.cut_to_client_after(bytes);
        ASSERT_EQ(client_->write(0, data.data(), data.size()), Outcome::executed);
        ASSERT_EQ(client_->read(0, back.data(), back.size()), Outcome::executed);
        ASSERT_EQ(data, back);
    }
}

class FailoverOfFlushesTest : public FailoverOfStreamsTest {
    std::string backing() const override { return folder_ + "/backing"; }
};

// A flush takes so long that the server has it and no answer to it when it is asked. The link over which the answer comes
// then has carried far fewer messages than the one on which the flush was sent.
INSTANTIATE_TEST_SUITE_P(Over, FailoverOfFlushesTest, ::testing::Values(kTcp), transport_of);

TEST_P(FailoverOfFlushesTest, AnAnswerComesOverALinkThatHasNotSentTheRequest) {
    open_client();
    std::vector<unsigned char> data(1 << 20);
    const uint64_t rounds = tiffin::test::test_size(10, 3);
    for (uint64_t round = 0; round < rounds; round++) {
        add_up(20);
        for (uint64_t offset = data.size(); offset < kVolumeBytes; offset += data.size()) {
            std::fill(data.begin(), data.end(), static_cast<unsigned char>(round + offset));
            ASSERT_EQ(client_->write(offset, data.data(), data.size()), Outcome::executed);
        }
        const size_t active = state(0) == "active" ? 0 : 1;
        test::FaultyLink& link = *links_[active];
        const uint64_t failures = client_->memory->statistics().paths[1 - active].failures;
        Operation flush;
        flush.kind = OperationKind::flush;
        link.stall_to_client_after(0);
        client_->run(flush);
        EXPECT_EQ(flush.outcome, Outcome::executed);
        link.thaw_to_client();
        EXPECT_EQ(client_->memory->statistics().paths[1 - active].failures, failures);
        wait_for_path(0, "ready");
        wait_for_path(1, "ready");
    }
    EXPECT_EQ(client_->memory->statistics().reconnections, 0U);
}

TEST_P(FailoverTest, WithoutALinkTheSessionWaitsAndGoesOn) {
    open_client();
    for (size_t path = 0; path < 2; path++) {
        stall(path, true);
    }
    std::thread thaw([this] {
        usleep(100'000);
        for (size_t path = 0; path < 2; path++) {
            stall(path, false);
        }
    });
    add_up(10);
    thaw.join();
    expect_sums();
}

TEST_P(FailoverTest, TheFirstLinkMayBeDownWhenItIsOpened) {
    const uint16_t unused_port = links_[0]->port();
    links_[0].reset();
    make_client();
    open_memory(unused_port);
    add_up(10);
    expect_sums();
}

// Once, however often it is tried; and once more when it has worked meanwhile.
TEST_P(FailoverOfStreamsTest, ALinkThatCannotBeMadeIsTold) {
    fuse::CapturedLog log;
    const std::string told =
        "link 2 (127.0.0.1:" + std::to_string(links_[1]->port()) + ") cannot be made";
    const auto times = [&] {
        const auto lines = log.lines();
        return static_cast<uint64_t>(
            std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
                return line.starts_with("warning: ") && line.find(told) != std::string::npos &&
                       line.find("closed before a word was said") != std::string::npos;
            }));
    };
    const auto cut_until = [&](auto is_enough) {
        while (!is_enough()) {
            links_[1]->cut_to_server_after(0);
            usleep(200);
        }
        links_[1]->cut_to_server_after(-1);
    };
    make_client();
    links_[1]->cut_to_server_after(0);
    open_memory(links_[0]->port());
    cut_until([&] { return links_[1]->cuts() >= 4 && times() > 0; });
    // On a busy machine an attempt may be faster than the cut.
    EXPECT_LE(times(), 1 + volume().counters().paths_joined.load());
    const uint64_t before = times();
    wait_for_path(1, "ready");
    cut_until([&] { return times() > before; });
    wait_for_path(1, "ready");
    add_up(10);
    expect_sums();
}

TEST_P(FailoverOfDatagramsTest, LinksThatFallSilentAgainAndAgain) {
    open_client();
    std::vector<unsigned char> data(1 << 20);
    std::vector<unsigned char> back(data.size());
    const uint64_t rounds = tiffin::test::test_size(60, 10);
    for (uint64_t round = 0; round < rounds; round++) {
        for (size_t path = 0; path < 2; path++) {
            wait_for_path(path, "ready");
            wait_for_transport(path);
        }
        const size_t active = state(0) == "active" ? 0 : 1;
        std::thread cutter([&] {
            usleep(static_cast<useconds_t>(round * 379 % 3000));
            stall(active, true);
        });
        std::fill(data.begin(), data.end(), static_cast<unsigned char>(round + 1));
        EXPECT_EQ(client_->write(1 << 20, data.data(), data.size()), Outcome::executed);
        EXPECT_EQ(client_->read(1 << 20, back.data(), back.size()), Outcome::executed);
        EXPECT_EQ(data, back);
        cutter.join();
        add_up(10);
        stall(active, false);
    }
    expect_sums();
    const Statistics statistics = client_->memory->statistics();
    EXPECT_GE(statistics.failovers, rounds / 2);
    EXPECT_EQ(statistics.outcomes[static_cast<size_t>(Outcome::unknown)], 0U);
    EXPECT_GT(statistics.datagrams_sent, rounds * data.size() / 65507);
    EXPECT_GT(statistics.recovered_operations + statistics.resent_operations, 0U);
    client_->close();  // before the links
}

// Whatever it has chosen: it stays with its streams.
TEST_P(FailoverOfDatagramsTest, ASessionThatMeasuresItsWayGetsMoreLinks) {
    make_client();
    open_memory(links_[0]->port(), false, WayChoice::Options());
    add_up(200);
    ASSERT_TRUE(client_->memory->add_link("127.0.0.1", links_[1]->port()).ok());
    wait_for_path(1, "ready");
    add_up(20);
    stall(0, true);
    add_up(20);
    expect_sums();
    const Statistics statistics = client_->memory->statistics();
    EXPECT_STREQ(statistics.paths[1].transport, "tcp");
    EXPECT_EQ(statistics.reconnections, 1U);
    EXPECT_GE(statistics.failovers, 1U);
    client_->close();
}

// Also in the middle of a trial.
TEST_P(FailoverOfDatagramsTest, ASessionThatTriesItsWayGetsMoreLinks) {
    make_client();
    WayChoice::Options options;
    options.least_losses = 0;
    options.least_loss_ppm = 0;
    options.window_requests = 100'000;  // it does not end
    open_memory(links_[0]->port(), false, options);
    while (client_->memory->statistics().datagrams_sent == 0) {
        add_up(20);
    }
    ASSERT_TRUE(client_->memory->add_link("127.0.0.1", links_[1]->port()).ok());
    wait_for_path(1, "ready");
    stall(0, true);
    add_up(20);
    expect_sums();
    EXPECT_GE(client_->memory->statistics().failovers, 1U);
    client_->close();
}

// Its datagrams alone vanish: it is a link that does not carry what it should.
TEST_P(FailoverOfDatagramsTest, ALinkWhoseDatagramsVanishIsLeft) {
    open_client();
    add_up(10);
    datagrams_[0]->emulator().set_longest_datagram(0);
    add_up(10);
    expect_sums();
    EXPECT_EQ(client_->memory->statistics().reconnections, 0U);
    client_->close();
}

// ... as they do over a long way, where words of the stream come seldom. The path itself and the server would say so, but much
// later.
class FarLinkTest : public FailoverTest {
  protected:
    void SetUp() override {
        configuration_.probe_interval_ms = 1500;
        FailoverTest::SetUp();
    }
    std::shared_ptr<RequestPath> make_path(const SdrOptions& options) override {
        return std::make_shared<test::DeafPath>(options, true);
    }
};
INSTANTIATE_TEST_SUITE_P(Over, FarLinkTest, ::testing::Values(kSdr), transport_of);

TEST_P(FarLinkTest, WhoseDatagramsVanishIsLeft) {
    for (const auto& link : links_) {
        link->delay_us(150'000);
    }
    open_client();
    add_up(10);
    usleep(2'000'000);  // no word but a probe's
    add_up(10);
    fuse::CapturedLog log;
    datagrams_[0]->emulator().set_longest_datagram(0);
    add_up(10);
    expect_sums();
    const std::vector<std::string> lines = log.lines();
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
        return line.find(": link 1 (") != std::string::npos &&
               line.find(" has failed: no datagrams") != std::string::npos;
    })) << ::testing::PrintToString(lines);
    client_->close();
}

class DeafLinkTest : public FailoverTest {
  protected:
    std::shared_ptr<RequestPath> make_path(const SdrOptions& options) override {
        return path_ = std::make_shared<test::DeafPath>(options);
    }
    uint64_t failures() { return client_->memory->statistics().paths[0].failures; }

    std::shared_ptr<test::DeafPath> path_;
};
INSTANTIATE_TEST_SUITE_P(Over, DeafLinkTest, ::testing::Values(kSdrAndTcp), transport_of);

// The first link looks silent, what it has sent is asked about over the second one, and it is well again before its request
// is acknowledged. Nothing but the answer over the second link completes that; the server would give the first one up later.
TEST_P(DeafLinkTest, TheAnswerOverAnotherLinkIsTaken) {
    const uint64_t rounds = tiffin::test::test_size(5, 2);
    for (uint64_t round = 0; round < rounds; round++) {
        open_client();
        while (state(0) != "active") {
            usleep(1000);
        }
        path_->set_deaf(true);
        links_[0]->stall(true);
        std::atomic<bool> is_done{false};
        // Large enough to be sent from where it is.
        std::vector<unsigned char> data(64 << 10, static_cast<unsigned char>(round + 1));
        std::thread writer([&] {
            EXPECT_EQ(client_->write(1 << 20, data.data(), data.size()), Outcome::executed);
            is_done = true;
        });
        while (client_->memory->statistics().paths[0].suspicions == 0) {
            usleep(100);
        }
        usleep(50'000);
        links_[0]->stall(false);
        // A machine that is busy enough has given it up by now.
        const bool is_kept = failures() == 0;
        while (!is_done && failures() == 0) {
            usleep(1000);
        }
        EXPECT_TRUE(failures() == 0 || !is_kept) << "round " << round;
        path_->set_deaf(false);
        writer.join();
        EXPECT_EQ(std::memcmp(memory() + (1 << 20), data.data(), data.size()), 0);
        client_->close();
    }
}

class SpreadTest : public FailoverTest {
  protected:
    void SetUp() override {
        FailoverTest::SetUp();
        link_policy_ = LinkPolicy::spread;
        for (auto& link : links_) {
            link->delay_us(200);  // more than what else takes time, and the same for both
        }
    }
    // Pieces of a large area, 16 at a time, in one batch or several; read back and compared.
    void write_and_read(unsigned char value) {
        constexpr size_t kPieceBytes = 64 << 10;
        constexpr size_t kPieces = 16;
        std::vector<unsigned char> data(kPieces * kPieceBytes, value);
        std::vector<unsigned char> back(data.size());
        for (const OperationKind kind : {OperationKind::write, OperationKind::read}) {
            test::Io ios[kPieces];
            unsigned char* const bytes = kind == OperationKind::write ? data.data() : back.data();
            for (size_t i = 0; i < kPieces; i++) {
                ios[i].set(kind, (1 << 20) + i * kPieceBytes, bytes + i * kPieceBytes, kPieceBytes);
                client_->memory->submit(ios[i].operation);
            }
            for (test::Io& io : ios) {
                client_->memory->wait(io.operation);
                EXPECT_EQ(io.operation.outcome, Outcome::executed);
            }
        }
        EXPECT_EQ(data, back);
    }
    // Whether what goes over each link is as `fits` says. On a machine that is busy, links look silent and take nothing for a
    // while, and their rates are measured as those of threads that get no processor: the measurement is made again.
    template <typename Work, typename Fits>
    bool shows(Work work, Fits fits) {
        bool is_shown = false;
        for (int attempt = 0; attempt < 20 && !is_shown; attempt++) {
            open_client();
            work();
            const Statistics statistics = client_->memory->statistics();
            is_shown = fits(statistics.paths[0].bytes_sent, statistics.paths[1].bytes_sent);
            client_->close();
        }
        return is_shown;
    }
};
INSTANTIATE_TEST_SUITE_P(Over, SpreadTest, ::testing::Values(kTcp, kSdr, kSdrAndTcp, kTcpAndSdr),
                         transport_of);

TEST_P(SpreadTest, AllLinksCarryRequests) {
    // Links of two kinds are not equally fast.
    const uint64_t share = GetParam().is_mixed() ? 64 : 8;
    EXPECT_TRUE(shows(
        [this] {
            for (int round = 0; round < 10; round++) {
                write_and_read(static_cast<unsigned char>(round));
            }
        },
        [share](uint64_t first, uint64_t second) {
            return std::min(first, second) > (first + second) / share;
        }));
}

TEST_P(SpreadTest, ALinkThatIsFarAwayCarriesLittle) {
    links_[1]->delay_us(20'000);
    EXPECT_TRUE(shows(
        [this] {
            uint64_t value = 0;
            for (int round = 0; round < 100; round++) {
                EXPECT_EQ(client_->read(0, &value, sizeof(value)), Outcome::executed);
            }
        },
        [](uint64_t first, uint64_t second) { return first > 4 * second; }));
}

// Whichever it is, the other one goes on with what was on its way there.
TEST_P(SpreadTest, SilentLinksTakeNothingWithThem) {
    open_client();
    Load load(*this);
    const uint64_t rounds = tiffin::test::test_size(20, 4);
    for (uint64_t round = 0; round < rounds; round++) {
        const size_t path = round % 2;
        stall(path, true);
        write_and_read(static_cast<unsigned char>(round));
        stall(path, false);
        for (size_t each = 0; each < 2; each++) {
            wait_for_path(each, "ready");
            wait_for_transport(each);
        }
    }
    load.stop();
    expect_sums();
    const Statistics statistics = client_->memory->statistics();
    EXPECT_GE(statistics.failovers, 1U);
    // The good link may look silent just before the other one falls silent: with a sanitizer, and where it ends because it
    // still repeats by datagrams what the other one has answered.
    EXPECT_LE(statistics.reconnections,
              GetParam().is_mixed() ? rounds : tiffin::test::test_size(0, 1));
    EXPECT_EQ(statistics.outcomes[static_cast<size_t>(Outcome::unknown)], 0U);
    client_->close();
}

// Too short to be given up, again and again, also while the other one is silent: each is asked about over the other, revives
// with what it was sending, and answers late. Nothing waits for ever.
TEST_P(SpreadTest, LinksThatAreSilentForMomentsLoseNothing) {
    open_client();
    Load load(*this);
    std::atomic<bool> stops{false};
    std::thread silencer([&] {
        std::mt19937 random(20);
        while (!stops) {
            const size_t path = random() % 2;
            stall(path, true);
            usleep(1000 + random() % 20'000);
            if (random() % 3 == 0) {
                stall(1 - path, true);
                usleep(random() % 10'000);
            }
            stall(path, false);
            usleep(random() % 5'000);
            stall(1 - path, false);
        }
        stall(0, false);
        stall(1, false);
    });
    const uint64_t rounds = tiffin::test::test_size(25, 5);
    for (uint64_t round = 0; round < rounds; round++) {
        write_and_read(static_cast<unsigned char>(round));
    }
    stops = true;
    silencer.join();
    load.stop();
    expect_sums();
    const Statistics statistics = client_->memory->statistics();
    EXPECT_GE(statistics.failovers, 1U);
    EXPECT_EQ(statistics.outcomes[static_cast<size_t>(Outcome::unknown)], 0U);
    client_->close();
}

TEST_P(SpreadTest, LinksComeAndGo) {
    open_client();
    Load load(*this);
    RemoteMemory& memory = *client_->memory;
    const uint64_t rounds = tiffin::test::test_size(10, 2);
    for (uint64_t round = 0; round < rounds; round++) {
        for (const size_t path : {0, 1}) {
            // Not while the other one looks silent.
            while (memory.remove_link("127.0.0.1", links_[path]->port()).error() == Error::ebusy) {
                usleep(1000);
            }
            write_and_read(static_cast<unsigned char>(round));
            ASSERT_TRUE(memory.add_link("127.0.0.1", links_[path]->port()).ok());
            wait_for_path(path, "ready");
            wait_for_transport(path, true);
            write_and_read(static_cast<unsigned char>(~round));
        }
    }
    load.stop();
    expect_sums();
    // A link that still repeats by datagrams what another one has answered ends: on a slow machine it may be the last one.
    EXPECT_LE(memory.statistics().reconnections, GetParam().is_mixed() ? rounds : 0);
    client_->close();
}

TEST(SeveralLinksTest, AreNotOfSharedMemoryOrUc) {
    test::ClientFixture client;
    RemoteAddress address{"127.0.0.1", 1, TransportChoice::shm};
    address.more_links = {{"127.0.0.1", 2}};
    const auto error = [&] {
        return open_remote_memory(address, client.options, nullptr, client.holder, client.problem)
            .error();
    };
    EXPECT_EQ(error(), Error::einval);
    address.transport = TransportChoice::sdr;
    address.sdr.carrier = SdrCarrier::uc;
    EXPECT_EQ(error(), Error::einval);
    address.transport = TransportChoice::tcp;
    address.more_links[0].transport = TransportChoice::sdr;
    EXPECT_EQ(error(), Error::einval);
    address.sdr.carrier = SdrCarrier::udp;
    address.more_links[0].transport = TransportChoice::rc;
    EXPECT_EQ(error(), Error::einval);
}

}  // namespace
}  // namespace tiffin::rdma_blk
