// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Authentic datagrams with messages that are none, and joining again and again: each ends with an answer or with the
// connection, and the next client is served.
#include "tests/unit/rdma_blk/server/datagram_fixture.h"

namespace tiffin::rdma_blk {
namespace {

using Bytes = std::vector<unsigned char>;

class DatagramHostileTest : public DatagramPathTest {
  protected:
    // Another client that takes the volume, with a path.
    void open_another() {
        path_.reset();
        number_++;
        client_ = open(number_, wire::SessionMode::write, true);
        client_->set_patience(60);
        open_path();
    }
    template <typename Change>
    Bytes changed(Change change, OperationKind kind = OperationKind::read, size_t payload = 0) {
        wire::Request request = client_->make_request(kind, 64, 8);
        change(request);
        Bytes bytes(sizeof(wire::MessageHeader) + sizeof(request) + payload);
        (void)wire::encode(wire::MessageType::request, 0, request, payload, bytes.data());
        return bytes;
    }
    template <typename Fixed>
    Bytes of_type(wire::MessageType type, const Fixed& fixed) {
        Bytes bytes(sizeof(wire::MessageHeader) + sizeof(fixed));
        (void)wire::encode(type, 0, fixed, 0, bytes.data());
        return bytes;
    }
    void send_wire(const Bytes& bytes) {
        send(bytes.data(), bytes.size(), static_cast<uint32_t>(MessageUse::wire));
    }
    // Until the server has taken what was sent, or ended the path for it.
    void deliver() {
        const uint64_t end_ns = host::monotonic_ns() + kDatagramPatienceNs;
        const auto is_over = [&] {
            return path_->free_messages() >= agreed_.message_count || path_->has_failed() ||
                   server_->counters().sdr_paths.load() == 0;
        };
        while (!is_over() && host::monotonic_ns() < end_ns) {
            turn();
        }
        EXPECT_TRUE(is_over());
    }
    bool is_served() {
        open_another();
        send("", 1, static_cast<uint32_t>(MessageUse::hello));
        MessagePath::Message message;
        return receive(message);
    }

    unsigned char number_ = 10;
};

TEST_F(DatagramHostileTest, EachMalformedMessageEndsItsConnection) {
    using Make = std::function<Bytes()>;
    const std::vector<std::pair<const char*, Make>> cases = {
        {"one byte", [] { return Bytes(1, 7); }},
        {"a header of nothing", [] { return Bytes(sizeof(wire::MessageHeader)); }},
        {"half a request",
         [&] {
             Bytes bytes = changed([](wire::Request&) {});
             bytes.resize(bytes.size() / 2);
             return bytes;
         }},
        {"more than a request",
         [&] {
             Bytes bytes = changed([](wire::Request&) {});
             bytes.push_back(0);
             return bytes;
         }},
        {"as large as it gets", [] { return Bytes(wire::kDatagramMessageBytes, 0xff); }},
        {"a response", [&] { return of_type(wire::MessageType::response, wire::Response{}); }},
        {"a close",
         [&] {
             return of_type(wire::MessageType::session_close,
                            wire::SessionClose{client_->opened().session_id, 1, 0});
         }},
        {"a join", [&] { return of_type(wire::MessageType::path_join, wire::PathJoin{}); }},
        {"operation 9", [&] { return changed([](wire::Request& r) { r.operation = 9; }); }},
        {"space 2", [&] { return changed([](wire::Request& r) { r.space = 2; }); }},
        {"unknown flags", [&] { return changed([](wire::Request& r) { r.flags = 0x80; }); }},
        {"number 0", [&] { return changed([](wire::Request& r) { r.sequence = 0; }); }},
        {"after itself", [&] { return changed([](wire::Request& r) { r.after = r.sequence; }); }},
        {"beyond all", [&] { return changed([](wire::Request& r) { r.offset_bytes = ~7ULL; }); }},
        {"a read that brings bytes",
         [&] { return changed([](wire::Request&) {}, OperationKind::read, 8); }},
        {"a write that brings too few",
         [&] { return changed([](wire::Request&) {}, OperationKind::write, 7); }},
    };
    for (const auto& [name, make] : cases) {
        SCOPED_TRACE(name);
        open_another();
        const uint64_t before = server_->counters().malformed_messages.load();
        send_wire(make());
        expect_end(before);
    }
    EXPECT_EQ(memory()[64], 0);
    EXPECT_TRUE(is_served());
}

// What is wrong only in this session is answered, ignored, or ends the connection: nothing hangs, and nothing is
// carried out.
TEST_F(DatagramHostileTest, RequestsOfAnotherTakeNoEffect) {
    const std::vector<std::function<void(wire::Request&)>> changes = {
        [](wire::Request& request) { request.session_id++; },
        [](wire::Request& request) { request.incarnation++; },
        [](wire::Request& request) { request.epoch++; },
        [](wire::Request& request) { request.slot = 60000; },
    };
    for (const auto& change : changes) {
        open_another();
        send_wire(changed(change, OperationKind::fetch_add));
        deliver();
        // The stream is asked afterwards: it answers, or has ended.
        wire::Request request = client_->make_request(OperationKind::read, 0, 8, 1);
        if (client_->send_request(request).ok()) {
            const auto answer = client_->receive();
            EXPECT_TRUE(answer.ok() || answer.error() != Error::etimedout);
        }
        EXPECT_EQ(memory()[64], 0);
    }
    EXPECT_TRUE(is_served());
}

TEST_F(DatagramHostileTest, JoinsThatWaitForNoAnswerLeaveOnePath) {
    constexpr int kJoins = 40;
    path_ = MUST(MessagePath::create(path_options()));
    for (int join = 0; join < kJoins; join++) {
        ask_to_join(path_->end());
    }
    for (int join = 0; join < kJoins; join++) {
        ASSERT_EQ(take_joined(), 0);
    }
    EXPECT_EQ(server_->counters().sdr_paths.load(), 1U);
    start_path();
    send("", 1, static_cast<uint32_t>(MessageUse::hello));
    MessagePath::Message message;
    EXPECT_TRUE(receive(message));
}

// The first path ends with requests under way; what is asked again on the second is executed once.
TEST_F(DatagramHostileTest, JoiningAgainExecutesWhatIsUnderWayOnce) {
    for (uint64_t round = 0; round < 10; round++) {
        open_path();
        wire::Request request = client_->make_request(OperationKind::fetch_add, 64, 8);
        request.operand = 1;
        send_request(request, "");
        if (round % 2 == 0) {
            deliver();
        } else {
            turn();  // it may arrive, or not
        }
        const std::unique_ptr<MessagePath> first = std::move(path_);
        open_path();
        send_request(request, "");
        MessagePath::Message message;
        ASSERT_TRUE(receive(message));
        const auto header = MUST(wire::parse_header(message.bytes));
        const auto response =
            MUST(wire::parse_response(header, message.bytes.subspan(sizeof(header))));
        EXPECT_EQ(response.outcome, static_cast<uint8_t>(Outcome::executed));
        EXPECT_EQ(response.value, round);
        EXPECT_EQ(memory()[64], round + 1);
        EXPECT_EQ(server_->counters().sdr_paths.load(), 1U);
    }
}

}  // namespace
}  // namespace tiffin::rdma_blk
