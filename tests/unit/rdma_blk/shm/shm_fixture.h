// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A memory server in this process, and clients of it that have its memory mapped.
#pragma once

#include <cstring>
#include <memory>
#include <string>

#include "rdma_blk/transport/open.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"
#include "tests/unit/rdma_blk/transport/asynchronous.h"
#include "tests/unit/rdma_blk/transport/client_fixture.h"

namespace tiffin::rdma_blk::test {

class ShmFixture : public ServerFixture {
  protected:
    void SetUp() override {
        ServerFixture::SetUp();
        configuration_.probe_interval_ms = 100;
        configuration_.lease_timeout_s = 2;
        prepare(client_, 1);
    }
    void TearDown() override {
        client_.close();
        ServerFixture::TearDown();
    }

    static void prepare(ClientFixture& client, unsigned char number) {
        client.options.client_uuid[0] = number;
        client.options.reconnect_timeout_ms = 5000;
    }
    RemoteAddress address(TransportChoice transport) const {
        RemoteAddress address{"127.0.0.1", server_->port(), transport};
        address.runtime_directory = configuration_.runtime_directory;
        return address;
    }
    Result<void> try_open(ClientFixture& client, OpenOptions::Mode mode,
                          TransportChoice transport = TransportChoice::shm) {
        client.options.mode = mode;
        std::memcpy(client.options.key, key_.bytes, sizeof(key_.bytes));
        client.memory = TRY(open_remote_memory(address(transport), client.options, &client.recorder,
                                               client.holder, client.problem));
        client.is_closed = false;
        return {};
    }
    void open(ClientFixture& client, OpenOptions::Mode mode = OpenOptions::Mode::write,
              TransportChoice transport = TransportChoice::shm) {
        const auto opened = try_open(client, mode, transport);
        ASSERT_TRUE(opened.ok()) << client.problem;
    }
    // Until it is, a client goes on with what it has mapped, which is all that there was when the server ended.
    void restart_as_seen_by(ClientFixture& client) {
        const uint64_t before = client.memory->statistics().reconnections;
        restart();
        wait_until([&] {
            return client.memory->connection().state != ConnectionState::ready ||
                   client.memory->statistics().reconnections > before;
        });
    }
    uint64_t requests(OperationKind kind) {
        return volume().counters().requests[static_cast<size_t>(kind)].load();
    }

    ClientFixture client_;
};

}  // namespace tiffin::rdma_blk::test
