// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Real sockets on the loopback interface, with losses made by the carrier.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/reliable_connection.h"
#include "rdma_blk/sdr/simulated/emulated_path.h"
#include "rdma_blk/sdr/udp/udp_carrier.h"
#include "tests/unit/rdma_blk/sdr/bytes.h"

namespace tiffin::rdma_blk::sdr {
namespace {

struct UdpCase {
    const char* name;
    SchemeChoice scheme;
    uint32_t packet_bytes;
    uint16_t channels;
    uint32_t drop_ppm;
};

// Two ends over the loopback interface.
class UdpEnds {
  public:
    struct End {
        std::unique_ptr<ReliableConnection> connection;
        std::unique_ptr<UdpCarrier> carrier;
    };

    explicit UdpEnds(const UdpCase& options) : case_(options) {}
    End& left() { return left_; }
    End& right() { return right_; }
    Context& context() { return *context_; }

    void open() {
        context_ = context_create().release_value();
        make(left_, 1);
        make(right_, 2);
    }
    // `detour`: of the left end.
    void start(UdpDetour* detour = nullptr) {
        open();
        ASSERT_TRUE(left_.connection->connect(right_.connection->info_get()).ok());
        ASSERT_TRUE(right_.connection->connect(left_.connection->info_get()).ok());
        UdpInfo left_info = left_.carrier->info_get();
        UdpInfo right_info = right_.carrier->info_get();
        if (detour != nullptr) {
            detour->advertise(left_info);
            detour->route(right_info);
        }
        ASSERT_TRUE(left_.carrier->start(right_info).ok());
        ASSERT_TRUE(right_.carrier->start(left_info).ok());
    }

    void make(End& end, unsigned char side) {
        QueuePairAttributes queue_attributes;
        queue_attributes.packet_bytes = case_.packet_bytes;
        queue_attributes.max_message_bytes = 4 << 20;
        queue_attributes.max_messages = 8;
        queue_attributes.channel_count = case_.channels;
        ReliabilityAttributes attributes;
        attributes.scheme = case_.scheme;
        end.connection =
            reliable_connection_create(*context_, queue_attributes, attributes).release_value();
        UdpOptions options;
        options.local.sin6_family = AF_INET6;
        ASSERT_EQ(inet_pton(AF_INET6, "::ffff:127.0.0.1", &options.local.sin6_addr), 1);
        options.packet_bytes = case_.packet_bytes;
        options.channel_count = case_.channels;
        options.drop_ppm = case_.drop_ppm;
        options.send_key[0] = side;
        options.receive_key[0] = static_cast<unsigned char>(3 - side);
        auto carrier = UdpCarrier::create(*end.connection, options);
        ASSERT_TRUE(carrier.ok());
        end.carrier = carrier.release_value();
    }

    // Waits for one completion; the test's own timeout ends a hang.
    static Completion next_completion(End& end) {
        Completion completion;
        for (uint64_t seen = 0;;) {
            end.carrier->mutex().lock();
            const bool found = end.connection->next_completion(completion);
            end.carrier->mutex().unlock();
            if (found) {
                return completion;
            }
            seen = end.carrier->wait(seen, 100'000);
        }
    }

    static void post(End& end, const RegisteredMemory& memory, bool is_send, uint32_t immediate) {
        end.carrier->mutex().lock();
        const uint64_t now_ns = host::monotonic_ns();
        const bool ok = is_send ? end.connection->send_post(now_ns, memory, immediate).ok()
                                : end.connection->recv_post(now_ns, memory).ok();
        end.carrier->mutex().unlock();
        EXPECT_TRUE(ok);
        end.carrier->kick();
    }

    // In both directions, in turns.
    void transfer(uint32_t messages) {
        std::vector<unsigned char> from = some_bytes((3 << 20) + 77, 1);
        std::vector<unsigned char> to(from.size());
        const auto source =
            context_->mr_reg(MutableByteSpan(from.data(), from.size())).release_value();
        const auto target = context_->mr_reg(MutableByteSpan(to.data(), to.size())).release_value();
        for (uint32_t message = 0; message < messages; message++) {
            const uint64_t size = message % 3 == 0 ? 100 : from.size() - message;
            std::fill(to.begin(), to.end(), 0);
            End& sender = message % 2 == 0 ? left_ : right_;
            End& receiver = message % 2 == 0 ? right_ : left_;
            post(receiver, target, false, 0);
            post(sender, source.slice(0, size), true, message);
            const Completion received = next_completion(receiver);
            ASSERT_TRUE(received.ok);
            EXPECT_EQ(received.message_bytes, size);
            EXPECT_EQ(received.user_immediate, message);
            EXPECT_EQ(std::memcmp(from.data(), to.data(), size), 0);
            EXPECT_TRUE(next_completion(sender).ok);
        }
    }

  private:
    UdpCase case_;
    std::unique_ptr<Context> context_;
    End left_;
    End right_;
};

class UdpTransfer : public testing::TestWithParam<UdpCase> {};

TEST_P(UdpTransfer, BytesArrive) {
    UdpEnds ends(GetParam());
    ends.start();
    ends.transfer(12);
    const UdpStatistics statistics = ends.left().carrier->statistics();
    EXPECT_EQ(statistics.datagrams_refused, 0U);
    EXPECT_EQ(statistics.datagrams_failed, 0U);
    EXPECT_GT(statistics.datagrams_sent, 0U);
    if (GetParam().drop_ppm > 0) {
        EXPECT_GT(statistics.datagrams_dropped, 0U);
    }
    if (GetParam().packet_bytes < 10000) {
        // Segmentation offload: many datagrams in one call.
        EXPECT_LT(statistics.send_calls, statistics.datagrams_sent);
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, UdpTransfer,
    testing::Values(
        UdpCase{"Timer", {SchemeKind::selective_repeat, 0, 0}, 1408, 1, 0},
        UdpCase{"TimerLossy", {SchemeKind::selective_repeat, 0, 0}, 1408, 1, 10'000},
        UdpCase{"Nack", {SchemeKind::selective_repeat_nack, 0, 0}, 1408, 1, 0},
        UdpCase{"NackLossy", {SchemeKind::selective_repeat_nack, 0, 0}, 1408, 2, 10'000},
        UdpCase{"NackLarge", {SchemeKind::selective_repeat_nack, 0, 0}, 60000, 1, 100'000},
        UdpCase{"XorLossy", {SchemeKind::erasure_xor, 32, 8}, 1408, 1, 10'000},
        UdpCase{"MdsLossy", {SchemeKind::erasure_mds, 32, 8}, 1408, 2, 50'000},
        UdpCase{"MdsJumbo", {SchemeKind::erasure_mds, 32, 4}, 8896, 1, 10'000}),
    [](const auto& one) { return one.param.name; });

// In more pieces than the kernel takes in one call, in a packet as well as in a run of packets: some are copied together.
TEST(UdpCarrierGather, ManyPiecesArrive) {
    for (const uint32_t packet_bytes : {1408U, 60'000U}) {
        std::vector<unsigned char> from = some_bytes((3 << 20) + 77, 1);
        std::vector<unsigned char> to(from.size());
        std::vector<vfs::IoVector> pieces;
        for (size_t offset = 99; offset < from.size();) {
            const size_t size = std::min(from.size() - offset, pieces.size() % 37);
            pieces.push_back({from.data() + offset, size});
            offset += size;
        }
        const GatherList list(ByteSpan(from.data(), 99), pieces.data(), pieces.size());
        UdpEnds ends(
            {"Gather", {SchemeKind::selective_repeat_nack, 0, 0}, packet_bytes, 1, 10'000});
        ends.start();
        const auto target = ends.context().mr_reg(MutableByteSpan(to.data(), to.size()));
        ASSERT_TRUE(target.ok());
        UdpEnds::post(ends.right(), target.value(), false, 0);
        UdpEnds::post(ends.left(), RegisteredMemory::gathered(list), true, 7);
        const Completion received = UdpEnds::next_completion(ends.right());
        ASSERT_TRUE(received.ok);
        EXPECT_EQ(received.message_bytes, from.size());
        EXPECT_EQ(std::memcmp(from.data(), to.data(), from.size()), 0);
        EXPECT_TRUE(UdpEnds::next_completion(ends.left()).ok);
        EXPECT_EQ(ends.left().carrier->statistics().datagrams_failed, 0U);
        ends.left().carrier.reset();  // whoever looks at the list now is alone
        // From where the packet before ended; what is lost and sent again costs a walk there and back.
        EXPECT_LT(list.steps(), 20 * pieces.size());
    }
}

// Everything goes by way of the emulator, which loses, doubles and reorders it.
TEST(UdpCarrierDetour, BytesArrive) {
    simulation::EmulatorOptions options;
    options.path_count = 2;
    options.forward.bits_per_second = simulation::kUnlimitedBitsPerSecond;
    options.forward.delay_ns = 500'000;
    options.forward.loss = simulation::burst_loss(0.05, 3);
    options.forward.duplicate_rate = 0.01;
    options.forward.hold_rate = 0.02;
    options.forward.held_ns = 1'000'000;
    options.backward = options.forward;
    auto path = EmulatedPath::create(options).release_value();
    uint64_t received = 0;
    {
        UdpEnds ends({"Detour", {SchemeKind::erasure_mds, 32, 8}, 1408, 2, 0});
        ends.start(path.get());
        ends.transfer(6);
        const UdpStatistics left = ends.left().carrier->statistics();
        const UdpStatistics right = ends.right().carrier->statistics();
        received = left.datagrams_received + right.datagrams_received;
    }
    const simulation::EmulatorCounters counters = path->emulator().counters();
    EXPECT_GT(counters.lost, 0U);
    EXPECT_GT(counters.duplicated, 0U);
    EXPECT_GE(counters.forwarded, received);  // nothing went by
    EXPECT_EQ(counters.overflowed + counters.undirected + counters.failed, 0U);
}

// Probes find how wide the path is; when it becomes narrower without a word, they find that, too.
TEST(UdpCarrierPath, MayBecomeABlackHole) {
    simulation::EmulatorOptions options;
    options.forward.bits_per_second = simulation::kUnlimitedBitsPerSecond;
    options.backward = options.forward;
    auto path = EmulatedPath::create(options).release_value();
    std::vector<unsigned char> bytes(1 << 20);  // outlives the carrier, which may still send it
    UdpEnds ends({"Hole", {SchemeKind::selective_repeat_nack, 0, 0}, 8896, 1, 0});
    ends.start(path.get());
    ends.transfer(2);
    UdpCarrier& carrier = *ends.left().carrier;
    // The test's own timeout ends a hang.
    while (carrier.statistics().path_packet_bytes < 8896) {
        usleep(1000);
    }
    EXPECT_FALSE(carrier.statistics().path_is_too_narrow);
    path->emulator().set_longest_datagram(1472);
    const auto memory =
        ends.context().mr_reg(MutableByteSpan(bytes.data(), bytes.size())).release_value();
    UdpEnds::post(ends.right(), memory, false, 0);
    UdpEnds::post(ends.left(), memory, true, 0);
    while (!carrier.statistics().path_is_too_narrow) {
        usleep(1000);
    }
    EXPECT_LE(carrier.statistics().path_packet_bytes, 1472U - 64);
    EXPECT_GE(carrier.statistics().path_packet_bytes, kPathBaseBytes - 64);
}

// Sets the MTU of the loopback interface, and switches it on. False: errno says why not.
bool set_loopback_mtu(int mtu) {
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    const int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_flags = IFF_UP;
    bool is_set = ioctl(descriptor, SIOCSIFFLAGS, &request) == 0;
    request.ifr_mtu = mtu;
    is_set = is_set && ioctl(descriptor, SIOCSIFMTU, &request) == 0;
    close(descriptor);
    return is_set;
}

// In a network of this thread's own, in which the path becomes too narrow for segmentation offload.
TEST(UdpCarrierPath, MayBecomeNarrower) {
    std::thread([] {
        if (unshare(CLONE_NEWNET) != 0 || !set_loopback_mtu(65536)) {
            printf("not run: a narrower path: no network namespace (%s)\n", std::strerror(errno));
            return;
        }
        UdpCase one{"Narrow", {SchemeKind::selective_repeat_nack, 0, 0}, 1408, 1, 0};
        UdpEnds ends(one);
        ends.start();
        ends.transfer(2);
        const UdpStatistics before = ends.right().carrier->statistics();
        EXPECT_TRUE(set_loopback_mtu(1300));
        ends.transfer(2);
        const UdpStatistics after = ends.right().carrier->statistics();
        EXPECT_EQ(after.datagrams_failed, 0U);
        EXPECT_GE(after.send_calls - before.send_calls,
                  after.datagrams_sent - before.datagrams_sent);  // one by one
        // One that begins now is told.
        UdpEnds late(one);
        late.open();
        EXPECT_EQ(late.left().carrier->start(late.right().carrier->info_get()).error(),
                  Error::e2big);
    }).join();
}

// A change that came before the wait does not get lost, whoever waits.
TEST(UdpCarrierWait, ReturnsAtOnceForWhatWasNotSeen) {
    UdpEnds ends({"Wait", {SchemeKind::selective_repeat_nack, 0, 0}, 1408, 1, 0});
    ends.start();
    ends.left().carrier->kick();
    const uint64_t seen = ends.left().carrier->wait(0, 60'000'000);
    EXPECT_GT(seen, 0U);
    // As another thread that has seen nothing: would sleep for a minute if the first had taken the change.
    EXPECT_GE(ends.left().carrier->wait(0, 600'000'000), seen);
    // Nothing happens, so nothing is told.
    uint64_t last = seen;
    for (int round = 0; round < 3; round++) {
        last = ends.left().carrier->wait(last, 120'000);
    }
    EXPECT_LE(last, seen + 1);
}

TEST(UdpCarrierOptions, AreChecked) {
    auto context = context_create().release_value();
    auto connection = reliable_connection_create(*context, {}, {}).release_value();
    UdpOptions options;
    EXPECT_EQ(UdpCarrier::create(*connection, options).error(), Error::einval);
    options.packet_bytes = kMaxUdpPacketBytes + 1;
    EXPECT_EQ(UdpCarrier::create(*connection, options).error(), Error::einval);
    options.packet_bytes = kDefaultPacketBytes - 1;  // not the queue pair's
    EXPECT_EQ(UdpCarrier::create(*connection, options).error(), Error::einval);
    options.packet_bytes = kDefaultPacketBytes;
    options.channel_count = 2;  // neither
    EXPECT_EQ(UdpCarrier::create(*connection, options).error(), Error::einval);
    options.channel_count = kMaxChannels + 1;
    EXPECT_EQ(UdpCarrier::create(*connection, options).error(), Error::einval);
    sockaddr_in6 loopback{};
    loopback.sin6_family = AF_INET6;
    loopback.sin6_addr = in6addr_loopback;
    loopback.sin6_port = htons(9);
    auto packet_bytes = udp_path_packet_bytes(loopback);
    if (packet_bytes.ok()) {
        EXPECT_GE(packet_bytes.value(), 1280U - 112);
    } else {
        printf("not run: the path's packet size: no IPv6 on this machine\n");
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk::sdr
