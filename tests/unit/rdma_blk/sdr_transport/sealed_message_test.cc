// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Messages of a path that encrypts, over sockets: what somebody between the two ends sees, and what becomes of keys that are
// not the same.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "fs/vfs/host.h"
#include "rdma_blk/transport/sdr/message_path.h"

namespace tiffin::rdma_blk::test {
namespace {

constexpr uint64_t kPatienceNs = 60'000'000'000;
constexpr size_t kSecretBytes = 32;

sockaddr_in6 loopback(uint16_t port = 0) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    address.sin6_port = htons(port);
    return address;
}

TrafficKeys keys_of(unsigned char number, bool encrypts) {
    TrafficKeys keys;
    keys.tag_to_server.bytes[0] = 1;
    keys.tag_to_client.bytes[0] = 2;
    keys.path_to_server.bytes[0] = number;
    keys.path_to_client.bytes[0] = static_cast<unsigned char>(number + 1);
    keys.encrypts = encrypts;
    return keys;
}

class SealedMessageTest : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_TRUE(initialize_cryptography().ok());
        std::mt19937 random(7);
        std::generate(std::begin(secret_), std::end(secret_),
                      [&] { return static_cast<unsigned char>(random()); });
        relay_ = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        sockaddr_in6 address = loopback();
        socklen_t size = sizeof(address);
        ASSERT_EQ(bind(relay_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
        ASSERT_EQ(getsockname(relay_, reinterpret_cast<sockaddr*>(&address), &size), 0);
        relay_port_ = ntohs(address.sin6_port);
    }
    void TearDown() override { close(relay_); }

    // Two ends, and between them this test.
    void start(const TrafficKeys& client, const TrafficKeys& server) {
        client_ = make(client, true);
        server_ = make(server, false);
        join(*client_, *server_);
        join(*server_, *client_);
    }
    static std::unique_ptr<MessagePath> make(const TrafficKeys& keys, bool is_client) {
        MessagePathOptions options;
        options.local = loopback();
        options.packet_bytes = 4096;
        options.message_count = 8;
        options.automatic_scheme = false;
        options.scheme = {sdr::SchemeKind::selective_repeat_nack, 0, 0};
        options.set_keys(keys, is_client);
        return MUST(MessagePath::create(options));
    }
    void join(MessagePath& path, const MessagePath& other) const {
        const wire::DatagramPathEnd end = other.end();
        ASSERT_TRUE(path.start(MessagePath::common(end, path.end()), loopback(relay_port_)).ok());
    }

    // Hands on what has come, and looks for the secret in it.
    void relay() {
        unsigned char bytes[65536];
        sockaddr_in6 from{};
        socklen_t size = sizeof(from);
        ssize_t count = 0;
        while ((count = recvfrom(relay_, bytes, sizeof(bytes), 0,
                                 reinterpret_cast<sockaddr*>(&from), &size)) > 0) {
            const auto found =
                std::search(bytes, bytes + count, std::begin(secret_), std::end(secret_));
            times_seen_ += found != bytes + count ? 1 : 0;
            const bool is_from_client = from.sin6_port == htons(client_->end().port);
            const sockaddr_in6 to = loopback((is_from_client ? server_ : client_)->end().port);
            (void)sendto(relay_, bytes, static_cast<size_t>(count), 0,
                         reinterpret_cast<const sockaddr*>(&to), sizeof(to));
        }
    }
    template <typename Condition>
    bool comes_true(Condition condition) {
        const uint64_t end_ns = host::monotonic_ns() + kPatienceNs;
        while (host::monotonic_ns() < end_ns) {
            if (condition()) {
                return true;
            }
            relay();
            const uint64_t now_ns = host::monotonic_ns();
            for (MessagePath* path : {client_.get(), server_.get()}) {
                (void)path->take(now_ns);
                path->transmit(now_ns);
            }
            pollfd ready{relay_, POLLIN, 0};
            (void)poll(&ready, 1, 1);
        }
        return false;
    }
    std::vector<unsigned char> content(size_t size) const {
        std::vector<unsigned char> bytes(size);
        for (size_t i = 0; i < size; i++) {
            bytes[i] = secret_[i % kSecretBytes];
        }
        return bytes;
    }
    void send(MessagePath& path, size_t size) {
        const auto bytes = content(size);
        std::memcpy(path.begin_message(), bytes.data(), size);
        ASSERT_TRUE(path.send_message(host::monotonic_ns(), size, 3).ok());
    }
    void expect_arrival(MessagePath& path, size_t size) {
        MessagePath::Message message;
        ASSERT_TRUE(comes_true([&] { return path.next_message(message); })) << size;
        EXPECT_EQ(std::vector<unsigned char>(message.bytes.begin(), message.bytes.end()),
                  content(size));
        EXPECT_EQ(message.use, 3U);
        path.release(host::monotonic_ns(), message);
    }
    // In both directions, messages of some packets and of one, and one that is gathered.
    void exchange() {
        for (const size_t size : {size_t{1}, size_t{100}, size_t{4096}, size_t{100'000},
                                  size_t{wire::kDatagramMessageBytes}}) {
            ASSERT_NO_FATAL_FAILURE(send(*client_, size));
            ASSERT_NO_FATAL_FAILURE(expect_arrival(*server_, size));
            ASSERT_NO_FATAL_FAILURE(send(*server_, size));
            ASSERT_NO_FATAL_FAILURE(expect_arrival(*client_, size));
        }
        constexpr size_t kHeadBytes = 64;
        constexpr size_t kBytes = 200'000;
        auto bytes = content(kHeadBytes + kBytes);
        std::memcpy(client_->begin_message(), bytes.data(), kHeadBytes);
        const vfs::IoVector pieces[] = {{&bytes[kHeadBytes], 1000},
                                        {&bytes[kHeadBytes + 1000], kBytes - 1000}};
        ASSERT_TRUE(client_->send_gathered(host::monotonic_ns(), kHeadBytes, pieces, 2, 3).ok());
        ASSERT_NO_FATAL_FAILURE(expect_arrival(*server_, kHeadBytes + kBytes));
        EXPECT_EQ(bytes, content(kHeadBytes + kBytes)) << "what is sent stays as it is";
    }

    unsigned char secret_[kSecretBytes];
    int relay_ = -1;
    uint16_t relay_port_ = 0;
    uint64_t times_seen_ = 0;
    std::unique_ptr<MessagePath> client_;
    std::unique_ptr<MessagePath> server_;
};

TEST_F(SealedMessageTest, NothingOfThemIsSeenOnTheirWay) {
    ASSERT_NO_FATAL_FAILURE(start(keys_of(10, true), keys_of(10, true)));
    exchange();
    EXPECT_EQ(times_seen_, 0U);
}

TEST_F(SealedMessageTest, InClearTheyAreSeen) {
    ASSERT_NO_FATAL_FAILURE(start(keys_of(10, false), keys_of(10, false)));
    exchange();
    EXPECT_GT(times_seen_, 100U);
}

TEST_F(SealedMessageTest, AnotherKeyEndsThePath) {
    ASSERT_NO_FATAL_FAILURE(start(keys_of(10, true), keys_of(20, true)));
    ASSERT_NO_FATAL_FAILURE(send(*client_, 100));
    MessagePath::Message message;
    EXPECT_TRUE(
        comes_true([&] { return server_->has_failed() || server_->next_message(message); }));
    EXPECT_TRUE(server_->has_failed());
    EXPECT_FALSE(server_->next_message(message));
    EXPECT_EQ(server_->statistics().datagrams_refused, 1U);
}

// Its messages would not fit there.
TEST_F(SealedMessageTest, AnEndWithoutRoomForTagsIsRefused) {
    client_ = make(keys_of(10, true), true);
    server_ = make(keys_of(10, false), false);
    wire::DatagramPathEnd agreed = server_->end();
    EXPECT_EQ(client_->start(agreed, loopback(relay_port_)).error(), Error::einval);
    agreed.message_bytes = client_->end().message_bytes;
    EXPECT_TRUE(client_->start(agreed, loopback(relay_port_)).ok());
}

}  // namespace
}  // namespace tiffin::rdma_blk::test
