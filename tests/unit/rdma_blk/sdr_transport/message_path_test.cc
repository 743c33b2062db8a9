// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What an exchange of two small messages costs, as counts, with the time given.
#include "rdma_blk/transport/sdr/message_path.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>

#include "fs/vfs/host.h"
#include "rdma_blk/sdr/tunables.h"

namespace tiffin::rdma_blk {
namespace {

constexpr uint64_t kExchangeNs = 20'000;
constexpr uint64_t kWarmUp = 200;  // until both know the round trip
constexpr uint64_t kExchanges = 1000;
constexpr int kPatienceMs = 60'000;

class MessagePathTest : public ::testing::TestWithParam<bool> {
  protected:
    void SetUp() override {
        MessagePathOptions options;
        options.local = loopback();
        options.packet_bytes = 8192;
        client_ = MUST(MessagePath::create(options));
        server_ = MUST(MessagePath::create(options));
        start(*client_, server_->end());
        start(*server_, client_->end());
        now_ns_ = host::monotonic_ns();
        // Each hears which messages the other has room for.
        server_->transmit(now_ns_);
        client_->transmit(now_ns_);
        wait_for(*client_);
        wait_for(*server_);
    }
    void wait_for(MessagePath& path) const {
        pollfd ready{path.descriptor(), POLLIN, 0};
        ASSERT_EQ(poll(&ready, 1, kPatienceMs), 1);
        (void)path.take(now_ns_);
    }
    static sockaddr_in6 loopback() {
        sockaddr_in6 address{};
        address.sin6_family = AF_INET6;
        address.sin6_addr = in6addr_loopback;
        if (GetParam()) {
            address.sin6_addr = {};
            constexpr unsigned char kEnd[] = {0xff, 0xff, 127, 0, 0, 1};
            std::memcpy(address.sin6_addr.s6_addr + 10, kEnd, sizeof(kEnd));
        }
        return address;
    }
    static void start(MessagePath& path, const wire::DatagramPathEnd& other) {
        sockaddr_in6 address = loopback();
        address.sin6_port = htons(other.port);
        ASSERT_TRUE(path.start(MessagePath::common(other, path.end()), address).ok());
    }
    // What comes first to `to`, looked at as one who waits for it does.
    void pass(MessagePath& from, MessagePath& to, size_t size) {
        std::memset(from.begin_message(), static_cast<int>(size), size);
        ASSERT_TRUE(from.send_message(now_ns_, size, 0).ok());
        from.transmit(now_ns_);
        MessagePath::Message message;
        while (!to.next_message(message)) {
            ASSERT_NO_FATAL_FAILURE(wait_for(to));
        }
        EXPECT_EQ(message.bytes.size(), size);
        to.release(now_ns_, message);
        to.transmit(now_ns_);  // nothing, mostly: the next message acknowledges this one
    }
    void exchange(uint64_t count) {
        for (uint64_t i = 0; i < count; i++) {
            now_ns_ += kExchangeNs / 2;
            ASSERT_NO_FATAL_FAILURE(pass(*client_, *server_, 104));
            now_ns_ += kExchangeNs / 2;
            ASSERT_NO_FATAL_FAILURE(pass(*server_, *client_, 4160));
        }
    }

    std::unique_ptr<MessagePath> client_;
    std::unique_ptr<MessagePath> server_;
    uint64_t now_ns_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Addresses, MessagePathTest, ::testing::Bool(),
                         [](const auto& ip) { return ip.param ? "IPv4" : "IPv6"; });

TEST_P(MessagePathTest, AnExchangeIsTwoDatagrams) {
    exchange(kWarmUp);
    const MessagePathStatistics before[] = {client_->statistics(), server_->statistics()};
    exchange(kExchanges);
    const MessagePathStatistics after[] = {client_->statistics(), server_->statistics()};
    // Besides, feedback, one message in so many with an acknowledgement of its own, and clear-to-send that is renewed.
    constexpr uint64_t kFeedback = kExchanges * kExchangeNs / sdr::kFeedbackDelayNs + 1;
    constexpr uint64_t kSpare = kFeedback + kExchanges / sdr::kMeasuredMessages + kExchanges / 100;
    for (int end = 0; end < 2; end++) {
        const uint64_t datagrams = after[end].datagrams_sent - before[end].datagrams_sent;
        EXPECT_GE(datagrams, kExchanges);
        EXPECT_LE(datagrams, kExchanges + kSpare);
        // One to send and one to receive; what comes besides may be one more.
        EXPECT_LE(after[end].system_calls - before[end].system_calls, 2 * (kExchanges + kSpare));
        EXPECT_EQ(after[end].datagrams_refused, 0U);
        EXPECT_EQ(after[end].chunks_repeated, 0U);
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk
