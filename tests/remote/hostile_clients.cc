// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Clients of a memory server that mean no good, and many that do, beside whoever else uses the volume: strangers, clients
// with the key and requests of any content, messages with bits flipped, and hundreds of sessions at once. The server has
// to go on; what it must not change, others look at.
//
// usage: hostile_clients PORT VOLUME KEY_FILE
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "fs/vfs/host.h"
#include "fuse/host/volume_key.h"
#include "rdma_blk/wire/parse.h"
#include "tests/unit/rdma_blk/server/hostile_requests.h"

namespace tiffin::rdma_blk {
namespace {

constexpr int kStrangers = 500;
constexpr int kRequests = 10'000;
constexpr int kSessions = 256;

[[noreturn]] void stop(const std::string& problem) {
    std::fprintf(stderr, "hostile_clients: %s\n", problem.c_str());
    std::exit(EXIT_FAILURE);
}

class Attack {
  public:
    Attack(uint16_t port, std::string volume, const Secret<kVolumeKeyBytes>& key)
        : port_(port), volume_(std::move(volume)), key_(key) {}

    // Bytes of no meaning instead of a handshake.
    void send_as_strangers() {
        for (int number = 0; number < kStrangers; number++) {
            TestClient client(port_);
            unsigned char bytes[512];
            for (unsigned char& byte : bytes) {
                byte = static_cast<unsigned char>(random_());
            }
            (void)client.send_bytes(bytes, sizeof(bytes));
        }
    }

    void send_random_requests() {
        uint64_t answers = 0;
        int closes = 0;
        auto client = open();
        for (int number = 0; number < kRequests; number++) {
            const wire::Request request =
                random_request(random_, *client, client->opened().data_bytes);
            const bool is_sent =
                client->send(wire::MessageType::request, request, payload_for(random_, request))
                    .ok();
            if (!is_sent || !is_alive(*client, answers)) {
                closes++;
                client = open();
            }
        }
        std::printf("random requests: %d, answered %llu, connections closed %d\n", kRequests,
                    static_cast<unsigned long long>(answers), closes);
        if (answers < 500 || closes < 500) {
            stop("these requests were hardly read");
        }
    }

    void send_mutated_requests() {
        int closes = 0;
        auto client = open();
        for (int number = 0; number < kRequests; number++) {
            const auto kind = static_cast<OperationKind>(1 + random_() % 5);
            const wire::Request request = client->make_request(kind, random_() % 4096 * 8, 8);
            unsigned char bytes[sizeof(wire::MessageHeader) + sizeof(request) + 8] = {};
            const bool has_payload = kind == OperationKind::write;
            size_t size =
                wire::encode(wire::MessageType::request, 0, request, has_payload ? 8 : 0, bytes);
            size += has_payload ? 8 : 0;
            for (uint64_t mutation = 0; mutation <= random_() % 4; mutation++) {
                bytes[random_() % size] ^= static_cast<unsigned char>(1U << (random_() % 8));
            }
            // A wrong size could make the server wait for bytes: the end of the connection tells it.
            (void)client->send_bytes(bytes, size);
            (void)shutdown(client->socket(), SHUT_WR);
            while (client->response().ok()) {
            }
            closes++;
            client = open();
        }
        std::printf("mutated requests: %d, connections closed %d\n", kRequests, closes);
    }

    void open_many_sessions() {
        std::vector<std::unique_ptr<TestClient>> clients;
        for (int number = 0; number < kSessions; number++) {
            clients.push_back(open(2 + static_cast<uint64_t>(number)));
        }
        for (int round = 0; round < 4; round++) {
            for (auto& client : clients) {
                if (client->read(static_cast<uint64_t>(round) * 4096, 512).size() != 512) {
                    stop("a read of one of many sessions failed");
                }
            }
        }
        std::printf("sessions at once: %d\n", kSessions);
    }

  private:
    // To read: somebody else has the lease. Another session of a client that is known takes the place of its last one.
    std::unique_ptr<TestClient> open(uint64_t client_number = 1) {
        auto client = std::make_unique<TestClient>(port_);
        std::memcpy(client->uuid, &client_number, sizeof(client_number));
        if (!client->connected() || !client->handshake(key_, volume_.c_str()).ok() ||
            !client->open(wire::SessionMode::read)) {
            stop("a session could not be opened");
        }
        return client;
    }

    uint16_t port_;
    std::string volume_;
    Secret<kVolumeKeyBytes> key_;
    HostileRandom random_{1};
};

}  // namespace
}  // namespace tiffin::rdma_blk

int main(int count, char** arguments) {
    using namespace tiffin;
    if (count != 4 || !rdma_blk::initialize_cryptography().ok()) {
        rdma_blk::stop("usage: hostile_clients PORT VOLUME KEY_FILE");
    }
    const auto keys = fuse::read_volume_keys(arguments[2], arguments[3], 1);
    if (!keys.ok()) {
        rdma_blk::stop(keys.problem().text);
    }
    rdma_blk::Secret<rdma_blk::kVolumeKeyBytes> key;
    std::memcpy(key.bytes, keys->front().bytes, sizeof(key.bytes));
    rdma_blk::Attack attack(static_cast<uint16_t>(std::atoi(arguments[1])), arguments[2], key);
    attack.send_as_strangers();
    attack.send_random_requests();
    attack.send_mutated_requests();
    attack.open_many_sessions();
    return EXIT_SUCCESS;
}
