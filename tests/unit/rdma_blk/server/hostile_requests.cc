// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "tests/unit/rdma_blk/server/hostile_requests.h"

#include <initializer_list>

#include "rdma_blk/wire/control_area.h"
#include "rdma_blk/wire/parse.h"

namespace tiffin::rdma_blk {

bool is_alive(TestClient& client, uint64_t& answers) {
    wire::Probe probe{};
    probe.id = 77;
    probe.session_id = client.opened().session_id;
    if (!client.send(wire::MessageType::probe, probe).ok()) {
        return false;
    }
    while (true) {
        const auto message = client.receive();
        if (!message.ok()) {
            return false;
        }
        if (message.value().type == wire::MessageType::probe_reply) {
            return true;
        }
        answers++;
    }
}

// Mostly the first one, which is right; else another one, or anything.
static uint64_t pick(HostileRandom& random, std::initializer_list<uint64_t> usual) {
    if (random() % 8 != 0) {
        return *usual.begin();
    }
    const size_t choice = random() % (usual.size() + 2);
    if (choice < usual.size()) {
        return usual.begin()[choice];
    }
    return choice == usual.size() ? random() : random() >> (random() % 64);
}

wire::Request random_request(HostileRandom& random, TestClient& client, uint64_t data_bytes) {
    const uint64_t data = data_bytes;
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

std::vector<unsigned char> payload_for(HostileRandom& random, const wire::Request& request) {
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

}  // namespace tiffin::rdma_blk
