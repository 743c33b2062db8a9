// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A path whose peer says nothing any more, with the time given: it is served when it has asked to be, no more often,
// and gives up.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/sdr/message_path.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

class BlockedPathTest : public ::testing::Test {
  protected:
    void SetUp() override {
        MessagePathOptions options;
        options.local.sin6_family = AF_INET6;
        options.local.sin6_addr = in6addr_loopback;
        options.packet_bytes = 1408;
        path_ = MUST(MessagePath::create(options));
        peer_ = MUST(MessagePath::create(options));
        start(*path_, peer_->end());
        start(*peer_, path_->end());
        // The peer posts its receives, tells of them, and is never heard of again.
        now_ns_ = host::monotonic_ns();
        peer_->transmit(now_ns_);
    }
    static void start(MessagePath& path, const wire::DatagramPathEnd& other) {
        sockaddr_in6 address{};
        address.sin6_family = AF_INET6;
        address.sin6_addr = in6addr_loopback;
        address.sin6_port = htons(other.port);
        ASSERT_TRUE(path.start(MessagePath::common(other, path.end()), address).ok());
    }
    void serve() {
        while (path_->take(now_ns_)) {
        }
        path_->transmit(now_ns_);
    }
    // More than the first window.
    void send_large() {
        std::memset(path_->begin_message(), 1, size_t{1} << 20);
        ASSERT_TRUE(path_->send_message(now_ns_, size_t{1} << 20, 1).ok());
        serve();
    }

    std::unique_ptr<MessagePath> path_;
    std::unique_ptr<MessagePath> peer_;
    uint64_t now_ns_ = 0;
};

TEST_F(BlockedPathTest, ItIsDueAtTheTimeThatItNamed) {
    serve();
    send_large();
    const uint64_t due_ns = path_->next_time_ns(now_ns_);
    ASSERT_GT(due_ns, now_ns_);
    ASSERT_NE(due_ns, sdr::kNoTimer);
    // A thread that slept until then, and a bit longer, asks again to see whose turn it is.
    EXPECT_LE(path_->next_time_ns(due_ns), due_ns);
    EXPECT_LE(path_->next_time_ns(due_ns + 1'000'000), due_ns + 1'000'000);
}

// As the server's threads drive it: they sleep until the earliest path is due, and serve those that then are.
TEST_F(BlockedPathTest, ItSendsAgainAndGivesUpWithFewWakeUps) {
    serve();
    send_large();
    const uint64_t sent = path_->statistics().datagrams_sent;
    const uint64_t end_ns = now_ns_ + 60 * kSecondNs;
    uint64_t wake_ups = 0;
    while (!path_->has_failed() && now_ns_ < end_ns) {
        const uint64_t due_ns = path_->next_time_ns(now_ns_);
        ASSERT_NE(due_ns, sdr::kNoTimer);
        now_ns_ = std::max(now_ns_, due_ns);
        wake_ups++;
        if (path_->next_time_ns(now_ns_) <= now_ns_) {
            serve();
        }
    }
    EXPECT_TRUE(path_->has_failed());
    EXPECT_GT(path_->statistics().datagrams_sent, sent);
    // It has not been woken for each millisecond of the 10 s and more until it gave up.
    EXPECT_LT(wake_ups, 500U);
    RecordProperty("wake_ups", static_cast<int>(wake_ups));
}

TEST_F(BlockedPathTest, MemoryIsGivenBackWhenNothingIsOnItsWay) {
    constexpr size_t kBytes = 4096;
    unsigned char* const page = path_->begin_message();
    const auto is_resident = [&] {
        unsigned char state = 0;
        EXPECT_EQ(mincore(page, kBytes, &state), 0);
        return (state & 1) != 0;
    };
    std::memset(page, 1, kBytes);
    serve();
    ASSERT_TRUE(path_->send_message(now_ns_, kBytes, 1).ok());
    serve();
    path_->give_memory_back();
    EXPECT_TRUE(is_resident());
    EXPECT_EQ(page[0], 1);
    const size_t free_before = path_->free_messages();
    for (int turn = 0; turn < 1000 && path_->free_messages() == free_before; turn++) {
        now_ns_ += 1'000'000;
        while (peer_->take(now_ns_)) {
        }
        peer_->transmit(now_ns_);
        serve();
    }
    ASSERT_GT(path_->free_messages(), free_before);
    path_->give_memory_back();
    EXPECT_FALSE(is_resident());
}

}  // namespace
}  // namespace tiffin::rdma_blk
