// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What one client may take from the others: connections, and the time of a thread.
#include <thread>

#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using wire::SessionMode;

constexpr auto kExecuted = static_cast<uint8_t>(Outcome::executed);

class BoundsTest : public ServerFixture {
  protected:
    void wait_for_connections(size_t count) {
        for (int look = 0; look < 10'000 && server_->connection_count() != count; look++) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ASSERT_EQ(server_->connection_count(), count);
    }
    // The first bytes of a write of `size` bytes, as they go over the wire.
    static std::string half_a_write(TestClient& client, uint32_t size) {
        wire::Request request = client.make_request(OperationKind::write, 0, size);
        unsigned char head[sizeof(wire::MessageHeader) + sizeof(request)];
        const size_t head_bytes = wire::encode(wire::MessageType::request, 0, request, size, head);
        return std::string(reinterpret_cast<const char*>(head), head_bytes) +
               std::string(size / 2, 'h');
    }
};

TEST_F(BoundsTest, ConnectionsAreBoundedAndMakeRoomWhenTheyEnd) {
    configuration_.max_connections = 3;
    configuration_.max_handshakes = 1;
    start();
    auto first = open(1);
    auto second = open(2, SessionMode::read);
    auto third = open(3, SessionMode::read);
    auto late = connect(4);
    EXPECT_FALSE(late->open(SessionMode::read));
    EXPECT_EQ(late->refused().reason, static_cast<uint8_t>(wire::RefusalReason::no_room));
    TestClient too_many(server_->port(), 5);
    EXPECT_FALSE(too_many.handshake(key_, "volume").ok());
    EXPECT_EQ(server_->counters().connections_refused.load(), 1U);
    EXPECT_EQ(server_->counters().connections_accepted.load(), 4U);
    EXPECT_EQ(first->write(0, "first").outcome, kExecuted);
    second->close();
    wait_for_connections(3);
    ASSERT_TRUE(late->open(SessionMode::read));
    EXPECT_EQ(late->read(0, 5), "first");
    // Who has a session comes back to it, though all places are taken.
    auto again = connect(2);
    ASSERT_TRUE(again->resume(*second));
    EXPECT_EQ(again->read(0, 5), "first");
}

TEST_F(BoundsTest, AClientThatStopsWithinAWriteStallsNobodyAndIsDropped) {
    configuration_.threads = 1;  // so that both clients share it
    configuration_.probe_interval_ms = 100;
    start();
    auto silent = open(1);
    auto quick = open(2, SessionMode::read);
    std::memset(memory(), 'b', kVolumeBytes);
    const std::string half = half_a_write(*silent, wire::kMaxTransferBytes);
    ASSERT_TRUE(silent->send_bytes(half.data(), half.size()));
    for (int index = 0; index < 200; index++) {
        ASSERT_EQ(quick->read(0, 8), "bbbbbbbb");
    }
    // Nothing came from it for ten intervals, and it does not answer a probe: it has a payload to finish first.
    while (server_->counters().silent_connections.load() == 0) {
        ASSERT_EQ(quick->read(0, 8), "bbbbbbbb");
    }
    EXPECT_EQ(server_->counters().silent_connections.load(), 1U);
    wait_for_connections(1);
    EXPECT_EQ(volume().counters().bytes_written.load(), 0U);
    EXPECT_EQ(memory()[0], 'b');  // nothing of half a payload lands
    // The session is as it was: nothing of this request was begun.
    auto again = connect(1);
    ASSERT_TRUE(again->resume(*silent));
    EXPECT_EQ(again->write(0, "whole").outcome, kExecuted);
    EXPECT_EQ(quick->read(0, 5), "whole");
}

}  // namespace
}  // namespace tiffin::rdma_blk
