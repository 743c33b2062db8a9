// SPDX-License-Identifier: MIT OR GPL-2.0-only
// The server over real sockets: sessions, refusals, takeover, slow readers, many clients, restarts.
#include "rdma_blk/server/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "rdma_blk/server/administration.h"
#include "rdma_blk/server/metrics.h"
#include "rdma_blk/wire/parse.h"
#include "tests/unit/rdma_blk/server/ordered_requests.h"
#include "tests/unit/rdma_blk/server/server_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using wire::RefusalReason;
using wire::SessionMode;

constexpr auto kExecuted = static_cast<uint8_t>(Outcome::executed);

class ServerTest : public ServerFixture {};

TEST_F(ServerTest, WritesReadsAtomicsAndFlushes) {
    start();
    for (const bool encrypt : {false, true}) {
        auto client = open(1, SessionMode::write, false, encrypt);
        EXPECT_EQ(client->write(1000, "hello").outcome, kExecuted);
        EXPECT_EQ(client->read(1000, 5), "hello");
        std::string large(wire::kMaxTransferBytes, 'x');
        for (size_t index = 0; index < large.size(); index += 4096) {
            large[index] = static_cast<char>(index >> 12);
        }
        EXPECT_EQ(client->write(1 << 20, large).outcome, kExecuted);
        EXPECT_EQ(client->read(1 << 20, wire::kMaxTransferBytes), large);
        auto add = client->make_request(OperationKind::fetch_add, 8, 8);
        add.operand = 3;
        const uint64_t before = client->call(add).value;
        auto swap = client->make_request(OperationKind::compare_swap, 8, 8);
        swap.compare = before + 3;
        swap.operand = before;
        EXPECT_EQ(client->call(swap).value, before + 3);
        EXPECT_EQ(client->call(client->make_request(OperationKind::flush, 0, 0)).outcome,
                  kExecuted);
        wire::SessionClose close{client->opened().session_id, 1, 0};
        ASSERT_TRUE(client->send(wire::MessageType::session_close, close).ok());
        const auto closed = client->receive();
        ASSERT_TRUE(closed.ok());
        EXPECT_EQ(closed.value().type, wire::MessageType::session_closed);
    }
    EXPECT_EQ(volume().info(host::monotonic_ns()).session_count, 0U);
}

// The goal "a read costs what a ping-pong costs" as counts: one wait, one receive, one send for each.
TEST_F(ServerTest, ARequestIsOneReceiveAndOneSend) {
    start();
    for (const bool encrypt : {false, true}) {
        auto client = open(1, SessionMode::write, true, encrypt);
        (void)client->read(0, 4096);
        const ServerCounters& counters = server_->counters();
        const uint64_t waits = counters.wait_calls.load();
        const uint64_t receives = counters.receive_calls.load();
        const uint64_t sends = counters.send_calls.load();
        constexpr uint64_t kReads = 300;
        for (uint64_t i = 0; i < kReads; i++) {
            ASSERT_EQ(client->read(i * 4096, 4096).size(), 4096U);
        }
        // A probe may come between; the threads' ticks are waits that end without anything.
        constexpr uint64_t kSpare = kReads / 10;
        EXPECT_GE(counters.receive_calls.load() - receives, kReads);
        EXPECT_LE(counters.receive_calls.load() - receives, kReads + kSpare);
        EXPECT_LE(counters.send_calls.load() - sends, kReads + kSpare);
        EXPECT_GE(counters.wait_calls.load() - waits, kReads - 1);  // the first was under way
        EXPECT_LE(counters.wait_calls.load() - waits, 2 * kReads);
    }
}

TEST_F(ServerTest, StrangersAreClosedAndCounted) {
    start();
    Secret<kVolumeKeyBytes> wrong = key_;
    wrong.bytes[31] ^= 1;
    TestClient stranger(server_->port());
    EXPECT_FALSE(stranger.handshake(wrong, "volume").ok());
    TestClient lost(server_->port());
    EXPECT_FALSE(lost.handshake(key_, "no-such-volume").ok());
    EXPECT_EQ(server_->counters().handshakes_denied.load(), 2U);
    TestClient mute(server_->port());
    EXPECT_TRUE(mute.send_bytes("GET / HTTP/1.1\r\nHost: here\r\n\r\n", 30));
    EXPECT_FALSE(mute.receive().ok());
    EXPECT_EQ(server_->counters().handshakes_failed.load(), 1U);
    EXPECT_EQ(server_->counters().handshakes_done.load(), 0U);
}

TEST_F(ServerTest, AHelloIsSentBackOnceOnly) {
    start();
    TestClient stranger(server_->port());
    const wire::ClientHello hello = HandshakeClient(key_.bytes, "volume", stranger.uuid, 0).hello();
    ASSERT_TRUE(stranger.send(wire::MessageType::client_hello, hello).ok());
    const auto retry = stranger.receive();
    ASSERT_TRUE(retry.ok());
    EXPECT_EQ(retry.value().type, wire::MessageType::hello_retry);
    ASSERT_TRUE(stranger.send(wire::MessageType::client_hello, hello).ok());
    EXPECT_EQ(stranger.receive().error(), Error::enodev);
    EXPECT_EQ(server_->counters().handshakes_failed.load(), 1U);
}

TEST_F(ServerTest, AVolumeThatTakesANameInTheMiddleOfAHandshakeIsNotOpened) {
    start();
    TestClient client(server_->port());
    HandshakeClient handshake(key_.bytes, "volume", client.uuid, 0);
    ASSERT_TRUE(client.send(wire::MessageType::client_hello, handshake.hello()).ok());
    const auto retry = client.receive();
    ASSERT_TRUE(retry.ok());
    const auto parsed_retry = wire::parse_hello_retry(
        retry.value().header, ByteSpan(retry.value().fixed.data(), retry.value().fixed.size()));
    ASSERT_TRUE(parsed_retry.ok());
    ASSERT_TRUE(handshake.read_retry(parsed_retry.value()).ok());
    ASSERT_TRUE(client.send(wire::MessageType::client_hello, handshake.hello()).ok());
    const auto hello = client.receive();
    ASSERT_TRUE(hello.ok());
    const auto parsed_hello = wire::parse_server_hello(
        hello.value().header, ByteSpan(hello.value().fixed.data(), hello.value().fixed.size()));
    ASSERT_TRUE(parsed_hello.ok());
    const auto proof = handshake.read_server_hello(parsed_hello.value());
    ASSERT_TRUE(proof.ok());
    std::string problem;
    ASSERT_TRUE(server_->delete_volume("volume", true, problem).ok());
    ASSERT_TRUE(server_->create_volume({"volume", kVolumeBytes, 4096, ""}, problem).ok());
    ASSERT_TRUE(client.finish_handshake(handshake, proof.value()).ok());
    EXPECT_FALSE(client.open(SessionMode::write));
    EXPECT_EQ(client.refused().reason, static_cast<uint8_t>(RefusalReason::stopping));
    EXPECT_EQ(volume().info(host::monotonic_ns()).session_count, 0U);
}

TEST_F(ServerTest, WhoSaysNothingIsClosedInTime) {
    configuration_.handshake_timeout_ms = 100;
    start();
    TestClient mute(server_->port());
    EXPECT_EQ(mute.receive().error(), Error::enodev);
    auto undecided = connect();  // and no session
    EXPECT_EQ(undecided->receive().error(), Error::enodev);
    EXPECT_EQ(server_->counters().handshakes_timed_out.load(), 2U);
}

// A connection of another address of this host, which says nothing.
UniqueDescriptor stranger_at(const char* address, uint16_t port) {
    UniqueDescriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    inet_pton(AF_INET, address, &own.sin_addr);
    sockaddr_in server = own;
    inet_pton(AF_INET, "127.0.0.1", &server.sin_addr);
    server.sin_port = htons(port);
    EXPECT_EQ(bind(made.get(), reinterpret_cast<sockaddr*>(&own), sizeof(own)), 0);
    EXPECT_EQ(connect(made.get(), reinterpret_cast<sockaddr*>(&server), sizeof(server)), 0);
    return made;
}

TEST_F(ServerTest, StrangersKeepOutNobodyFromElsewhere) {
    configuration_.max_handshakes = 4;
    start();
    std::vector<UniqueDescriptor> strangers;
    const auto flood = [&] {
        for (int number = 0; number < 10; number++) {
            strangers.push_back(stranger_at("127.0.0.2", server_->port()));
        }
    };
    const auto all_were_seen = [&](uint64_t accepted) {
        for (int i = 0; i < 5000 && server_->counters().connections_accepted < accepted; i++) {
            usleep(2000);
        }
        EXPECT_EQ(server_->counters().connections_accepted.load(), accepted);
    };
    flood();
    // Each of its steps comes behind more of them than there are places.
    TestClient client(server_->port());
    HandshakeClient handshake(key_.bytes, "volume", client.uuid, 0);
    all_were_seen(11);
    flood();
    all_were_seen(21);
    ASSERT_TRUE(client.send(wire::MessageType::client_hello, handshake.hello()).ok());
    const auto retry = client.receive();
    ASSERT_TRUE(retry.ok());
    const auto parsed_retry = wire::parse_hello_retry(
        retry.value().header, ByteSpan(retry.value().fixed.data(), retry.value().fixed.size()));
    ASSERT_TRUE(parsed_retry.ok());
    ASSERT_TRUE(handshake.read_retry(parsed_retry.value()).ok());
    flood();
    all_were_seen(31);
    ASSERT_TRUE(client.send(wire::MessageType::client_hello, handshake.hello()).ok());
    const auto hello = client.receive();
    ASSERT_TRUE(hello.ok());
    const auto parsed_hello = wire::parse_server_hello(
        hello.value().header, ByteSpan(hello.value().fixed.data(), hello.value().fixed.size()));
    ASSERT_TRUE(parsed_hello.ok());
    const auto proof = handshake.read_server_hello(parsed_hello.value());
    ASSERT_TRUE(proof.ok());
    ASSERT_TRUE(client.finish_handshake(handshake, proof.value()).ok());
    flood();
    all_were_seen(41);
    ASSERT_TRUE(client.open(SessionMode::write)) << "who has shown the key has a place of its own";
    EXPECT_EQ(server_->counters().connections_refused.load(), 0U);
    EXPECT_GE(server_->counters().handshakes_displaced.load(), 36U);
    EXPECT_EQ(server_->counters().handshakes_timed_out.load(), 0U);
}

TEST_F(ServerTest, HandshakesAreBounded) {
    configuration_.max_handshakes = 4;
    start();
    std::vector<std::unique_ptr<TestClient>> mute;
    for (int number = 0; number < 5; number++) {
        mute.push_back(std::make_unique<TestClient>(server_->port()));
    }
    EXPECT_EQ(mute[0]->receive().error(), Error::enodev) << "the oldest makes room";
    EXPECT_EQ(server_->counters().handshakes_displaced.load(), 1U);
    auto client = open(7);
    EXPECT_EQ(client->read(0, 1), std::string(1, '\0'));
}

TEST_F(ServerTest, ASecondWriterIsToldTheHolder) {
    start();
    auto first = open(1);
    auto second = connect(2);
    EXPECT_FALSE(second->open(SessionMode::write));
    EXPECT_EQ(second->refused().reason, static_cast<uint8_t>(RefusalReason::held));
    EXPECT_STREQ(second->refused().holder_text, "client 1");
    EXPECT_TRUE(second->open(SessionMode::write, true));  // on the same connection
    EXPECT_EQ(second->write(0, "mine").outcome, kExecuted);
    EXPECT_FALSE(first->receive().ok());
    EXPECT_EQ(first->last_notice(), static_cast<int>(wire::NoticeReason::fenced));
}

// Whatever UUID it names, and whatever it asks for: it gets no lease, and nothing of a writer's session.
TEST_F(ServerTest, AReaderKeyAllowsNothingButToRead) {
    start();
    auto writer = open(1);
    EXPECT_EQ(writer->write(0, "mine").outcome, kExecuted);
    Secret<kVolumeKeyBytes> reader_key;
    derive_reader_key(key_, reader_key);
    const auto shake = [&](TestClient& client, const Secret<kVolumeKeyBytes>& key, bool is_reader) {
        client.has_reader_key = is_reader;
        return client.handshake(key, "volume").ok();
    };
    for (const bool is_reader : {false, true}) {
        TestClient wrong(server_->port());
        EXPECT_FALSE(shake(wrong, is_reader ? key_ : reader_key, is_reader));
    }
    TestClient reader(server_->port(), 1);
    ASSERT_TRUE(shake(reader, reader_key, true));
    const auto refused_with = [&](bool opened) { return opened ? 0 : reader.refused().reason; };
    EXPECT_EQ(refused_with(reader.open(SessionMode::write)),
              static_cast<uint8_t>(RefusalReason::read_only));
    EXPECT_EQ(refused_with(reader.open(SessionMode::read_steady, true)),
              static_cast<uint8_t>(RefusalReason::read_only));
    EXPECT_EQ(refused_with(reader.open(SessionMode::read_steady)),
              static_cast<uint8_t>(RefusalReason::held));
    EXPECT_FALSE(reader.resume(*writer));
    ASSERT_TRUE(reader.open(SessionMode::read));
    EXPECT_EQ(reader.read(0, 4), "mine");
    EXPECT_EQ(reader.write(0, "not mine").error, errno_value(Error::erofs));
    wire::LeaseRequest request{};
    request.session_id = reader.opened().session_id;
    request.flags = wire::open_flag::force;
    ASSERT_TRUE(reader.send(wire::MessageType::lease_request, request).ok());
    auto answer = reader.receive();
    ASSERT_TRUE(answer.ok());
    auto reply = wire::parse_lease_reply(answer->header,
                                         ByteSpan(answer->fixed.data(), answer->fixed.size()));
    ASSERT_TRUE(reply.ok());
    EXPECT_EQ(reply->reason, static_cast<uint8_t>(RefusalReason::read_only));
    EXPECT_EQ(writer->read(0, 4), "mine");
    EXPECT_EQ(writer->write(0, "more").outcome, kExecuted);
    // Nor that of a writer without a connection, which comes back.
    writer->close();
    TestClient thief(server_->port(), 1);
    ASSERT_TRUE(shake(thief, reader_key, true));
    EXPECT_FALSE(thief.resume(*writer));
    auto again = connect(1);
    ASSERT_TRUE(again->resume(*writer));
    EXPECT_EQ(again->write(0, "back").outcome, kExecuted);
}

TEST_F(ServerTest, NotOneWriteOfAFencedHolderLandsAfterTheGrant) {
    start();
    for (unsigned char round = 0; round < 5; round++) {
        auto holder = open(1, SessionMode::write, true);
        std::atomic<uint64_t> written{0};
        std::thread storm([&] {
            const std::string text(65536, static_cast<char>('a' + round));
            uint16_t slot = 0;
            while (true) {
                // Eight at once, over all of the volume.
                bool sent = true;
                for (int index = 0; index < 8 && sent; index++) {
                    const uint64_t offset = (written.load() * 8 + index) % 64 * 65536;
                    sent = holder
                               ->send_request(holder->make_request(OperationKind::write, offset,
                                                                   65536, slot++ % 64),
                                              text)
                               .ok();
                }
                for (int index = 0; index < 8 && sent; index++) {
                    const auto answer = holder->response();
                    sent = answer.ok() && answer.value().outcome == kExecuted;
                }
                if (!sent) {
                    return;
                }
                written++;
            }
        });
        while (written.load() < 20) {
            std::this_thread::yield();
        }
        auto successor = open(2, SessionMode::write, true);
        std::memset(memory(), 0,
                    kVolumeBytes);  // the grant has been answered: all is the successor's
        storm.join();
        server_->find_volume("volume")->tick(host::monotonic_ns());
        for (uint64_t offset = 0; offset < kVolumeBytes; offset += 4096) {
            ASSERT_EQ(memory()[offset], 0) << "a write landed at " << offset;
        }
        EXPECT_EQ(successor->write(0, "successor").outcome, kExecuted);
    }
    EXPECT_EQ(volume().counters().fences.load(), 9U);
}

TEST_F(ServerTest, ASlowReaderStallsNobodyAndIsDropped) {
    configuration_.threads = 1;  // so that both clients share it
    configuration_.stall_timeout_s = 1;
    configuration_.send_buffer_bytes = 64 << 10;
    start();
    auto slow = open(1, SessionMode::read);
    auto quick = open(2);
    for (int index = 0; index < 64; index++) {  // 64 MiB that nobody fetches
        ASSERT_TRUE(
            slow->send_request(slow->make_request(OperationKind::read, 0, wire::kMaxTransferBytes,
                                                  static_cast<uint16_t>(index)))
                .ok());
    }
    for (int index = 0; index < 200; index++) {
        ASSERT_EQ(quick->write(0, "quick").outcome, kExecuted);
    }
    EXPECT_LT(volume().counters().bytes_read.load(), 64U << 20);  // it stopped being served
    while (server_->counters().stalled_connections.load() == 0) {
        ASSERT_EQ(quick->write(0, "quick").outcome, kExecuted);
    }
    EXPECT_EQ(server_->counters().stalled_connections.load(), 1U);
}

TEST_F(ServerTest, AReaderThatComesBackGetsAllItsAnswers) {
    configuration_.send_buffer_bytes = 64 << 10;
    start();
    auto client = open(1);
    for (uint16_t index = 0; index < 64; index++) {
        ASSERT_TRUE(client
                        ->send_request(client->make_request(OperationKind::read, 0,
                                                            wire::kMaxTransferBytes, index))
                        .ok());
    }
    std::set<uint64_t> sequences;
    for (int index = 0; index < 64; index++) {
        const auto answer = client->response();
        ASSERT_TRUE(answer.ok());
        EXPECT_EQ(answer.value().payload_bytes, wire::kMaxTransferBytes);
        sequences.insert(answer.value().sequence);
    }
    EXPECT_EQ(sequences.size(), 64U);
}

// What many connections do not fetch is bounded together, and comes when they do.
TEST_F(ServerTest, UnreadAnswersOfAllAreBounded) {
    constexpr uint64_t kShared = uint64_t{64} << 20;
    constexpr size_t kClients = 48;
    constexpr uint16_t kRequests = 16;
    configuration_.max_sessions = 100;
    start();
    auto quick = open(1);
    std::vector<std::unique_ptr<TestClient>> slow;
    for (size_t number = 0; number < kClients; number++) {
        auto client = std::make_unique<TestClient>(server_->port());
        host::random_bytes(client->uuid, sizeof(client->uuid));
        ASSERT_TRUE(client->handshake(key_, "volume").ok());
        ASSERT_TRUE(client->open(SessionMode::read));
        slow.push_back(std::move(client));
        for (uint16_t index = 0; index < kRequests; index++) {
            ASSERT_TRUE(
                slow.back()
                    ->send_request(slow.back()->make_request(OperationKind::read, kVolumeBytes / 2,
                                                             wire::kMaxTransferBytes, index))
                    .ok());
        }
    }
    const Counter& unread = server_->counters().unread_answer_bytes;
    uint64_t most = 0;
    for (uint64_t seen = ~uint64_t{0}; seen != volume().counters().bytes_read.load();) {
        seen = volume().counters().bytes_read.load();
        for (int index = 0; index < 500; index++) {
            ASSERT_EQ(quick->write(0, "quick").outcome, kExecuted);
            most = std::max(most, unread.load());
        }
    }
    EXPECT_GT(most, kShared);  // what the test is about has happened
    EXPECT_LE(most, kShared + (kClients + 1) * (wire::kMaxTransferBytes + (64 << 10)));
    for (auto& client : slow) {
        for (uint16_t index = 0; index < kRequests; index++) {
            const auto answer = client->response();
            ASSERT_TRUE(answer.ok());
            ASSERT_EQ(answer.value().payload_bytes, wire::kMaxTransferBytes);
        }
    }
    slow.clear();
    EXPECT_EQ(quick->write(0, "quick").outcome, kExecuted);
    EXPECT_EQ(unread.load(), 0U);
}

TEST_F(ServerTest, ManyClientsAtOnce) {
    configuration_.max_sessions = 300;
    start();
    std::vector<std::unique_ptr<TestClient>> clients;
    clients.push_back(open(1));
    ASSERT_EQ(clients[0]->write(0, "shared").outcome, kExecuted);
    for (int number = 0; number < 255; number++) {
        auto client = std::make_unique<TestClient>(server_->port());
        host::random_bytes(client->uuid, sizeof(client->uuid));
        ASSERT_TRUE(client->handshake(key_, "volume").ok());
        ASSERT_TRUE(client->open(SessionMode::read));
        clients.push_back(std::move(client));
    }
    for (int round = 0; round < 4; round++) {
        for (auto& client : clients) {
            ASSERT_TRUE(client->send_request(client->make_request(OperationKind::read, 0, 6)).ok());
        }
        for (auto& client : clients) {
            std::string data;
            ASSERT_TRUE(client->response(&data).ok());
            EXPECT_EQ(data, "shared");
        }
    }
    EXPECT_EQ(volume().info(host::monotonic_ns()).connected_session_count, 256U);
}

TEST_F(ServerTest, WhoDoesNotAnswerProbesIsDroppedAndMayComeBack) {
    configuration_.probe_interval_ms = 50;
    start();
    auto client = open(1);
    EXPECT_EQ(client->write(0, "before").outcome, kExecuted);
    client->answers_probes = false;
    const auto probe = client->receive();
    ASSERT_TRUE(probe.ok());
    EXPECT_EQ(probe.value().type, wire::MessageType::probe);
    EXPECT_EQ(client->receive().error(), Error::enodev);
    EXPECT_EQ(server_->counters().silent_connections.load(), 1U);
    auto again = connect(1);
    ASSERT_TRUE(again->resume(*client));
    EXPECT_EQ(again->write(0, "after!").outcome, kExecuted);
}

// What waits for an earlier request fills the server's memory, so that it reads no further, probes neither.
TEST_F(ServerTest, AConnectionThatIsNotReadHearsAllTheSameThatTheServerLives) {
    configuration_.probe_interval_ms = 50;
    configuration_.lease_timeout_s = 1;
    start();
    auto client = open(1);
    client->set_patience(20);
    const auto first = client->make_request(OperationKind::write, 0, 4, 0);
    const auto second =
        ordered_after(first, client->make_request(OperationKind::write, 4096, 100'000, 1));
    ASSERT_TRUE(client->send_request(second, std::string(100'000, 'x')).ok());
    wire::Probe probe{};
    probe.id = 7;
    ASSERT_TRUE(client->send(wire::MessageType::probe, probe).ok());
    for (int i = 0; i < 30;
         i++) {  // of an interval each: longer than a lease lasts, and than four of them
        const auto came = client->receive();
        ASSERT_TRUE(came.ok());
        EXPECT_EQ(came.value().type, wire::MessageType::probe_reply);
    }
    auto rival = connect(2);
    EXPECT_FALSE(rival->open(SessionMode::write)) << "the holder was not silent";
    EXPECT_EQ(server_->counters().silent_connections.load(), 0U);
}

TEST_F(ServerTest, AResumedSessionEndsItsOldConnectionAndKeepsReplies) {
    start();
    auto first = open(1);
    auto add = first->make_request(OperationKind::fetch_add, 0, 8, 3);
    add.operand = 7;
    ASSERT_TRUE(first->send_request(add).ok());
    ASSERT_TRUE(first->response().ok());
    const auto missing = first->make_request(OperationKind::write, 64, 4, 4);  // never sent
    std::vector<wire::OutstandingEntry> entries(2);
    entries[0].sequence = add.sequence;
    entries[0].slot = 3;
    entries[0].operation = add.operation;
    entries[1].sequence = missing.sequence;
    entries[1].slot = 4;
    entries[1].operation = missing.operation;
    auto second = connect(1);
    ASSERT_TRUE(second->resume(*first, entries));
    ASSERT_EQ(second->outcomes().size(), 2U);
    EXPECT_EQ(second->outcomes()[0], kExecuted);
    EXPECT_EQ(second->outcomes()[1], static_cast<uint8_t>(Outcome::not_executed));
    EXPECT_FALSE(first->receive().ok());  // closed
    auto late = connect(1);
    EXPECT_FALSE(late->resume(*first));  // an old attempt does not displace a newer one
    EXPECT_EQ(late->refused().reason, static_cast<uint8_t>(RefusalReason::stale_incarnation));
    EXPECT_EQ(second->read(0, 1), std::string(1, '\7'));
}

TEST_F(ServerTest, ARestartWithKeptMemoryResumesAndOneWithoutSaysSo) {
    start();
    auto client = open(1);
    EXPECT_EQ(client->write(0, "kept").outcome, kExecuted);
    restart();
    auto again = connect(1);
    ASSERT_TRUE(again->resume(*client));
    EXPECT_EQ(again->read(0, 4), "kept");
    EXPECT_EQ(again->write(0, "more").outcome, kExecuted);
    keeper_.keeps = false;
    restart();
    auto lost = connect(1);
    EXPECT_FALSE(lost->resume(*again));
    EXPECT_EQ(lost->refused().reason, static_cast<uint8_t>(RefusalReason::no_session));
    EXPECT_GT(lost->refused().empty_since_incarnation, again->opened().content_incarnation);
}

TEST_F(ServerTest, FlushedWordsComeBackWithABackingOnly) {
    for (const std::string backing : {"", "/backing"}) {
        start(backing.empty() ? "" : folder_ + backing);
        auto client = open(1);
        // Beyond what is durable, too.
        const uint64_t words = wire::kLeaseOffset + wire::kControlPageBytes;
        const auto write = [&](uint64_t offset, const std::string& text) {
            wire::Request request = client->make_request(OperationKind::write, offset,
                                                         static_cast<uint32_t>(text.size()));
            request.space = static_cast<uint8_t>(AddressSpace::control);
            return client->call(request, text).outcome;
        };
        EXPECT_EQ(write(words + wire::kDurableWordsBytes - 4, "kept"), kExecuted);
        EXPECT_EQ(write(words + wire::kDurableWordsBytes, "lost"), kExecuted);
        wire::Request flush = client->make_request(OperationKind::flush, 0, 0);
        flush.space = static_cast<uint8_t>(AddressSpace::control);
        EXPECT_EQ(client->call(flush).outcome, kExecuted);
        EXPECT_EQ(write(words, "not flushed"), kExecuted);
        client.reset();
        keeper_.keeps = false;
        restart();
        const unsigned char* control = volume().memory().control + words;
        EXPECT_EQ(std::memcmp(control + wire::kDurableWordsBytes - 4, "kept", 4) == 0,
                  !backing.empty());
        EXPECT_EQ(control[0], 0);
        EXPECT_EQ(control[wire::kDurableWordsBytes], 0);
        std::string problem;
        ASSERT_TRUE(server_->delete_volume("volume", true, problem).ok()) << problem;
        server_.reset();
    }
}

// However often a client names them.
TEST_F(ServerTest, AFlushWritesEachBlockOnce) {
    start(folder_ + "/backing");
    auto client = open(1);
    EXPECT_EQ(client->write(10000, "flushed").outcome, kExecuted);
    const std::vector<wire::FlushRange> ranges(200, {0, kVolumeBytes});
    const std::string payload(reinterpret_cast<const char*>(ranges.data()),
                              ranges.size() * sizeof(wire::FlushRange));
    EXPECT_EQ(client
                  ->call(client->make_request(OperationKind::flush, 0,
                                              static_cast<uint32_t>(payload.size())),
                         payload)
                  .outcome,
              kExecuted);
    EXPECT_EQ(volume().counters().flushed_bytes.load(), kVolumeBytes);
    keeper_.keeps = false;
    restart();
    EXPECT_EQ(open(1)->read(10000, 7), "flushed");
}

TEST_F(ServerTest, AFlushedBackingComesBackWithoutMemory) {
    start(folder_ + "/backing");
    auto client = open(1);
    EXPECT_EQ(client->opened().durability, static_cast<uint8_t>(Durability::power));
    EXPECT_EQ(client->opened().write_unit_bytes, 512U);
    EXPECT_EQ(client->write(10000, "flushed").outcome, kExecuted);
    EXPECT_EQ(client->write(kVolumeBytes - 4, "last").outcome, kExecuted);
    const wire::FlushRange ranges[] = {{10000, 7}, {kVolumeBytes - 4, 4}};
    const std::string payload(reinterpret_cast<const char*>(ranges), sizeof(ranges));
    const auto flushed =
        client->call(client->make_request(OperationKind::flush, 0, sizeof(ranges)), payload);
    EXPECT_EQ(flushed.outcome, kExecuted);
    EXPECT_EQ(flushed.value, client->opened().content_incarnation);
    const std::string metrics = metrics_text(*server_);
    EXPECT_NE(metrics.find("tiffind_flush_seconds_count{volume=\"volume\"} 1\n"), std::string::npos)
        << metrics;
    EXPECT_NE(metrics.find("tiffind_flush_seconds_bucket{volume=\"volume\",le=\"+Inf\"} 1\n"),
              std::string::npos)
        << metrics;
    EXPECT_EQ(client->write(1 << 20, "not flushed").outcome, kExecuted);
    keeper_.keeps = false;
    restart();
    auto again = open(1);
    EXPECT_EQ(again->read(10000, 7), "flushed");
    EXPECT_EQ(again->read(kVolumeBytes - 4, 4), "last");
    EXPECT_EQ(again->read(1 << 20, 4), std::string(4, '\0'));
    EXPECT_EQ(again->opened().content_incarnation, client->opened().content_incarnation + 1);
    EXPECT_EQ(again->opened().empty_since_incarnation, client->opened().empty_since_incarnation);
    const auto all = again->call(again->make_request(OperationKind::flush, 0, 0));
    EXPECT_EQ(all.outcome, kExecuted);
}

TEST_F(ServerTest, GrowingFindsWhatTheBackingHas) {
    start(folder_ + "/backing");
    constexpr uint64_t kPlace = kVolumeBytes + 8192;
    std::filesystem::resize_file(folder_ + "/backing", kVolumeBytes + 16384);
    {
        std::fstream file(folder_ + "/backing", std::ios::in | std::ios::out);
        file.seekp(kPlace);
        file << "there";
    }
    std::string problem;
    ASSERT_TRUE(server_->resize_volume("volume", 2 * kVolumeBytes, problem).ok()) << problem;
    auto client = open(1);
    EXPECT_EQ(client->read(kPlace, 5), "there");
    EXPECT_EQ(client->read(kVolumeBytes + 16384, 4), std::string(4, '\0'));
    EXPECT_EQ(client->write(0, "not flushed").outcome, kExecuted);
    keeper_.keeps = false;
    server_->stop(true);
    restart();
    EXPECT_EQ(open(1)->read(kPlace, 5), "there");
}

TEST_F(ServerTest, AGrowthThatFailsLeavesNothing) {
    start();
    std::string problem;
    const uint64_t memory_before = volume().info(0).memory_bytes;
    const std::string in_the_way = folder_ + "/state/volume.volume.new";
    std::filesystem::create_directory(in_the_way);  // where the state file is written
    ASSERT_FALSE(server_->resize_volume("volume", 200 << 20, problem).ok());
    std::filesystem::remove(in_the_way);
    EXPECT_EQ(volume().info(0).memory_bytes, memory_before);
    for (const uint64_t size : {100, 200}) {  // smaller than the first attempt, and as large
        ASSERT_TRUE(server_->resize_volume("volume", size << 20, problem).ok()) << problem;
        EXPECT_EQ(open(1, SessionMode::read)->read((size << 20) - 4, 4), std::string(4, '\0'));
    }
}

// It would come back with the next start.
TEST_F(ServerTest, AVolumeWhoseStateStaysCanBeDeletedAgain) {
    start();
    std::string problem;
    const std::string state = folder_ + "/state/volume.volume";
    std::filesystem::rename(state, folder_ + "/kept");
    std::filesystem::create_directory(state);  // which cannot be removed as a file
    EXPECT_FALSE(server_->delete_volume("volume", true, problem).ok());
    EXPECT_EQ(server_->failed_volumes().count("volume"), 1U);
    std::filesystem::remove(state);
    std::filesystem::rename(folder_ + "/kept", state);
    EXPECT_TRUE(server_->delete_volume("volume", true, problem).ok()) << problem;
    EXPECT_EQ(server_->failed_volumes().count("volume"), 0U);
}

// ... and when somebody else has removed it meanwhile.
TEST_F(ServerTest, AVolumeWhoseStateIsGoneCanBeDeleted) {
    start();
    std::string problem;
    std::filesystem::remove(folder_ + "/state/volume.volume");
    EXPECT_TRUE(server_->delete_volume("volume", true, problem).ok()) << problem;
    EXPECT_EQ(server_->failed_volumes().count("volume"), 0U);
}

// With another state directory by mistake: what is kept under the name is that of the volume that is not found.
TEST_F(ServerTest, ANewVolumeTakesNoKeptMemoryAway) {
    start();
    auto client = open(1);
    EXPECT_EQ(client->call(client->make_request(OperationKind::write, 0, 4), "kept").outcome,
              kExecuted);
    client.reset();
    server_.reset();
    const std::string right = configuration_.state_directory;
    configuration_.state_directory = folder_ + "/wrong";
    {
        Server wrong(configuration_, keeper_);
        std::string problem;
        ASSERT_TRUE(wrong.start(problem).ok()) << problem;
        EXPECT_FALSE(wrong.create_volume({"volume", kVolumeBytes, 4096, ""}, problem).ok());
        EXPECT_NE(problem.find("is kept"), std::string::npos) << problem;
    }
    configuration_.state_directory = right;
    start();
    EXPECT_EQ(std::memcmp(memory(), "kept", 4), 0);
}

// As after changes of the active link and back.
TEST_F(ServerTest, ALeaseMayBeAskedForTwiceOnAConnection) {
    start();
    auto client = open(1, SessionMode::read);
    wire::LeaseRequest request{};
    request.session_id = client->opened().session_id;
    ASSERT_TRUE(client->send(wire::MessageType::lease_request, request).ok());
    ASSERT_TRUE(client->send(wire::MessageType::lease_request, request).ok());
    ASSERT_TRUE(client->send_request(client->make_request(OperationKind::read, 0, 4)).ok());
    bool is_granted = false;
    bool is_read = false;
    while (!is_granted || !is_read) {
        auto message = client->receive();
        ASSERT_TRUE(message.ok()) << "the connection was closed";
        is_granted = is_granted || message->type == wire::MessageType::lease_reply;
        is_read = is_read || message->type == wire::MessageType::response;
    }
    EXPECT_EQ(volume().info(0).epoch, client->opened().epoch + 1);
}

TEST_F(ServerTest, AStopForGoodKeepsTheWords) {
    start(folder_ + "/backing");
    auto client = open(1);
    const uint64_t words = wire::kLeaseOffset + wire::kControlPageBytes;
    wire::Request request = client->make_request(OperationKind::write, words, 4);
    request.space = static_cast<uint8_t>(AddressSpace::control);
    EXPECT_EQ(client->call(request, "kept").outcome, kExecuted);
    keeper_.keeps = false;
    server_->stop(true);
    restart();
    EXPECT_EQ(std::memcmp(volume().memory().control + words, "kept", 4), 0);
}

TEST_F(ServerTest, AStopForGoodFlushesFirst) {
    start(folder_ + "/backing");
    auto client = open(1);
    EXPECT_EQ(client->write(1 << 20, "not flushed").outcome, kExecuted);
    keeper_.keeps = false;
    server_->stop(true);
    // Nor do these lose anything before somebody has the lease again: another stop, and two accidents.
    restart();
    server_->stop(true);
    restart();
    restart();
    restart();
    auto resumed = connect(1);
    EXPECT_FALSE(resumed->resume(*client));
    // Nothing was lost: whoever wrote it goes on.
    EXPECT_EQ(resumed->refused().reason, static_cast<uint8_t>(RefusalReason::no_session));
    EXPECT_EQ(resumed->refused().content_incarnation, client->opened().content_incarnation);
    auto again = open(2);
    EXPECT_EQ(again->read(1 << 20, 11), "not flushed");
    // The next start says so if it was killed.
    EXPECT_EQ(again->write(1 << 20, "lost").outcome, kExecuted);
    restart();
    EXPECT_EQ(open(3)->opened().content_incarnation, client->opened().content_incarnation + 1);
}

// In the folder of the server's own files, which is where backings are in a package's configuration.
TEST_F(ServerTest, ABackingAmongTheServersFilesIsNotTakenForOneOfThem) {
    keeper_.keeps = false;
    const std::string folder = folder_ + "/state/";
    start(folder + "volume.backing");
    const auto refusal = [&](const std::string& backing) {
        std::string problem;
        return server_->create_volume({"other", kVolumeBytes, 4096, backing}, problem).error();
    };
    for (const char* const name :
         {"other.volume", "other.new", "x.volume.new", "lock", "server-uuid"}) {
        EXPECT_EQ(refusal(folder + name), Error::einval) << name;
        EXPECT_EQ(refusal(folder + "../state/" + name), Error::einval) << name;
    }
    // Of a version that did not refuse it.
    server_.reset();
    const StateDirectory files(folder);
    VolumeState state = MUST(files.load("volume"));
    state.backing = folder + "data.new";
    std::filesystem::rename(folder + "volume.backing", state.backing);
    ASSERT_TRUE(files.save(state).ok());
    start();
    ASSERT_NE(server_->find_volume("volume"), nullptr);
    EXPECT_EQ(std::filesystem::file_size(state.backing), kVolumeBytes);
}

TEST_F(ServerTest, ABackingThatIsMissingOrSmallerIsNotReplacedByZeros) {
    const std::string backing = folder_ + "/backing";
    start(backing);
    std::string unused;
    ASSERT_TRUE(server_->create_volume({"other", kVolumeBytes, 4096, ""}, unused).ok()) << unused;
    server_.reset();
    keeper_.keeps = false;
    const auto start_again = [&] {
        std::string problem;
        Server server(configuration_, keeper_);
        EXPECT_TRUE(server.start(problem).ok()) << problem;
        EXPECT_EQ(server.find_volume("volume"), nullptr);
        EXPECT_NE(server.find_volume("other"), nullptr);
        EXPECT_EQ(server.list_volumes().size(), 1U);
        // It is there, and must not be taken for missing.
        EXPECT_EQ(server.create_volume({"volume", kVolumeBytes, 4096, ""}, problem).error(),
                  Error::eexist);
        EXPECT_EQ(server.delete_volume("volume", false, problem).error(), Error::ebusy);
        return server.failed_volumes()["volume"];
    };
    std::filesystem::resize_file(backing, kVolumeBytes - 4096);
    std::string problem = start_again();
    EXPECT_NE(problem.find("volume volume: backing " + backing + ": has 4190208 bytes"),
              std::string::npos)
        << problem;
    EXPECT_EQ(std::filesystem::file_size(backing), kVolumeBytes - 4096);
    std::filesystem::remove(backing);
    problem = start_again();
    EXPECT_NE(problem.find(backing + ": cannot be opened"), std::string::npos) << problem;
    EXPECT_NE(problem.find("bring it back as it was"), std::string::npos) << problem;
    EXPECT_NE(problem.find(folder_ + "/state/volume.volume"), std::string::npos) << problem;
    EXPECT_FALSE(std::filesystem::exists(backing));
    start();
    ASSERT_EQ(server_->find_volume("volume"), nullptr);
    ASSERT_TRUE(server_->delete_volume("volume", true, problem).ok()) << problem;
    EXPECT_TRUE(server_->failed_volumes().empty());
}

TEST_F(ServerTest, TwoVolumesCannotShareABackingAndLinksAreFollowed) {
    const std::string backing = folder_ + "/backing";
    start(backing);
    const std::string link = folder_ + "/link";
    std::filesystem::create_symlink(backing, link);
    std::string problem;
    EXPECT_EQ(server_->create_volume({"other", 65536, 4096, link}, problem).error(), Error::ebusy);
    EXPECT_NE(problem.find(link + ": is in use"), std::string::npos) << problem;
    ASSERT_TRUE(server_->delete_volume("volume", true, problem).ok()) << problem;
    EXPECT_TRUE(server_->create_volume({"other", 65536, 4096, link}, problem).ok()) << problem;
}

TEST_F(ServerTest, ANewVolumeTakesForeignDataOnlyWhenTold) {
    start();
    const std::string backing = folder_ + "/found";
    const auto found = [&](uint64_t offset, const std::string& data, uint64_t size) {
        std::ofstream(backing).close();
        std::filesystem::resize_file(backing, size);
        std::fstream file(backing, std::ios::in | std::ios::out);
        file.seekp(static_cast<std::streamoff>(offset));
        file << data;
    };
    std::string problem;
    const uint64_t size = 4 << 20;
    const auto create = [&](bool takes_any_content) {
        return server_->create_volume({"other", size, 4096, backing, takes_any_content}, problem);
    };
    const auto remove = [&] {
        ASSERT_TRUE(server_->delete_volume("other", true, problem).ok()) << problem;
    };
    for (const uint64_t offset : {uint64_t{0}, uint64_t{600'000}, size - 1}) {
        found(offset, "x", size);
        EXPECT_EQ(create(false).error(), Error::eexist) << offset;
        EXPECT_NE(problem.find("backing " + backing + ": holds data that are not"),
                  std::string::npos)
            << problem;
        EXPECT_EQ(server_->find_volume("other"), nullptr);
        EXPECT_TRUE(create(true).ok()) << problem;
        EXPECT_EQ(server_->find_volume("other")->memory().data[offset], 'x');
        remove();
    }
    found(0, "a text\n", 7);
    EXPECT_EQ(create(false).error(), Error::eexist);
    EXPECT_EQ(std::filesystem::file_size(backing), 7U);
    // Where mkfs.tiffin and later mounts write superblocks; zeros; and nothing.
    for (const uint64_t offset : {0, 4096}) {
        found(offset, "TIFFINFS", size);
        EXPECT_TRUE(create(false).ok()) << problem;
        remove();
    }
    for (const uint64_t present : {uint64_t{0}, size / 2, size * 2}) {
        found(0, "", present);
        EXPECT_TRUE(create(false).ok()) << problem;
        remove();
    }
}

TEST_F(ServerTest, ABackingOfSeveralLinesIsRefused) {
    start();
    std::string problem;
    const std::string backing = folder_ + "/backing\nepoch 7";
    EXPECT_EQ(server_->create_volume({"other", 65536, 4096, backing}, problem).error(),
              Error::einval);
    EXPECT_FALSE(std::filesystem::exists(backing));
}

TEST_F(ServerTest, NoBackingIsMadeBelowDev) {
    start();
    std::string problem;
    const std::string backing = "/dev/shm/../tiffin-test-none";
    EXPECT_EQ(server_->create_volume({"other", 65536, 4096, backing}, problem).error(),
              Error::enoent);
    EXPECT_NE(problem.find(backing), std::string::npos) << problem;
    EXPECT_FALSE(std::filesystem::exists(backing));
    EXPECT_EQ(server_->find_volume("other"), nullptr);
    restart();  // nothing of it stayed in the state directory
    EXPECT_EQ(server_->find_volume("other"), nullptr);
}

TEST_F(ServerTest, MetricsCountWhatHappened) {
    start();
    auto client = open(1);
    client->write(0, "twelve bytes");
    client->write(kVolumeBytes, "beyond the end");
    auto second = connect(2);
    EXPECT_FALSE(second->open(SessionMode::write));
    const std::string text = metrics_text(*server_);
    for (const char* line : {
             "tiffind_bytes_total{volume=\"volume\",direction=\"written\"} 12\n",
             "tiffind_requests_total{volume=\"volume\",operation=\"write\"} 2\n",
             "tiffind_answers_total{volume=\"volume\",result=\"refused_range\"} 1\n",
             "tiffind_sessions_refused_total{volume=\"volume\",reason=\"held\"} 1\n",
             "tiffind_handshakes_total{result=\"done\"} 2\n",
             "tiffind_volume_connected_sessions{volume=\"volume\"} 1\n",
             "tiffind_volume_has_writer{volume=\"volume\"} 1\n",
             "tiffind_failed_volumes 0\n",
         }) {
        EXPECT_NE(text.find(line), std::string::npos) << line << "is not in\n" << text;
    }
}

TEST_F(ServerTest, MetricsTellHowLongTurnsTook) {
    start();
    auto client = open(1);
    const std::string zero = "tiffind_turn_duration_seconds_count{volume=\"volume\"} 0\n";
    EXPECT_NE(metrics_text(*server_).find(zero), std::string::npos);
    client->write(0, "one");
    client->write(0, "two");
    // Each was waited for, so each had a turn of its own, which is counted when the answer has been sent.
    const std::string two =
        "tiffind_turn_duration_seconds_bucket{volume=\"volume\",le=\"+Inf\"} 2\n";
    std::string text;
    for (int i = 0; i < 1000 && text.find(two) == std::string::npos; i++) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        text = metrics_text(*server_);
    }
    EXPECT_NE(text.find(two), std::string::npos) << text;
    EXPECT_EQ(text.find("tiffind_turn_duration_seconds_sum{volume=\"volume\"} 0\n"),
              std::string::npos);
}

TEST_F(ServerTest, AdministrationAnswersLines) {
    start();
    EXPECT_EQ(answer_administration(*server_, "nonsense"),
              R"({"error":"not a JSON object","ok":false})");
    EXPECT_EQ(answer_administration(*server_, "[1]"),
              R"({"error":"not a JSON object","ok":false})");
    EXPECT_EQ(answer_administration(*server_, R"({"command": 5, "name": {}})"),
              R"({"error":"unknown command \"\"","ok":false})");
    const std::string made =
        answer_administration(*server_, R"({"command":"create","name":"b","size_bytes":8192})");
    EXPECT_NE(made.find("\"ok\":true"), std::string::npos) << made;
    EXPECT_EQ(server_->list_volumes().size(), 2U);
    EXPECT_NE(answer_administration(*server_, R"({"command":"create","name":"c","size_bytes":-1})")
                  .find("\"ok\":false"),
              std::string::npos);
}

TEST_F(ServerTest, VolumesComeAndGo) {
    start();
    std::string problem;
    EXPECT_EQ(server_->create_volume({"volume", 4096, 4096, ""}, problem).error(), Error::eexist);
    EXPECT_EQ(server_->create_volume({"a/b", 4096, 4096, ""}, problem).error(), Error::einval);
    EXPECT_EQ(server_->create_volume({"large", uint64_t{1} << 30, 4096, ""}, problem).error(),
              Error::enospc);
    auto client = open(1);
    ASSERT_TRUE(server_->resize_volume("volume", kVolumeBytes * 2, problem).ok()) << problem;
    EXPECT_EQ(client->write(kVolumeBytes, "new part").outcome, kExecuted);
    EXPECT_EQ(client->last_notice(), static_cast<int>(wire::NoticeReason::resized));
    ASSERT_TRUE(server_->delete_volume("volume", true, problem).ok()) << problem;
    EXPECT_FALSE(client->receive().ok());
    EXPECT_EQ(client->last_notice(), static_cast<int>(wire::NoticeReason::deleted));
    EXPECT_TRUE(server_->list_volumes().empty());
    EXPECT_EQ(server_->delete_volume("volume", true, problem).error(), Error::enoent);
}

}  // namespace
}  // namespace tiffin::rdma_blk
