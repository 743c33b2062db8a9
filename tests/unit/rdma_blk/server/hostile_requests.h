// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Requests that nobody should send: any of their fields may be wrong.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "tests/unit/rdma_blk/server/test_client.h"

namespace tiffin::rdma_blk {

using HostileRandom = std::mt19937_64;

// Of the session of `client`, and mostly right, on a volume of `data_bytes`.
wire::Request random_request(HostileRandom& random, TestClient& client, uint64_t data_bytes);

// The payload that its fields call for, now and then another one.
std::vector<unsigned char> payload_for(HostileRandom& random, const wire::Request& request);

// Whether the connection still stands: everything before has been looked at then. Counts the answers that came before.
bool is_alive(TestClient& client, uint64_t& answers);

}  // namespace tiffin::rdma_blk
