// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A server in this process, and clients of it whose requests go as datagrams over the loopback, or over queue pairs of
// devices that are made up.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/fake_network.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {

using Bytes = std::vector<unsigned char>;

inline Bytes random_bytes(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    Bytes bytes(count);
    for (auto& byte : bytes) {
        byte = static_cast<unsigned char>(random());
    }
    return bytes;
}

class SdrFixture : public ServerFixture {
  protected:
    void SetUp() override {
        ServerFixture::SetUp();
        configuration_.sdr_port = 0;
    }

    // The client `number`; options may be changed before.
    Result<void> try_open(ClientFixture& client, unsigned char number = 1) {
        std::memcpy(client.options.key, key_.bytes, sizeof(client.options.key));
        client.options.client_uuid[0] = number;
        RemoteAddress address{"127.0.0.1", port(), TransportChoice::sdr};
        address.sdr = sdr_;
        client.memory = TRY(open_remote_memory(address, client.options, &client.recorder,
                                               client.holder, client.problem));
        return {};
    }
    void open_client(ClientFixture& client, unsigned char number = 1) {
        const auto opened = try_open(client, number);
        ASSERT_TRUE(opened.ok()) << client.problem;
        ASSERT_STREQ(client.memory->connection().transport_name, transport_name());
    }
    // Before anything is started.
    void use_queue_pairs() {
        network_ = std::make_unique<FakeNetwork>();
        sdr_.carrier = SdrCarrier::uc;
    }
    const char* transport_name() const { return sdr_.carrier == SdrCarrier::uc ? "sdr-uc" : "sdr"; }
    virtual uint16_t port() { return server_->port(); }

    SdrOptions sdr_;
    std::unique_ptr<FakeNetwork> network_;
};

}  // namespace tiffin::rdma_blk::test
