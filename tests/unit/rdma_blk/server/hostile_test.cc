// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Requests that nobody should send, from a client that has the volume's key: the server goes on, refuses and
// counts, and changes nothing but what the client may change.
#include <sys/socket.h>

#include <filesystem>
#include <random>
#include <string>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/parse.h"
#include "tests/support/test_size.h"
#include "tests/unit/rdma_blk/server/hostile_requests.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using wire::SessionMode;

// What is counted below is a part of them.
uint64_t request_count() { return test::test_size(10'000, 10'000, 2'000); }

class HostileTest : public ServerFixture {
  protected:
    using Random = HostileRandom;

    // Each opening for writing puts an epoch on the disk; thousands of them take as long as the disk likes, and what it
    // does is not tested here.
    void SetUp() override {
        ServerFixture::SetUp();
        char folder[] = "/dev/shm/tiffind-test-XXXXXX";
        if (mkdtemp(folder) != nullptr) {
            memory_folder_ = folder;
            configuration_.state_directory = memory_folder_ + "/state";
        }
    }
    void TearDown() override {
        ServerFixture::TearDown();
        if (!memory_folder_.empty()) {
            std::filesystem::remove_all(memory_folder_);
        }
    }

    // Connects, and goes on with the session or opens another one.
    std::unique_ptr<TestClient> reconnect(SessionMode mode) {
        auto client = connect(5);
        EXPECT_TRUE(client->open(mode)) << int{client->refused().reason};
        return client;
    }
    void start_with_bystander() {
        configuration_.lease_timeout_s = 3600;
        configuration_.probe_interval_ms = 60000;  // the bystander says nothing for a while
        start();
        bystander_client_ = open(9, SessionMode::read);
        host::random_bytes(memory(), kVolumeBytes);
        const uint64_t offset = bystander_client_->opened().session_record_offset;
        bystander_record_ =
            reinterpret_cast<const wire::SessionRecord*>(volume().memory().control + offset);
    }
    // What only the server may change: the fixed part of the header, and a record of another session.
    uint32_t control_checksum() {
        const unsigned char* control = volume().memory().control;
        const uint32_t checksum = host::crc32c(0, control, 128);
        return host::crc32c(checksum, bystander_record_, sizeof(*bystander_record_));
    }

    struct Outcomes {
        uint64_t answers = 0;
        uint64_t closes = 0;
        std::unique_ptr<TestClient> client;  // the last one, which is connected
    };
    // A client that the server closes comes again.
    Outcomes send_random_requests(Random& random, SessionMode mode) {
        Outcomes outcomes;
        std::unique_ptr<TestClient>& client = outcomes.client;
        client = reconnect(mode);
        for (uint64_t number = 0; number < request_count(); number++) {
            const wire::Request request = random_request(random, *client, kVolumeBytes);
            const bool sent =
                client->send(wire::MessageType::request, request, payload_for(random, request))
                    .ok();
            if (!sent || !is_alive(*client, outcomes.answers)) {
                outcomes.closes++;
                client = reconnect(mode);
            }
        }
        return outcomes;
    }

    std::string memory_folder_;
    std::unique_ptr<TestClient> bystander_client_;
    const wire::SessionRecord* bystander_record_ = nullptr;
};

TEST_F(HostileTest, RandomRequestsOfAReaderChangeNothing) {
    start_with_bystander();
    const uint32_t data_before = host::crc32c(0, memory(), kVolumeBytes);
    const uint32_t control_before = control_checksum();
    Random random(1);
    const Outcomes outcomes = send_random_requests(random, SessionMode::read);
    EXPECT_GT(outcomes.answers, request_count() / 20);
    EXPECT_GT(outcomes.closes, request_count() / 20);
    VolumeCounters& counters = volume().counters();
    EXPECT_GT(counters.refused_read_only.load(), request_count() / 100);
    EXPECT_GT(counters.refused_range.load(), request_count() / 1000);
    EXPECT_GT(counters.malformed.load() + server_->counters().malformed_messages.load(),
              request_count() / 20);
    EXPECT_EQ(host::crc32c(0, memory(), kVolumeBytes), data_before);
    EXPECT_EQ(control_checksum(), control_before);
    EXPECT_EQ(bystander_client_->read(0, 8).size(), 8U);
}

TEST_F(HostileTest, RandomRequestsOfAWriterStayWithinItsRights) {
    start_with_bystander();
    const uint32_t control_before = control_checksum();
    Random random(2);
    const Outcomes outcomes = send_random_requests(random, SessionMode::write);
    VolumeCounters& counters = volume().counters();
    EXPECT_GT(counters.executed.load(), request_count() / 20);
    EXPECT_GT(counters.refused_stale.load(), request_count() / 200);
    EXPECT_GT(counters.refused_range.load(), request_count() / 200);
    EXPECT_GT(outcomes.closes, request_count() / 20);
    // All but the epoch, which rose with each opening, and the bystander's record.
    EXPECT_EQ(control_checksum(), control_before);
    EXPECT_EQ(bystander_client_->read(0, 8).size(), 8U);
}

TEST_F(HostileTest, MutatedMessagesEndTheirConnectionOnly) {
    start_with_bystander();
    const uint32_t data_before = host::crc32c(0, memory(), kVolumeBytes);
    Random random(3);
    uint64_t closes = 0;
    auto client = reconnect(SessionMode::write);
    for (uint64_t number = 0; number < request_count(); number++) {
        wire::Request request = client->make_request(OperationKind::write, 0, 64);
        request.flags = wire::request_flag::has_checksum;
        unsigned char payload[64];
        std::memcpy(payload, memory(), sizeof(payload));  // what is there already
        request.payload_checksum = host::crc32c(0, payload, sizeof(payload));
        unsigned char bytes[sizeof(wire::MessageHeader) + sizeof(request) + sizeof(payload)];
        const size_t head =
            wire::encode(wire::MessageType::request, 0, request, sizeof(payload), bytes);
        std::memcpy(bytes + head, payload, sizeof(payload));
        const uint64_t mutations = 1 + random() % 4;
        for (uint64_t mutation = 0; mutation < mutations; mutation++) {
            bytes[random() % sizeof(bytes)] ^= static_cast<unsigned char>(1U << (random() % 8));
        }
        // A wrong size could make the server wait for bytes: the end of the connection tells it.
        (void)client->send_bytes(bytes, sizeof(bytes));
        (void)shutdown(client->socket(), SHUT_WR);
        while (client->response().ok()) {
        }
        closes++;
        auto next = connect(5);
        ASSERT_TRUE(next->resume(*client)) << int{next->refused().reason};
        client = std::move(next);
    }
    EXPECT_EQ(closes, request_count());
    EXPECT_GT(server_->counters().malformed_messages.load(), request_count() / 2);
    EXPECT_EQ(host::crc32c(0, memory(), kVolumeBytes), data_before);
    EXPECT_EQ(bystander_client_->read(0, 8).size(), 8U);
}

TEST_F(HostileTest, RandomControlMessagesEndTheirConnectionOnly) {
    start_with_bystander();
    Random random(4);
    for (int number = 0; number < 1000; number++) {
        auto client = number % 2 == 0 ? connect(5) : reconnect(SessionMode::read);
        unsigned char bytes[256];
        for (unsigned char& byte : bytes) {
            byte = static_cast<unsigned char>(random());
        }
        constexpr wire::MessageType kTypes[] = {
            wire::MessageType::lease_request, wire::MessageType::session_close,
            wire::MessageType::session_open, wire::MessageType::path_join,
            wire::MessageType::probe};
        const auto send_random = [&](auto fixed) {
            std::memcpy(static_cast<void*>(&fixed), bytes, sizeof(fixed));
            return fixed;
        };
        switch (kTypes[random() % 5]) {
            case wire::MessageType::lease_request:
                (void)client->send(wire::MessageType::lease_request,
                                   send_random(wire::LeaseRequest{}));
                break;
            case wire::MessageType::session_close:
                (void)client->send(wire::MessageType::session_close,
                                   send_random(wire::SessionClose{}));
                break;
            case wire::MessageType::session_open:
                (void)client->send(wire::MessageType::session_open,
                                   send_random(wire::SessionOpen{}));
                break;
            case wire::MessageType::path_join:
                (void)client->send(wire::MessageType::path_join, send_random(wire::PathJoin{}));
                break;
            default:
                (void)client->send(wire::MessageType::probe, send_random(wire::Probe{}));
        }
        (void)shutdown(client->socket(), SHUT_WR);
        while (client->receive().ok()) {
        }
    }
    EXPECT_EQ(bystander_client_->read(0, 8).size(), 8U);
}

}  // namespace
}  // namespace tiffin::rdma_blk
