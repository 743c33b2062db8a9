// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Real sockets on the loopback interface; no test depends on how fast anything is.
#include "rdma_blk/simulation/emulator/udp_emulator.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/simulation/emulator/delay_store.h"

namespace tiffin::rdma_blk::simulation {
namespace {

constexpr int kPatienceMs = 60'000;

sockaddr_in6 loopback() {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    EXPECT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &address.sin6_addr), 1);
    return address;
}

// One of the two who talk.
class End {
  public:
    End() : socket_(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)), address_(loopback()) {
        const int off = 0;
        (void)setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        socklen_t size = sizeof(address_);
        EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address_), size), 0);
        EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &size), 0);
    }
    ~End() { close(socket_); }
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    const sockaddr_in6& address() const { return address_; }
    void send(const sockaddr_in6& to, uint32_t number, size_t size_bytes = 100) {
        std::vector<uint32_t> words(size_bytes / 4, number);
        EXPECT_EQ(sendto(socket_, words.data(), size_bytes, 0,
                         reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
                  static_cast<ssize_t>(size_bytes));
    }
    // The number of the next datagram; waits for it.
    uint32_t receive() {
        pollfd wait{socket_, POLLIN, 0};
        if (poll(&wait, 1, kPatienceMs) != 1) {
            ADD_FAILURE() << "nothing came";
            return ~uint32_t{0};
        }
        std::vector<uint32_t> words(20000);
        const ssize_t size = recv(socket_, words.data(), words.size() * 4, 0);
        EXPECT_TRUE(size > 0 &&
                    std::count(words.begin(), words.begin() + size / 4, words[0]) == size / 4);
        return words[0];
    }
    bool is_empty() {
        pollfd wait{socket_, POLLIN, 0};
        return poll(&wait, 1, 0) == 0;
    }

  private:
    int socket_;
    sockaddr_in6 address_;
};

EmulatorOptions plain() {
    EmulatorOptions options;
    options.near_address = loopback();
    options.far_address = loopback();
    options.forward.bits_per_second = kUnlimitedBitsPerSecond;
    options.backward.bits_per_second = kUnlimitedBitsPerSecond;
    return options;
}

// Two ends on one path.
struct Pair {
    explicit Pair(const EmulatorOptions& options) {
        auto made = UdpEmulator::create(options);
        EXPECT_TRUE(made.ok());
        emulator = made.release_value();
        emulator->set_near_peer(0, near.address());
        emulator->set_far_peer(0, far.address());
    }
    void send(uint32_t number, size_t size_bytes = 100) {
        near.send(emulator->near_address(0), number, size_bytes);
    }
    // Until the emulator has counted what it should have.
    EmulatorCounters wait_for(const std::function<bool(const EmulatorCounters&)>& is_reached) {
        EmulatorCounters counters = emulator->counters();
        for (int waited = 0; waited < kPatienceMs && !is_reached(counters); waited++) {
            usleep(1000);
            counters = emulator->counters();
        }
        EXPECT_TRUE(is_reached(counters));
        return counters;
    }

    End near;
    End far;
    std::unique_ptr<UdpEmulator> emulator;
};

TEST(UdpEmulator, PassesOnInOrderInBothDirections) {
    Pair pair(plain());
    // So few at a time that they fit into the sockets' buffers.
    for (uint32_t first = 0; first < 100; first += 10) {
        for (uint32_t number = first; number < first + 10; number++) {
            pair.send(number, 4 * (1 + size_t{number} * 7 % 300));
            pair.far.send(pair.emulator->far_address(0), 1000 + number);
        }
        for (uint32_t number = first; number < first + 10; number++) {
            EXPECT_EQ(pair.far.receive(), number);
            EXPECT_EQ(pair.near.receive(), 1000 + number);
        }
    }
    const EmulatorCounters counters =
        pair.wait_for([](const EmulatorCounters& seen) { return seen.forwarded == 200; });
    EXPECT_EQ(counters.received, 200U);
}

TEST(UdpEmulator, LosesWhatItsLinkLoses) {
    constexpr uint32_t kSent = 300;
    EmulatorOptions options = plain();
    options.forward.loss = burst_loss(0.2, 3);
    options.seed = 5;
    std::vector<uint32_t> expected;
    Link link(options.forward, options.seed);
    Pair pair(options);
    size_t arrived = 0;
    for (uint32_t number = 0; number < kSent; number++) {
        link.send(0, 1, 128, [&](const Arrival&) { expected.push_back(number); });
        pair.send(number);
        for (; number % 20 == 19 && arrived < expected.size(); arrived++) {
            ASSERT_EQ(pair.far.receive(), expected[arrived]);
        }
    }
    ASSERT_EQ(arrived, expected.size());
    ASSERT_LT(expected.size(), kSent - 20U);
    const EmulatorCounters counters = pair.wait_for([&](const EmulatorCounters& seen) {
        return seen.received == kSent && seen.forwarded == expected.size();
    });
    EXPECT_EQ(counters.lost, kSent - expected.size());
}

TEST(UdpEmulator, DoublesAndReorders) {
    constexpr uint32_t kSent = 50;
    EmulatorOptions options = plain();
    options.forward.duplicate_rate = 1;
    options.forward.hold_rate = 0.5;
    options.forward.held_ns = 3'000'000;
    Pair pair(options);
    for (uint32_t number = 0; number < kSent; number++) {
        pair.send(number);
    }
    std::vector<uint32_t> times(kSent);
    for (uint32_t arrival = 0; arrival < 2 * kSent; arrival++) {
        const uint32_t number = pair.far.receive();
        ASSERT_LT(number, kSent);
        times[number]++;
    }
    EXPECT_EQ(std::count(times.begin(), times.end(), 2U), kSent);
    EXPECT_GT(pair.emulator->counters().held, 0U);
}

TEST(UdpEmulator, IsNeverTooEarly) {
    constexpr uint64_t kDelayNs = 20'000'000;
    EmulatorOptions options = plain();
    options.forward.delay_ns = kDelayNs;
    options.backward.delay_ns = kDelayNs;
    Pair pair(options);
    for (uint32_t number = 0; number < 3; number++) {
        const uint64_t before_ns = host::monotonic_ns();
        pair.send(number);
        EXPECT_EQ(pair.far.receive(), number);
        pair.far.send(pair.emulator->far_address(0), number);
        EXPECT_EQ(pair.near.receive(), number);
        EXPECT_GE(host::monotonic_ns() - before_ns, 2 * kDelayNs);
    }
}

TEST(UdpEmulator, IsBounded) {
    EmulatorOptions options = plain();
    options.forward.delay_ns = 3'600'000'000'000;
    options.backward = options.forward;
    options.most_datagrams = 4;
    options.backward.queue_bytes = 1;
    Pair pair(options);
    for (uint32_t number = 0; number < 10; number++) {
        pair.send(number);
        pair.far.send(pair.emulator->far_address(0), number);
    }
    pair.wait_for([](const EmulatorCounters& seen) {
        return seen.overflowed == 6 && seen.tail_dropped == 10;
    });
    EXPECT_EQ(pair.emulator->counters().forwarded, 0U);
}

TEST(UdpEmulator, LearnsWhereItsEndsAre) {
    auto emulator = UdpEmulator::create(plain()).release_value();
    End near;
    End far;
    near.send(emulator->near_address(0), 1);
    while (emulator->counters().undirected == 0) {
        usleep(1000);  // the test's own timeout ends a hang
    }
    far.send(emulator->far_address(0), 2);
    EXPECT_EQ(near.receive(), 2U);
    near.send(emulator->near_address(0), 3);
    EXPECT_EQ(far.receive(), 3U);
}

TEST(UdpEmulator, IsABlackHoleForLongDatagrams) {
    Pair pair(plain());
    pair.emulator->set_longest_datagram(1000);
    pair.send(1, 1004);
    pair.send(2, 1000);
    EXPECT_EQ(pair.far.receive(), 2U);
    EXPECT_EQ(pair.emulator->counters().too_long, 1U);
    pair.emulator->set_longest_datagram(1004);
    pair.send(3, 1004);
    EXPECT_EQ(pair.far.receive(), 3U);
}

TEST(UdpEmulator, PathsShareOneLink) {
    EmulatorOptions options = plain();
    options.path_count = 3;
    auto emulator = UdpEmulator::create(options).release_value();
    End near[3];
    End far[3];
    for (uint16_t path = 0; path < 3; path++) {
        emulator->set_far_peer(path, far[path].address());
        near[path].send(emulator->near_address(path), path);
    }
    for (uint16_t path = 0; path < 3; path++) {
        EXPECT_EQ(far[path].receive(), path);
        EXPECT_TRUE(far[path].is_empty());
    }
    options.path_count = 0;
    EXPECT_EQ(UdpEmulator::create(options).error(), Error::einval);
    options.path_count = 65;
    EXPECT_EQ(UdpEmulator::create(options).error(), Error::einval);
}

TEST(DelayStore, GivesBackWhatNobodyHolds) {
    DelayStore store(3, 2);
    const DelayStore::Block first = store.take_block();
    const DelayStore::Block second = store.take_block();
    EXPECT_NE(first, second);
    EXPECT_EQ(store.take_block(), DelayStore::kNoBlock);
    EXPECT_TRUE(store.put({.due_ns = 20, .way = 0, .block = first}));
    EXPECT_TRUE(store.put({.due_ns = 10, .way = 1, .block = first}));
    EXPECT_TRUE(store.put({.due_ns = 10, .way = 2, .block = second}));
    EXPECT_FALSE(store.put({.due_ns = 5, .way = 3, .block = second}));
    store.release(first);
    store.release(second);
    EXPECT_EQ(store.take_block(), DelayStore::kNoBlock);
    for (const uint32_t way : {1U, 2U, 0U}) {
        ASSERT_FALSE(store.empty());
        const DelayStore::Datagram datagram = store.take();
        EXPECT_EQ(datagram.way, way);
        store.release(datagram.block);
    }
    EXPECT_EQ(store.next_ns(), ~uint64_t{0});
    EXPECT_NE(store.take_block(), DelayStore::kNoBlock);
    EXPECT_NE(store.take_block(), DelayStore::kNoBlock);
    EXPECT_EQ(store.take_block(), DelayStore::kNoBlock);
}

}  // namespace
}  // namespace tiffin::rdma_blk::simulation
