// SPDX-License-Identifier: MIT OR GPL-2.0-only
// What one client may take from the others: connections, and the time of a thread.
#include <sys/socket.h>

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
    std::unique_ptr<TestClient> connect_reader(unsigned char number) {
        Secret<kVolumeKeyBytes> reader_key;
        derive_reader_key(key_, reader_key);
        auto client = std::make_unique<TestClient>(server_->port(), number);
        client->has_reader_key = true;
        EXPECT_TRUE(client->handshake(reader_key, "volume").ok());
        return client;
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
    EXPECT_EQ(first->write(0, "first").outcome, kExecuted);
    second->close();
    wait_for_connections(3);
    ASSERT_TRUE(late->open(SessionMode::read));
    EXPECT_EQ(late->read(0, 5), "first");
    // A writer comes back to its session, though all places are taken; a reader when one of a reader is free.
    auto again = connect(1);
    ASSERT_TRUE(again->resume(*first));
    EXPECT_EQ(again->read(0, 5), "first");
    auto reader = connect(2);
    EXPECT_TRUE(reader->resume(*second)) << "the key is a writer's";
}

// A reader that comes back without a connection needs a place as a new one does; one that has a connection takes its place.
TEST_F(BoundsTest, ReadersThatComeBackLeaveConnectionsToWriters) {
    configuration_.max_connections = 4;
    start();
    std::vector<std::unique_ptr<TestClient>> sessions;
    for (unsigned char number = 2; number < 8; number++) {
        sessions.push_back(connect_reader(number));
        ASSERT_TRUE(sessions.back()->open(SessionMode::read));
        sessions.back()->close();
        wait_for_connections(0);
    }
    std::vector<std::unique_ptr<TestClient>> back;
    size_t resumed = 0;
    for (unsigned char number = 2; number < 8; number++) {
        back.push_back(connect_reader(number));
        resumed += back.back()->resume(*sessions[number - 2U]) ? 1 : 0;
    }
    EXPECT_EQ(resumed, 3U);
    EXPECT_EQ(open(1)->write(0, "first").outcome, kExecuted);
    auto again = connect_reader(2);
    EXPECT_TRUE(again->resume(*back[0]));
}

// A place of readers is kept for a session that has lost its connection: a second link of another one does not take it.
TEST_F(BoundsTest, FurtherConnectionsOfReadersTakeNoPlaceOfOthers) {
    configuration_.max_connections = 4;
    start();
    std::vector<std::unique_ptr<TestClient>> sessions;
    for (unsigned char number = 2; number < 5; number++) {
        sessions.push_back(connect_reader(number));
        ASSERT_TRUE(sessions.back()->open(SessionMode::read));
    }
    sessions[1]->close();
    wait_for_connections(2);
    auto further = connect_reader(2);
    EXPECT_FALSE(further->join(*sessions[0], 1));
    auto back = connect_reader(3);
    EXPECT_TRUE(back->resume(*sessions[1]));
}

// What its client has left behind is sent to nobody: neither its place nor its memory waits for it to be read.
TEST_F(BoundsTest, AConnectionThatWasReplacedKeepsNoPlace) {
    start();
    std::vector<std::unique_ptr<TestClient>> clients;
    clients.push_back(open(2, SessionMode::read));
    for (int round = 0; round < 5; round++) {
        TestClient& client = *clients.back();
        const int bytes = 4096;
        ASSERT_EQ(setsockopt(client.socket(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
        for (uint16_t slot = 0; slot < 16; slot++) {
            ASSERT_TRUE(
                client.send_request(client.make_request(OperationKind::read, 0, 1 << 20, slot))
                    .ok());
        }
        clients.push_back(connect(2));
        ASSERT_TRUE(clients.back()->resume(client));
    }
    wait_for_connections(1);
    EXPECT_EQ(clients.back()->read(0, 1), std::string(1, '\0'));
}

// Further streams are bounded as new sessions are, and a session without any comes back all the same.
TEST_F(BoundsTest, FurtherStreamsOfASessionAreBounded) {
    configuration_.max_connections = 3;
    start();
    auto first = open(1);
    auto second = open(2, SessionMode::read);
    second->close();
    wait_for_connections(1);
    auto stream = connect(1);
    auto last = connect(1);
    ASSERT_TRUE(stream->join(*first, 1));
    ASSERT_TRUE(last->join(*first, 2));
    EXPECT_FALSE(connect(1)->join(*first, 3));
    auto again = connect(2);
    ASSERT_TRUE(again->resume(*second));
    EXPECT_EQ(first->write(0, "first").outcome, kExecuted);
    EXPECT_EQ(again->read(0, 5), "first");
}

// The key opens the door to a session, and is no right to stand in it.
TEST_F(BoundsTest, WhoOnlyShowsTheKeyKeepsNobodyOut) {
    configuration_.max_connections = 3;
    configuration_.max_handshakes = 2;
    start();
    std::vector<std::unique_ptr<TestClient>> idle;
    for (unsigned char number = 10; number < 20; number++) {
        idle.push_back(connect(number));
    }
    EXPECT_EQ(idle[0]->receive().error(), Error::enodev) << "the oldest makes room";
    EXPECT_EQ(server_->counters().handshakes_displaced.load(), 8U);
    EXPECT_EQ(open(1)->write(0, "first").outcome, kExecuted);
    EXPECT_EQ(server_->counters().connections_refused.load(), 0U);
}

TEST_F(BoundsTest, ReaderKeysLeaveConnectionsToWriters) {
    configuration_.max_connections = 4;
    start();
    const auto first = connect_reader(2);
    const auto further = connect_reader(2);
    const auto second = connect_reader(3);
    ASSERT_TRUE(first->open(SessionMode::read));
    ASSERT_TRUE(further->join(*first, 1));
    ASSERT_TRUE(second->open(SessionMode::read));
    EXPECT_FALSE(connect_reader(2)->join(*first, 2));
    EXPECT_FALSE(connect_reader(4)->open(SessionMode::read));
    EXPECT_EQ(open(1)->write(0, "first").outcome, kExecuted);
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
