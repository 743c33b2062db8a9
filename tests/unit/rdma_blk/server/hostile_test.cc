// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Requests that nobody should send, from a client that has the volume's key: the server goes on, refuses and
// counts, and changes nothing but what the client may change.
#include <sys/socket.h>

#include <filesystem>
#include <random>
#include <string>

#include "fs/vfs/host.h"
#include "rdma_blk/wire/parse.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using wire::SessionMode;

constexpr int kRequests = 10'000;

class HostileTest : public ServerFixture {
  protected:
    using Random = std::mt19937_64;

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
    // Whether the connection still stands: everything before has been looked at then.
    static bool is_alive(TestClient& client, uint64_t& answers) {
        wire::Probe probe{};
        probe.id = 77;
        probe.session_id = client.opened().session_id;
        if (!client.send(wire::MessageType::probe, probe).ok()) {
            return false;
        }
        while (true) {
            const auto message = client.receive();
            if (!message.ok()) {
                EXPECT_NE(message.error(), Error::etimedout);
                return false;
            }
            if (message.value().type == wire::MessageType::probe_reply) {
                return true;
            }
            answers++;
        }
    }
    // Mostly the first one, which is right; else another one, or anything.
    static uint64_t pick(Random& random, std::initializer_list<uint64_t> usual) {
        if (random() % 8 != 0) {
            return *usual.begin();
        }
        const size_t choice = random() % (usual.size() + 2);
        if (choice < usual.size()) {
            return usual.begin()[choice];
        }
        return choice == usual.size() ? random() : random() >> (random() % 64);
    }
    wire::Request random_request(Random& random, TestClient& client) const {
        const uint64_t data = kVolumeBytes;
        wire::Request request = client.make_request(OperationKind::read, 0, 8);
        request.session_id = pick(random, {request.session_id, 0});
        request.epoch = pick(random, {request.epoch, request.epoch - 1, 0});
        request.sequence = pick(random, {request.sequence, request.sequence + 1, 1, 0});
        request.after = pick(random, {0, request.sequence - 1, request.sequence});
        request.pending_since = pick(random, {0, 1, request.after});
        request.offset_bytes =
            pick(random, {random() % 64 * 64, 8, 4096, data - 8, data, data + 8, uint64_t{0} - 8,
                          wire::kLeaseOffset, wire::kMaxSpaceBytes - 8});
        request.length_bytes = static_cast<uint32_t>(
            pick(random, {8, 16, 64, wire::kMaxTransferBytes, wire::kMaxTransferBytes + 1, 0}));
        request.operand = random();
        request.incarnation = static_cast<uint32_t>(pick(random, {1, 0, 2}));
        request.slot = static_cast<uint16_t>(pick(random, {random() % 64, 63, 64}));
        request.operation = static_cast<uint8_t>(pick(random, {1 + random() % 4, 5, 0, 6}));
        request.space = static_cast<uint8_t>(pick(random, {random() % 2, 2}));
        request.flags = static_cast<uint8_t>(pick(random, {0, 1, 2, 3}));
        return request;
    }
    // The payload that its fields call for, now and then another one.
    static std::vector<unsigned char> payload_for(Random& random, const wire::Request& request) {
        const auto kind = static_cast<OperationKind>(request.operation);
        size_t size =
            kind == OperationKind::write || kind == OperationKind::flush ? request.length_bytes : 0;
        if (size > 4096 || random() % 64 == 0) {
            size = random() % 64;
        }
        std::vector<unsigned char> payload(size);
        for (unsigned char& byte : payload) {
            byte = static_cast<unsigned char>(random() % 3 == 0 ? random() : 0);
        }
        return payload;
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
        for (int number = 0; number < kRequests; number++) {
            const wire::Request request = random_request(random, *client);
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
    EXPECT_GT(outcomes.answers, 500U);
    EXPECT_GT(outcomes.closes, 500U);
    VolumeCounters& counters = volume().counters();
    EXPECT_GT(counters.refused_read_only.load(), 100U);
    EXPECT_GT(counters.refused_range.load(), 10U);
    EXPECT_GT(counters.malformed.load() + server_->counters().malformed_messages.load(), 500U);
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
    EXPECT_GT(counters.executed.load(), 500U);
    EXPECT_GT(counters.refused_stale.load(), 50U);
    EXPECT_GT(counters.refused_range.load(), 50U);
    EXPECT_GT(outcomes.closes, 500U);
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
    for (int number = 0; number < kRequests; number++) {
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
    EXPECT_EQ(closes, static_cast<uint64_t>(kRequests));
    EXPECT_GT(server_->counters().malformed_messages.load(), static_cast<uint64_t>(kRequests) / 2);
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
